"""CIFAR-100, downloaded from a server of the test."""

import hashlib
import pickle
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import click
import numpy as np
import pytest
from click.testing import CliRunner
from torchvision.datasets import CIFAR100

from avalanche_hfc.lab.cli import commands


def hfc(*arguments):
    result = CliRunner().invoke(
        commands, [str(word) for word in arguments], catch_exceptions=False, standalone_mode=False
    )
    return result.stdout


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive in the layout of CIFAR-100, with its sums, on a server."""
    content = tmp_path / "made" / "cifar-100-python"
    content.mkdir(parents=True)
    pixels = np.zeros((2, 3072), dtype=np.uint8)
    parts = {name: {"data": pixels, "fine_labels": [0, 1]} for name in ("train", "test")}
    for name, held in {**parts, "meta": {"fine_label_names": ["ant", "bee"]}}.items():
        (content / name).write_bytes(pickle.dumps(held))
    path = tmp_path / "made" / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        packed.add(content, "cifar-100-python")

    def md5(path):
        return hashlib.md5(path.read_bytes()).hexdigest()

    class Files(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=path.parent))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/{path.name}"
    monkeypatch.setattr(CIFAR100, "url", address)
    monkeypatch.setattr(CIFAR100, "tgz_md5", md5(path))
    monkeypatch.setattr(CIFAR100, "train_list", [["train", md5(content / "train")]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", md5(content / "test")]])
    meta = {"filename": "meta", "key": "fine_label_names", "md5": md5(content / "meta")}
    monkeypatch.setattr(CIFAR100, "meta", meta)
    yield path
    server.shutdown()
    server.server_close()


def test_cifar100_is_downloaded_and_its_sums_are_checked(archive, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    with pytest.raises(ValueError):  # two images are not the recipe's: after the download
        hfc("run", "cifar100-b0-t5-ncm@small", "--data", folder, "--out", tmp_path, "--download")
    assert (folder / "cifar-100-python" / "train").is_file()
    archive.unlink()
    assert str(folder) in hfc("data", "check", folder, "--download")
    with pytest.raises(ConnectionError, match=r"cannot be downloaded from http://.*Put cifar-100"):
        hfc("data", "check", tmp_path / "other", "--download")
    monkeypatch.setattr(CIFAR100, "tgz_md5", "0" * 32)
    archive.write_bytes(b"no archive")
    with pytest.raises(ConnectionError, match="corrupted"):
        hfc("data", "check", tmp_path / "third", "--download")
    with pytest.raises(click.UsageError, match="--download is for CIFAR-100"):
        hfc("run", "digits-b0-t5-hfc@demo", "--download")
