"""Benchmarks from npz files: pixels and labels as stored, and every way in which a file can be
wrong.
"""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib import format as npy

from avalanche_hfc.benchmarks import split_npz
from avalanche_hfc.benchmarks.npz import load_npz


def arrays(**changes) -> dict:
    """4 classes, 3 training images and 1 test image each, 6 x 6 RGB."""
    generator = np.random.RandomState(0)
    stored = {
        "x_train": generator.randint(0, 256, (12, 6, 6, 3), dtype=np.uint8),
        "y_train": np.array([2, 0, 3, 1] * 3),
        "x_test": generator.randint(0, 256, (4, 6, 6, 3), dtype=np.uint8),
        "y_test": np.array([3, 1, 2, 0]),
        **changes,
    }
    return {key: value for key, value in stored.items() if value is not None}


@pytest.fixture
def saved(tmp_path):
    def save(**changes) -> str:
        np.savez(tmp_path / "images.npz", **arrays(**changes))
        return str(tmp_path / "images.npz")

    return save


def images_of(stream, class_id: int) -> torch.Tensor:
    data = next(one for one in stream if class_id in one.classes_in_this_experience).dataset.eval()
    return torch.stack([data[i][0] for i, label in enumerate(data.targets) if label == class_id])


@pytest.mark.parametrize("kind", ["rgb", "grey", "grey with a channel", "float", "double"])
def test_images_are_the_stored_pixels_of_their_class(saved, kind):
    stored = arrays()
    for key in ("x_train", "x_test"):
        if kind.startswith("grey"):
            stored[key] = stored[key][..., :1] if "channel" in kind else stored[key][..., 0]
        elif kind in ("float", "double"):
            stored[key] = (stored[key] / 255).astype(np.float32 if kind == "float" else np.float64)
    benchmark = split_npz(saved(**stored), num_steps=2, class_order=[3, 0, 2, 1])
    assert [set(one.classes_in_this_experience) for one in benchmark.train_stream] == [
        {3, 0},
        {2, 1},
    ]
    for part, stream in (("train", benchmark.train_stream), ("test", benchmark.test_stream)):
        for class_id in range(4):
            pixels = stored[f"x_{part}"][stored[f"y_{part}"] == class_id].astype(np.float64)
            unit = pixels if kind in ("float", "double") else pixels / 255
            if kind.startswith("grey"):
                unit = np.stack([unit.reshape(-1, 6, 6)] * 3, axis=-1)  # three equal channels
            np.testing.assert_allclose(
                images_of(stream, class_id), np.moveaxis(unit, 3, 1) * 2 - 1, atol=1e-6
            )
    assert benchmark.image_shape == (3, 6, 6)


def test_oblong_images_need_a_size(saved):
    oblong = {"x_train": np.zeros((12, 6, 8), np.uint8), "x_test": np.zeros((4, 6, 8), np.uint8)}
    with pytest.raises(
        ValueError, match=r"not square, \(width, height\) \(8, 6\). Name an image_size"
    ):
        split_npz(saved(**oblong), num_steps=2)
    assert split_npz(saved(**oblong), num_steps=2, image_size=5).train_stream[0].dataset[0][
        0
    ].shape == (3, 5, 5)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"y_test": None, "x_test": None}, "lacks x_test, y_test; it holds x_train, y_train."),
        (
            {"x_train": np.zeros((12, 3, 6, 6), np.uint8)},
            "x_train has shape (12, 3, 6, 6); needed is (n, h, w, 3) or (n, h, w).",
        ),
        (
            {"x_train": np.zeros((12, 6), np.uint8)},
            "x_train has shape (12, 6); needed is (n, h, w, 3) or (n, h, w).",
        ),
        (
            {"x_train": np.zeros((0, 6, 6), np.uint8)},
            "x_train has shape (0, 6, 6); needed is (n, h, w, 3) or (n, h, w).",
        ),
        (
            {"x_train": np.zeros((12, 6, 6), np.int64)},
            "x_train is int64; needed is uint8, or float in [0, 1].",
        ),
        (
            {"x_test": np.full((4, 6, 6), 2.0)},
            "x_test is float64 from 2.0 to 2.0; float pixels must be in [0, 1].",
        ),
        (
            {"x_test": np.full((4, 6, 6), -0.1)},
            "x_test is float64 from -0.1 to -0.1; float pixels must be in [0, 1].",
        ),
        (
            {"x_test": np.full((4, 6, 6), np.nan)},
            "x_test is float64 from nan to nan; float pixels must be in [0, 1].",
        ),
        (
            {"x_test": np.zeros((4, 5, 6), np.uint8)},
            "x_train holds images of (6, 6), x_test of (6, 5) (width, height).",
        ),
        (
            {"y_train": np.array([0, 1, 3] * 4)},
            "labels must be 0, 1, 2, … without a gap: y_train holds 3 where 2 should follow.",
        ),
        (
            {"y_train": np.array([0, 1, -1] * 4)},
            "labels must be 0, 1, 2, … without a gap: y_train holds -1 where 0 should follow.",
        ),
        (
            {"y_train": np.array([0, 10**12] * 6)},
            "labels must be 0, 1, 2, … without a gap: y_train holds 1000000000000 where 1 "
            "should follow.",
        ),
        (
            {"y_train": np.zeros(12)},
            "y_train is float64 of shape (12,); needed is an integer for each of the 12 images of x_train.",
        ),
        (
            {"y_train": np.zeros(11, int)},
            "y_train is int64 of shape (11,); needed is an integer for each of the 12 images of x_train.",
        ),
        (
            {"y_test": np.zeros((4, 1), int)},
            "y_test is int64 of shape (4, 1); needed is an integer for each of the 4 images of x_test.",
        ),
        (
            {"y_test": np.array([0, 1, 2, 4])},
            "labels 3, 4 are in one of y_train and y_test only; every class needs images in both.",
        ),
        (
            {"y_test": np.array([0, 1, 1, 0])},
            "labels 2, 3 are in one of y_train and y_test only; every class needs images in both.",
        ),
        (
            {"class_names": np.array(["ant", "bee"])},
            "class_names is <U3 of shape (2,); needed are 4 strings, one per class.",
        ),
        (
            {"class_names": np.arange(4)},
            "class_names is int64 of shape (4,); needed are 4 strings, one per class.",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(saved, changes, message):
    path = saved(**changes)
    with pytest.raises(ValueError) as error:
        split_npz(path, num_steps=2)
    assert str(error.value) == f"{path}: {message}"


def test_pickled_objects_are_refused(saved, tmp_path):
    hostile = np.empty(12, dtype=object)
    path = saved(y_train=hostile)
    with pytest.raises(
        ValueError, match="y_train cannot be read as a plain array; pickled objects are refused"
    ):
        split_npz(path, num_steps=2)
    (tmp_path / "pickle.npz").write_bytes(hostile.dumps())
    with pytest.raises(ValueError, match="pickle.npz: not an npz file of plain arrays"):
        split_npz(tmp_path / "pickle.npz", num_steps=2)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "not an npz file"),
        (b"PK\x03\x04 cut", "not an npz file"),
        (None, "holds a single array"),
    ],
)
def test_a_file_that_is_no_npz_is_refused(tmp_path, content, message):
    path = tmp_path / "images.npz"
    if content is None:
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        split_npz(path, num_steps=2)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_is_named_with_what_it_should_hold(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"none.npz. Expected is an npz file with x_train, y_train, x_test, y_test",
    ):
        split_npz(tmp_path / "none.npz", num_steps=2)
    with pytest.raises(ValueError, match="root must name the npz file, got None"):
        split_npz(num_steps=2)
    with pytest.raises(
        ValueError, match="download=True is for CIFAR-100 only: an npz file must be on disk"
    ):
        split_npz(tmp_path / "none.npz", num_steps=2, download=True)


def rewritten(path, key, change):
    """The file with the bytes of one array changed."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members[f"{key}.npy"] = change(members[f"{key}.npy"])
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.replace(b"(12, 6, 6, 3), }        ", b"(9999999, 99999, 3, 3),}"),
        lambda held: held[:-7],
        lambda held: held[:20],
        lambda held: b"",
        lambda held: held[:6] + b"\x07\x00" + held[8:],
        lambda held: held.replace(b"(12, 6, 6, 3)", b"(-2, 6,-6, 3)"),
    ],
)
def test_a_header_that_the_file_does_not_bear_out_is_refused(saved, change):
    path = saved()
    rewritten(path, "x_train", change)
    with pytest.raises(ValueError, match="x_train cannot be read") as error:
        split_npz(path, num_steps=2)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


def test_an_array_larger_than_memory_is_refused_before_it_is_read(saved, monkeypatch):
    path = saved()
    pages = os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(os, "sysconf", lambda name: 1 if name == "SC_PHYS_PAGES" else pages // 4)
    monkeypatch.setattr(npy, "read_array", lambda *_, **__: pytest.fail("an array was read"))
    with pytest.raises(ValueError, match="its arrays take .* GB; this machine has"):
        split_npz(path, num_steps=2)


def test_damage_anywhere_is_one_line_with_the_name(saved):
    """A compressed file with four bytes overwritten at many places: read as it was, or refused."""
    path = Path(saved())
    with np.load(path) as held:
        before = dict(held)
        np.savez_compressed(path, **held)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole) - 4, max(1, len(whole) // 150)):
        path.write_bytes(whole[:place] + b"\xff\x00\xa5\x5a" + whole[place + 4 :])
        try:
            found = load_npz(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
            refused += 1
        else:
            assert all(np.array_equal(found[key], before[key]) for key in found)
    assert refused > 75


@pytest.mark.parametrize("name", ["", "a\rb", "b\x00c", "b"])
def test_class_names_that_would_not_survive_are_refused(saved, name):
    with pytest.raises(ValueError, match="class_names holds .*unique, not empty and without"):
        split_npz(saved(class_names=np.array(["a", "b", "c", name])), num_steps=2)
