"""Data sets that fit in memory: digits, CIFAR-100, npz files."""

from pathlib import Path

import numpy as np
import torch
from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
from sklearn.datasets import load_digits
from torch import Tensor
from torchvision.datasets import CIFAR100 as TorchvisionCIFAR100

from avalanche_hfc.benchmarks._images import Source, TensorImages
from avalanche_hfc.benchmarks._npz import load_npz, npz_class_names, npz_records
from avalanche_hfc.benchmarks._tree import is_test
from avalanche_hfc.benchmarks.transforms import CIFAR100


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
    """The images of an npz file; see `load_npz` for what it must hold."""
    arrays = load_npz(path)
    train, test = (
        TensorImages(pixel_tensor(arrays[f"x_{part}"]), arrays[f"y_{part}"])
        for part in ("train", "test")
    )
    width, height = train.sizes.copy().pop()
    return Source(
        train=train,
        test=test,
        class_names=npz_class_names(arrays),
        image_size=width if width == height else None,
        records=npz_records(arrays),
    )


def pixel_tensor(pixels: np.ndarray) -> Tensor:
    """(n, 3, h, w), uint8 or float32. Grey images become RGB without a copy."""
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8:
        pixels = pixels.astype(np.float32)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).expand(-1, 3, -1, -1)
