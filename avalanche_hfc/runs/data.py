"""The benchmark of a recipe, from where the user keeps the data."""

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from PIL import Image

from avalanche_hfc._names import lookup
from avalanche_hfc.benchmarks import split_cifar100, split_digits, split_folder, split_imagenet100, split_imagenet1000, split_npz
from avalanche_hfc.benchmarks._arrays import read_npz
from avalanche_hfc.benchmarks._images import Source, TensorImages
from avalanche_hfc.benchmarks._plan import Plan, make_benchmark
from avalanche_hfc.benchmarks.transforms import CIFAR100
from avalanche_hfc.recipes import DataRecipe, Recipe

SPLITS: dict[str, Callable[..., Any]] = {
    "cifar100": split_cifar100,
    "imagenet100": split_imagenet100,
    "imagenet1000": split_imagenet1000,
    "digits": split_digits,
    "npz": split_npz,
    "folder": split_folder,
}
PACKED = "cifar100_subset.npz"
SIDE = 32  # px of CIFAR


def build_benchmark(recipe: Recipe, seed: int, data_root: Path | str | None = None) -> Any:
    """Steps, order and transforms of the recipe over the data in `data_root` (None: Avalanche's own folder for data).

    CIFAR-100 at the scale small may also be an npz file: in the layout of `split_npz`, or packed: for each class two
    lossless WebP strips, 32 px wide (training images stacked, then test images), in `bytes` cut at `offsets`, and `class_names`.
    """
    data = recipe.data
    if data.dataset == "cifar100" and recipe.scale != "paper":
        file = cifar_file(data_root)
        if file is not None:
            return make_benchmark(read_cifar_file(file), plan_of(data, seed))
    split = lookup(SPLITS, data.dataset, "data set")
    root = {} if data_root is None or data.dataset == "digits" else {"root": Path(data_root)}
    try:
        return split(**root, seed=seed, **arguments(data))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} {how_to(recipe)}") from error


def arguments(data: DataRecipe) -> dict[str, Any]:
    """What all splits take."""
    return dict(
        num_steps=data.num_steps,
        base_fraction=data.base_fraction,
        class_order=data.class_order,
        transforms=data.transforms,
        image_size=data.image_size,
    )


def plan_of(data: DataRecipe, seed: int) -> Plan:
    """How the classes of CIFAR-100 are dealt out, checked without the images."""
    return Plan(**arguments(data), seed=seed, num_classes=100, paper_order="cifar100-a")


def how_to(recipe: Recipe) -> str:
    if recipe.data.dataset == "cifar100" and recipe.scale != "paper":
        return f"Or name an npz file: with x_train, y_train, x_test, y_test, or packed ({PACKED})."
    return f"Name the folder that holds the data of {recipe.name}."


def cifar_file(root: Path | str | None) -> Path | None:
    """The npz file that is meant; None where `root` is, or may hold, the official files."""
    if root is None:
        return None
    path = Path(root)
    if path.is_file() or path.suffix == ".npz":
        return path
    return path / PACKED if (path / PACKED).is_file() else None


def read_cifar_file(path: Path) -> Source:
    """Images of an npz file in either layout, with CIFAR's statistics."""
    if not path.is_file():
        raise FileNotFoundError(f"No file {path}. Needed is an npz file with x_train, y_train, x_test, y_test, or packed ({PACKED}).")
    try:
        with np.load(path, allow_pickle=False) as file:
            packed = {key: file[key] for key in ("bytes", "offsets", "class_names")} if "bytes" in file else None
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is not an npz file of images: {error}") from error
    if packed is None:
        source = read_npz(path)
        return Source(
            train=source.train, test=source.test, class_names=source.class_names, image_size=source.image_size, statistics=CIFAR100
        )
    parts = [_images(strips) for strips in _strips(path, packed)]
    return Source(train=parts[0], test=parts[1], class_names=tuple(packed["class_names"].tolist()), image_size=SIDE, statistics=CIFAR100)


def _strips(path: Path, packed: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Training and test images of each class: two lossless strips per class, 32 px wide, one behind the other."""
    raw, ends = packed["bytes"].tobytes(), packed["offsets"].tolist()
    if len(ends) != 2 * len(packed["class_names"]) + 1 or ends[-1] != len(raw):
        raise ValueError(f"{path}: offsets must cut bytes into two strips for each of {len(packed['class_names'])} classes.")
    strips = [np.asarray(Image.open(io.BytesIO(raw[a:b])).convert("RGB")).reshape(-1, SIDE, SIDE, 3) for a, b in pairwise(ends)]
    return strips[0::2], strips[1::2]


def _images(strips: list[np.ndarray]) -> TensorImages:
    targets = np.repeat(np.arange(len(strips)), [len(strip) for strip in strips])
    return TensorImages(torch.from_numpy(np.concatenate(strips)).permute(0, 3, 1, 2), targets)
