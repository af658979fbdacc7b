"""timm's weights and CIFAR-100, downloaded from a server of the test."""

import hashlib
import pickle
import tarfile
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import click
import numpy as np
import pytest
from click.testing import CliRunner
from huggingface_hub import constants
from torchvision.datasets import CIFAR100

from avalanche_hfc.lab.cli import commands
from avalanche_hfc.models.backbone import weights_file

NAME = "vit_base_patch16_224.mae"
FILE = f"/timm/{NAME}/resolve/main/model.safetensors"
CONTENT = b"weights of a backbone" * 1000


def hfc(*arguments):
    result = CliRunner().invoke(
        commands, [str(word) for word in arguments], catch_exceptions=False, standalone_mode=False
    )
    return result.stdout


class Hub(BaseHTTPRequestHandler):
    """Serves one file as Hugging Face does; `asked` are the requests."""

    def do_HEAD(self):
        self.server.asked.append((self.command, self.path))
        known = self.path == FILE and self.server.answers
        self.send_response(200 if known else 503)
        if known:
            self.send_header("ETag", f'"{self.server.stated}"')
            self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(CONTENT)) if known else "0")
        self.end_headers()
        return known

    def do_GET(self):
        if self.do_HEAD():
            self.wfile.write(CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.answers = [], True
    server.stated = hashlib.sha256(CONTENT).hexdigest()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    template = constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_weights_are_downloaded_once_and_found_without_a_network(hub):
    path = weights_file(NAME)
    assert path.read_bytes() == CONTENT
    hub.answers = False
    num_asked = len(hub.asked)
    assert weights_file(NAME) == path and len(hub.asked) == num_asked


def test_a_damaged_download_is_refused_and_tried_again(hub):
    hub.stated = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(ConnectionError, match=r"model\.safetensors is damaged: its SHA-256 sum is"):
        weights_file(NAME)
    hub.stated = hashlib.sha256(CONTENT).hexdigest()
    assert weights_file(NAME).read_bytes() == CONTENT


def test_without_a_network_one_try_is_made_and_the_file_is_named(hub):
    hub.answers = False
    with pytest.raises(
        ConnectionError, match=rf"^The weights of {NAME} .*{FILE} .*--model\.weights FILE.*$"
    ) as raised:
        weights_file(NAME)
    assert "\n" not in str(raised.value) and hub.asked == [("HEAD", FILE)]


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
