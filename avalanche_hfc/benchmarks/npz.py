"""An npz file of images as numpy arrays: read without pickle, checked before memory is taken. No
torch.
"""

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from avalanche_hfc._names import shortened
from avalanche_hfc.benchmarks.files import FileRecord, is_strange

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
    with named(path):
        arrays = _load(path, NPZ_KEYS, ("class_names",))
        check_arrays(arrays)
    return arrays


def load_pixels(path: Path | str) -> tuple[np.ndarray, list[str]]:
    """x_train of a file that needs no labels, and the names of the other arrays.

    Args:
        path: The npz file.

    Raises:
        ValueError: As `load_npz` does.
    """
    with named(path):
        arrays = _load(path, ("x_train",))
        _check_pixels(arrays, "x_train")
        with np.load(path, allow_pickle=False) as archive:
            names = [name for name in archive.files if name != "x_train"]
    return arrays["x_train"], names


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Put the path of a file in front of what is wrong with it."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"No file {path}. Expected is an npz file with {', '.join(NPZ_KEYS)} and, optionally, "
            "class_names."
        )
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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
    with named(path):
        labels = _load(path, ("y_train",))["y_train"]
        if not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1 or not labels.size:
            raise ValueError(f"y_train is {labels.dtype} of shape {labels.shape}, not labels.")
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts), int(counts.min())


def _load(
    path: Path | str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Arrays of a file by name. What would not fit into memory is not read."""
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged file may raise errors of any kind
        raise ValueError(f"not an npz file of plain arrays ({_first_line(error)})") from error
    if not isinstance(archive, NpzFile):
        raise ValueError(f"holds a single array; needed are {', '.join(needed)}.")
    with archive:
        missing = [key for key in needed if key not in archive]
        if missing:
            held = ", ".join(archive) or "nothing"
            raise ValueError(f"lacks {', '.join(missing)}; it holds {held}.")
        keys = [key for key in (*needed, *optional) if key in archive]
        with zipfile.ZipFile(path) as members:
            sizes = {one.filename.removesuffix(".npy"): one.file_size for one in members.infolist()}
        size = sum(sizes[key] for key in keys)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size > memory:
            raise ValueError(
                f"its arrays take {size / 1e9:.1f} GB; this machine has {memory / 1e9:.1f} GB of "
                "memory."
            )
        return {key: _read_array(archive, key) for key in keys}


def _read_array(archive: NpzFile, key: str) -> np.ndarray:
    try:
        array = archive[key]
        if not isinstance(array, np.ndarray):
            raise ValueError("it does not begin as an array does")
    except Exception as error:  # a damaged file may raise errors of any kind
        raise ValueError(
            f"{key} cannot be read as a plain array; pickled objects are refused "
            f"({_first_line(error)})."
        ) from error
    return array


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def check_arrays(arrays: Arrays) -> None:
    """A ValueError unless images, labels and names can be trained on."""
    for part in ("train", "test"):
        _check_pixels(arrays, f"x_{part}")
        labels, num_images = arrays[f"y_{part}"], len(arrays[f"x_{part}"])
        if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (num_images,):
            raise ValueError(
                f"y_{part} is {labels.dtype} of shape {labels.shape}; needed is an integer for "
                f"each of the {num_images} images of x_{part}."
            )
    sizes = [arrays[f"x_{part}"].shape[1:3] for part in ("train", "test")]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"x_train holds images of {sizes[0][::-1]}, x_test of {sizes[1][::-1]} (width, height)."
        )
    npz_class_names(arrays)
    in_one_part = np.setxor1d(arrays["y_train"], arrays["y_test"]).tolist()
    if in_one_part:
        raise ValueError(
            f"labels {shortened(in_one_part)} are in one of y_train and y_test only; every class "
            "needs images in both."
        )


def npz_class_names(arrays: Arrays) -> tuple[str, ...]:
    """The names by class id; the ids themselves where the file has no names."""
    labels = np.unique(arrays["y_train"])
    gaps = np.flatnonzero(labels != np.arange(len(labels)))
    if len(gaps):
        raise ValueError(
            f"labels must be 0, 1, 2, … without a gap: y_train holds {labels[gaps[0]]} where "
            f"{gaps[0]} should follow."
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


def positions_by_class(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The positions of each class, in the order of the labels; sorted once for all classes.

    >>> [positions.tolist() for positions in positions_by_class(np.array([2, 0, 2]), 3)]
    [[1], [], [0, 2]]
    """
    sizes = np.bincount(labels, minlength=num_classes)
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
