"""An npz file of images as numpy arrays: read without pickle, checked before memory is taken. No
torch.
"""

import hashlib
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from avalanche_hfc._names import shortened
from avalanche_hfc.benchmarks._records import FileRecord
from avalanche_hfc.benchmarks._tree import is_strange

NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")
Arrays = Mapping[str, np.ndarray]


def load_npz(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays x_train, y_train, x_test, y_test and, if there, class_names of a file.

    Args:
        path: The npz file.

    Returns:
        The arrays by name, as stored. Images, labels and names agree with each other.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no npz file of plain arrays, would not fit into memory, or its images,
            labels or names cannot be trained on. The message begins with the path.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"No file {path}. Expected is an npz file with {', '.join(NPZ_KEYS)} and, optionally, "
            "class_names."
        )
    try:
        arrays = _load(Path(path))
        check_arrays(arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return arrays


def load_pixels(path: Path | str) -> tuple[np.ndarray, list[str]]:
    """x_train of a file that needs no labels, and the names of the other arrays.

    Args:
        path: The npz file.

    Raises:
        ValueError: As `load_npz` does.
    """
    try:
        arrays = _load(Path(path), ("x_train",), needed=("x_train",))
        _check_pixels(arrays, "x_train")
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return arrays["x_train"], [name for name in names if name != "x_train"]


def npz_records(arrays: Arrays) -> dict[str, FileRecord]:
    """What identifies each array: type, shape and content."""
    records = {}
    for name, array in arrays.items():
        digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
        digest.update(as_bytes(array))
        records[name] = FileRecord(array.nbytes, 0, digest.hexdigest())
    return records


def as_bytes(array: np.ndarray) -> memoryview:
    """The content of an array, without a copy where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def smallest_class(path: Path | str) -> tuple[int, int]:
    """(number of classes, training images of the smallest class), from the labels alone."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"No file {path}.")
    try:
        labels = _load(Path(path), ("y_train",))["y_train"]
        if not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1 or not labels.size:
            raise ValueError(f"y_train is {labels.dtype} of shape {labels.shape}, not labels.")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts), int(counts.min())


def _load(
    path: Path,
    wanted: tuple[str, ...] = (*NPZ_KEYS, "class_names"),
    needed: tuple[str, ...] = NPZ_KEYS,
) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise ValueError(f"holds a single array; needed are {', '.join(needed)}.")
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a damaged file may raise errors of any kind
        raise ValueError(f"not an npz file of plain arrays ({error})") from error
    with archive:
        held = {name.removesuffix(".npy"): name for name in archive.namelist()}
        missing = [key for key in needed if key not in held]
        if missing:
            raise ValueError(
                f"lacks {', '.join(missing)}; it holds {', '.join(held) or 'nothing'}."
            )
        keys = [key for key in wanted if key in held]
        size = sum(_checked_bytes(archive, key, held[key]) for key in keys)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size > memory:
            raise ValueError(
                f"its arrays take {size / 1e9:.1f} GB; this machine has {memory / 1e9:.1f} GB of "
                "memory."
            )
        return {key: _read_array(archive, key, held[key]) for key in keys}


def _checked_bytes(archive: zipfile.ZipFile, key: str, name: str) -> int:
    """The bytes of an array by its header, which the archive's own sizes must confirm."""
    try:
        with archive.open(name) as member:
            readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            shape, _, dtype = readers[npy.read_magic(member)](member)
            start = member.tell()
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        needed, there = math.prod(shape) * dtype.itemsize, archive.getinfo(name).file_size - start
        if any(side < 0 for side in shape) or needed != there:
            raise ValueError(f"its header asks for {needed} bytes, the file has {there}")
    except Exception as error:  # a damaged file may raise errors of any kind
        raise _not_plain(key, error) from error
    return needed


def _read_array(archive: zipfile.ZipFile, key: str, name: str) -> np.ndarray:
    try:
        with archive.open(name) as member:
            return npy.read_array(member, allow_pickle=False)
    except Exception as error:  # a damaged file may raise errors of any kind
        raise _not_plain(key, error) from error


def _not_plain(key: str, error: Exception) -> ValueError:
    return ValueError(
        f"{key} cannot be read as a plain array; pickled objects are refused ({error})."
    )


def check_arrays(arrays: Arrays) -> None:
    """A ValueError unless images, labels and names can be trained on."""
    for part in ("train", "test"):
        _check_pixels(arrays, f"x_{part}")
        _check_labels(arrays, part)
    sizes = [arrays[f"x_{part}"].shape[1:3] for part in ("train", "test")]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"x_train holds images of {sizes[0][::-1]}, x_test of {sizes[1][::-1]} (width, height)."
        )
    names = npz_class_names(arrays)
    check_targets(arrays["y_train"], arrays["y_test"], len(names))


def check_targets(train: np.ndarray, test: np.ndarray, num_classes: int) -> None:
    """A ValueError unless the labels are class ids and each class has images in both parts."""
    known = set(range(num_classes))
    for name, labels in (("training", train), ("test", test)):
        met = set(np.unique(labels).tolist())
        if met - known:
            raise ValueError(
                f"The {name} images have labels {shortened(sorted(met - known))}; class ids are 0 "
                f"to {num_classes - 1}."
            )
        if known - met:
            raise ValueError(
                f"No {name} image for class ids {shortened(sorted(known - met))} of "
                f"{num_classes}. Every class needs one."
            )


def npz_class_names(arrays: Arrays) -> tuple[str, ...]:
    """The names by class id; the ids themselves where the file has no names."""
    labels = np.unique(arrays["y_train"])
    for expected, label in enumerate(labels):
        if label != expected:
            raise ValueError(
                f"labels must be 0, 1, 2, … without a gap: y_train holds {label} where "
                f"{expected} should follow."
            )
    if "class_names" not in arrays:
        return tuple(str(label) for label in labels)
    names = arrays["class_names"]
    if names.dtype.kind != "U" or names.shape != labels.shape:
        raise ValueError(
            f"class_names is {names.dtype} of shape {names.shape}; needed are {len(labels)} "
            "strings, one per class."
        )
    class_names = tuple(names.tolist())
    for name in class_names:
        if not name or is_strange(name) or class_names.count(name) > 1:
            raise ValueError(
                f"class_names holds {name!r}; names must be unique, not empty and without control "
                "characters."
            )
    return class_names


def _check_pixels(arrays: Arrays, key: str) -> None:
    pixels = arrays[key]
    if pixels.ndim not in (3, 4) or (*pixels.shape, 1)[3] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(f"{key} has shape {pixels.shape}; needed is (n, h, w, 3) or (n, h, w).")
    if np.issubdtype(pixels.dtype, np.floating):
        if not (pixels.min() >= 0 and pixels.max() <= 1):  # false for NaN, too
            raise ValueError(
                f"{key} is {pixels.dtype} from {pixels.min()} to {pixels.max()}; float "
                "pixels must be in [0, 1]."
            )
    elif pixels.dtype != np.uint8:
        raise ValueError(f"{key} is {pixels.dtype}; needed is uint8, or float in [0, 1].")


def _check_labels(arrays: Arrays, part: str) -> None:
    labels, num_images = arrays[f"y_{part}"], len(arrays[f"x_{part}"])
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"y_{part} is {labels.dtype}; labels must be integers.")
    if labels.shape != (num_images,):
        raise ValueError(
            f"y_{part} has shape {labels.shape} for the {num_images} images of x_{part}; one "
            "label per image is needed."
        )
