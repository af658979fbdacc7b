"""Data sets under the benchmarks: all images in one tensor, or paths read on demand. Items are
(image, class id).
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.pool import ThreadPool

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from avalanche_hfc.benchmarks._by_class import positions_by_class
from avalanche_hfc.benchmarks._decode import read_image
from avalanche_hfc.benchmarks._npz import check_targets
from avalanche_hfc.benchmarks._records import Records
from avalanche_hfc.benchmarks.transforms import IMAGENET, Statistics


class TensorImages(Dataset):
    """Images in one tensor, uint8 or float in [0, 1]. Items hold tensors (c, h, w) or, with
    `as_pil`, what timm's augmentations need.
    """

    as_pil = False

    def __init__(
        self,
        images: UInt8[Tensor, "n c h w"] | Float[Tensor, "n c h w"],
        targets: Integer[np.ndarray, "n"],
    ):
        self.images = images
        self.targets = targets.tolist()  # a list: Avalanche reads it one by one
        self.sizes = {(images.shape[3], images.shape[2])}  # (width, height), as in PIL
        self.tensors = (
            images,
            torch.from_numpy(targets).long(),
        )  # where `PositionDataset` looks up a whole batch

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def gives_tensors(self) -> bool:
        """Whether samples are rows of `tensors`, for `PositionDataset`; labels are numbers."""
        return not self.as_pil

    def __getitem__(self, position: int) -> tuple[Tensor | Image.Image, int]:
        image = self.images[position]
        return Image.fromarray(
            image.permute(1, 2, 0).numpy()
        ) if self.as_pil else image, self.targets[position]

    def subset(self, positions: Integer[np.ndarray, "k"]) -> "TensorImages":
        """The images at these positions, in this order."""
        return TensorImages(
            self.images[torch.from_numpy(positions)], np.asarray(self.targets)[positions]
        )

    def with_targets(self, targets: Integer[np.ndarray, "n"]) -> "TensorImages":
        """The same images with other class ids."""
        return TensorImages(self.images, targets)


class FileImages(Dataset):
    """Images in files, read when asked for; items hold PIL images in RGB. `upright` obeys the
    orientation a camera noted (EXIF).
    """

    def __init__(
        self, paths: list[str], targets: list[int], sizes: set[tuple[int, int]], *, upright: bool
    ):
        self.paths, self.targets, self.sizes, self.upright = paths, targets, sizes, upright

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple:
        path = self.paths[position]
        try:
            return read_image(path, upright=self.upright), self.targets[position]
        except ValueError as error:  # checked when the benchmark was made: gone or damaged since
            raise ValueError(f"Cannot read image {path}: {error}") from error

    def subset(self, positions: Integer[np.ndarray, "k"]) -> "FileImages":
        """The images at these positions, in this order."""
        chosen = positions.tolist()
        return FileImages(
            [self.paths[p] for p in chosen],
            [self.targets[p] for p in chosen],
            self.sizes,
            upright=self.upright,
        )

    def with_targets(self, targets: Integer[np.ndarray, "n"]) -> "FileImages":
        """The same images with other class ids."""
        return FileImages(self.paths, targets.tolist(), self.sizes, upright=self.upright)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set as read, before it is split. A class id is a position in `class_names`; each has
    images in both parts.
    """

    train: TensorImages | FileImages
    test: TensorImages | FileImages
    class_names: tuple[str, ...]
    image_size: (
        int | None
    )  # side of the transformed images if the user names none; None: the user must
    num_channels: int = 3
    statistics: Statistics = IMAGENET
    records: Records = field(default_factory=dict)  # what identifies your data
    left_out: tuple[str, ...] = ()  # files that cannot be used, where that is allowed
    remarks: tuple[str, ...] = ()  # one line each, for whoever starts a run

    def __post_init__(self) -> None:
        check_targets(
            np.asarray(self.train.targets), np.asarray(self.test.targets), len(self.class_names)
        )


class JoinedImages(FileImages):
    """Images of any form and, behind them, images in files; the class ids of these are raised by
    `offset`.
    """

    def __init__(
        self,
        first: TensorImages | FileImages,
        second: TensorImages | FileImages,
        offset: int,
        *,
        grey: bool,
    ):
        targets = [*first.targets, *(target + offset for target in second.targets)]
        super().__init__([], targets, first.sizes | second.sizes, upright=True)
        self.first, self.second, self.grey = first, second, grey

    def __getitem__(self, position: int) -> tuple:
        start = len(self.first)
        if position < start:
            return self.first[position]
        image = self.second[position - start][0]
        return image.convert("L") if self.grey else image, self.targets[position]


def first_of_each_class(source: Source, num_train: int | None, num_test: int | None) -> Source:
    """The first images of each class, in the order of the data, class after class. None: all, as
    they stand.
    """
    train = source.train if num_train is None else _first(source.train, num_train, "training")
    return replace(
        source,
        train=train,
        test=source.test if num_test is None else _first(source.test, num_test, "test"),
    )


def _first(images: TensorImages | FileImages, count: int, part: str) -> TensorImages | FileImages:
    groups = _by_class(images, count, f"{count} {part} images of each class are asked for")
    return images.subset(np.concatenate([group[:count] for group in groups]))


def listing_digest(parts: Sequence[TensorImages | FileImages]) -> str:
    """The sha256 over the class id of each image and, where it is in a file, path and size of the
    file. No image is read. Paths count from the folder that all files have in common.

    Args:
        parts: The training and the test images.

    Raises:
        OSError: If a file is gone.
    """
    digest = hashlib.sha256()
    held = [part.paths if isinstance(part, FileImages) else [] for part in parts]
    files = [path for paths in held for path in paths]
    root = os.path.commonpath([min(files), max(files)]) if files else ""
    with ThreadPool() as pool:  # waits for the disk in parallel
        sizes = iter(pool.map(os.path.getsize, files, chunksize=64))
    for part, paths in zip(parts, held, strict=True):
        digest.update(repr((len(part), len(paths))).encode())
        digest.update(np.asarray(part.targets, dtype=np.int64).tobytes())
        for path in paths:
            digest.update(repr((path[len(root) :], next(sizes))).encode())
    return digest.hexdigest()


def _by_class(images: TensorImages | FileImages, least: int, said: str) -> list[np.ndarray]:
    """The positions of each class, in the order of the data. A class with fewer than `least` is a
    ValueError that begins with `said`.
    """
    targets = np.asarray(images.targets)
    sizes = np.bincount(targets)
    short = np.flatnonzero(sizes < least)
    if len(short):
        raise ValueError(f"{said}; class {short[0]} has {sizes[short[0]]}.")
    return positions_by_class(targets, len(sizes))


def of_classes(source: Source, class_ids: Sequence[int]) -> Source:
    """The images of some classes, which get the ids 0, 1, … in the order given."""
    new_ids = np.full(len(source.class_names), -1)
    new_ids[list(class_ids)] = np.arange(len(class_ids))

    def chosen(images: TensorImages | FileImages) -> TensorImages | FileImages:
        targets = new_ids[images.targets]
        kept = np.flatnonzero(targets >= 0)
        return images.subset(kept).with_targets(targets[kept])

    return replace(
        source,
        train=chosen(source.train),
        test=chosen(source.test),
        class_names=tuple(source.class_names[class_id] for class_id in class_ids),
    )


def hold_out(source: Source, count: int) -> Source:
    """The last `count` training images of each class as test images, the others as training images;
    the test images of the source are left out.
    """
    said = f"{count} training images of each class are to be held out and one is needed to train"
    groups = _by_class(source.train, count + 1, said)
    return replace(
        source,
        train=source.train.subset(np.concatenate([group[:-count] for group in groups])),
        test=source.train.subset(np.concatenate([group[-count:] for group in groups])),
    )
