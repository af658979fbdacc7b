"""Packs of CIFAR-100 rewritten as an npz file."""

import hashlib
import io
import os
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
# the folder of both packs; beside the checkout where nothing is said
DATA = Path(os.environ.get("HFC_CIFAR100_PACKS") or ROOT.parent / "shared" / "data")
PACKS = [DATA / f"cifar100_{part}.npz" for part in ("subset", "rest")]
SHA256 = {  # of the bytes of the official images, in the order of the official files
    "x_train": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
    "x_test": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
}
NAMES = np.array(["apple", "bowl", "cloud"])


@pytest.fixture
def unpack(monkeypatch, tmp_path):
    def run(*packs):
        target = tmp_path / "out.npz"
        words = ["unpack_cifar100.py", *map(str, packs), str(target)]
        monkeypatch.setattr(sys, "argv", words)
        runpy.run_path(str(ROOT / "experiments" / "unpack_cifar100.py"), run_name="__main__")
        with np.load(target) as arrays:
            return dict(arrays)

    return run


def whole():
    """Images and labels in an order that mixes the classes."""
    generator = np.random.default_rng(0)
    return {
        split: (
            generator.integers(256, size=(3 * each, 32, 32, 3), dtype=np.uint8),
            generator.permutation(np.repeat(np.arange(3), each)),
        )
        for split, each in (("train", 4), ("test", 2))
    }


def pack(path, splits, part, **further):
    """The first or the second half of each class of these images, as they are packed."""
    arrays, strips = dict(further), {}
    for split, (images, labels) in splits.items():
        of_classes = [np.flatnonzero(labels == label) for label in range(3)]
        halves = [where[part * len(where) // 2 :][: len(where) // 2] for where in of_classes]
        arrays[f"index_{split}"] = np.concatenate(halves).astype(np.uint16)
        arrays[f"y_{split}"] = np.repeat(np.arange(3), [len(half) for half in halves])
        strips[split] = [images[half].reshape(-1, 32, 3) for half in halves]
    files = []
    for pair in zip(strips["train"], strips["test"], strict=True):
        for strip in pair:
            file = io.BytesIO()
            Image.fromarray(strip).save(file, "PNG")
            files.append(file.getvalue())
    offsets = np.cumsum([0, *map(len, files)])
    np.savez(path, bytes=np.frombuffer(b"".join(files), np.uint8), offsets=offsets, **arrays)
    return path


def test_two_packs_are_joined_in_the_order_of_the_official_files(unpack, tmp_path):
    splits = whole()
    first = pack(tmp_path / "first.npz", splits, 0, class_names=NAMES)
    second = pack(tmp_path / "second.npz", splits, 1)
    arrays = unpack(second, first)  # whichever is named first
    assert set(arrays) == {"x_train", "y_train", "x_test", "y_test", "class_names"}
    assert np.array_equal(arrays["class_names"], NAMES)
    for split, (images, labels) in splits.items():
        assert np.array_equal(arrays[f"x_{split}"], images)
        assert np.array_equal(arrays[f"y_{split}"], labels)


@pytest.mark.skipif(
    not all(path.is_file() for path in PACKS), reason="both packs of CIFAR-100: HFC_CIFAR100_PACKS"
)
def test_the_packs_are_the_official_files(unpack):
    arrays = unpack(*PACKS)
    digests = {name: hashlib.sha256(arrays[name].tobytes()).hexdigest() for name in SHA256}
    assert digests == SHA256
    assert np.bincount(arrays["y_train"]).tolist() == [500] * 100
    for path in PACKS:
        with np.load(path) as packed:
            for split in ("train", "test"):
                labels = arrays[f"y_{split}"][packed[f"index_{split}"]]
                assert np.array_equal(labels, packed[f"y_{split}"])
