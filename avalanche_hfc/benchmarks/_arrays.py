"""Data sets that fit in memory: digits, CIFAR-100, npz files."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
from jaxtyping import Integer
from numpy.lib.npyio import NpzFile
from sklearn.datasets import load_digits
from torch import Tensor
from torchvision.datasets import CIFAR100 as TorchvisionCIFAR100

from avalanche_hfc.benchmarks._images import Source, TensorImages, is_test
from avalanche_hfc.benchmarks.transforms import CIFAR100

NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_digits() -> Source:
    pixels, targets = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 16  # stored as 0 to 16
    test = np.zeros(len(targets), dtype=bool)
    for class_id in range(10):
        of_class = np.flatnonzero(targets == class_id)
        test[of_class] = is_test(len(of_class))
    parts = [TensorImages(images[torch.from_numpy(part)], targets[part]) for part in (~test, test)]
    return Source(
        train=parts[0], test=parts[1], class_names=tuple("0123456789"), image_size=8, num_channels=1
    )


def read_cifar100(root: Path | str | None, *, download: bool) -> Source:
    """torchvision reads the official pickles, and only after their md5 sums agree."""
    folder = Path(root) if root is not None else default_dataset_location("cifar100")
    try:
        train, test = (
            TorchvisionCIFAR100(folder, train=part, download=download) for part in (True, False)
        )
    except RuntimeError as error:
        raise _missing_cifar100(folder) from error
    parts = [
        TensorImages(torch.from_numpy(part.data).permute(0, 3, 1, 2), np.array(part.targets))
        for part in (train, test)
    ]
    return Source(
        train=parts[0],
        test=parts[1],
        class_names=tuple(train.classes),
        image_size=32,
        statistics=CIFAR100,
    )


def _missing_cifar100(folder: Path) -> Exception:
    files = [folder / TorchvisionCIFAR100.base_folder / name for name in ("train", "test", "meta")]
    archive = TorchvisionCIFAR100.filename
    get = (
        f"split_cifar100(download=True) fetches {TorchvisionCIFAR100.url}, or unpacks {archive} "
        f"if that is in {folder}."
    )
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        return FileNotFoundError(
            f"CIFAR-100 is not on disk: looked for {', '.join(missing)}. {get}"
        )
    return ValueError(
        f"CIFAR-100 in {files[0].parent} is damaged: the md5 sum of a file is not the "
        f"official one. Delete the folder. {get}"
    )


def read_npz(path: Path | str) -> Source:
    try:
        arrays = _load_npz(Path(path))
        parts = [
            TensorImages(_pixels(arrays, f"x_{part}"), _labels(arrays, part))
            for part in ("train", "test")
        ]
        if parts[0].sizes != parts[1].sizes:
            raise ValueError(
                f"x_train holds images of {parts[0].sizes}, x_test of {parts[1].sizes} "
                "(width, height)."
            )
        width, height = parts[0].sizes.copy().pop()
        image_size = width if width == height else None
        return Source(
            train=parts[0], test=parts[1], class_names=_class_names(arrays), image_size=image_size
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(
            f"No file {path}. split_npz reads an npz file with {', '.join(NPZ_KEYS)} and, if "
            "wanted, class_names."
        )
    with _open_npz(path, NPZ_KEYS) as file:
        return {key: _read_array(file, key) for key in (*NPZ_KEYS, "class_names") if key in file}


def _open_npz(path: Path, needed: tuple[str, ...]) -> NpzFile:
    """An npz file that holds the arrays needed, open for reading."""
    try:
        file = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"not an npz file of plain arrays ({error})") from error
    if isinstance(file, np.ndarray):
        raise ValueError(f"holds a single array; needed are {', '.join(needed)}.")
    missing = [key for key in needed if key not in file]
    if missing:
        held = ", ".join(file) or "nothing"
        file.close()
        raise ValueError(f"lacks {', '.join(missing)}; it holds {held}.")
    return file


def _read_array(file: NpzFile, key: str) -> np.ndarray:
    try:
        return file[key]
    except (ValueError, EOFError, BadZipFile) as error:
        raise ValueError(
            f"{key} cannot be read as a plain array; pickled objects are refused ({error})."
        ) from error


def _pixels(arrays: dict[str, np.ndarray], key: str) -> Tensor:
    """(n, 3, h, w), uint8 or float32. Grey images become RGB without a copy."""
    pixels = arrays[key]
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[3] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(
            f"{key} has shape {arrays[key].shape}; needed is (n, h, w, 3) or (n, h, w)."
        )
    if np.issubdtype(pixels.dtype, np.floating):
        if not (pixels.min() >= 0 and pixels.max() <= 1):  # false for NaN, too
            raise ValueError(
                f"{key} is {pixels.dtype} from {pixels.min()} to {pixels.max()}; float "
                "pixels must be in [0, 1]."
            )
        pixels = pixels.astype(np.float32)
    elif pixels.dtype != np.uint8:
        raise ValueError(f"{key} is {pixels.dtype}; needed is uint8, or float in [0, 1].")
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).expand(-1, 3, -1, -1)


def _labels(arrays: dict[str, np.ndarray], part: str) -> Integer[np.ndarray, "n"]:
    labels, num_images = arrays[f"y_{part}"], len(arrays[f"x_{part}"])
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"y_{part} is {labels.dtype}; labels must be integers.")
    if labels.shape != (num_images,):
        raise ValueError(
            f"y_{part} has shape {labels.shape} for the {num_images} images of x_{part}; one "
            "label per image is needed."
        )
    return labels


def _class_names(arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
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
    return tuple(names.tolist())
