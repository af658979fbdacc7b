"""Data sets as read, before they are split: images in one tensor, or in files that are read on
demand. Items are (image, class id).
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch
from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
from jaxtyping import Float, Integer, UInt8
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets import CIFAR100 as TorchvisionCIFAR100

from avalanche_hfc._names import counted, shortened
from avalanche_hfc.benchmarks.check import DataCheck, check_folder
from avalanche_hfc.benchmarks.files import (
    FileRecord,
    Records,
    class_folders,
    is_test,
    read_image,
    scan_part,
)
from avalanche_hfc.benchmarks.npz import (
    load_npz,
    npz_class_names,
    npz_records,
    positions_by_class,
)
from avalanche_hfc.benchmarks.orders import imagenet_synsets
from avalanche_hfc.benchmarks.transforms import CIFAR100, IMAGENET, Statistics

FOLDER_IMAGE_SIZE = 224
JPEG_END = b"\xff\xd9"


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
        # where `PositionDataset` looks up a whole batch
        self.tensors = (images, torch.from_numpy(targets).long())

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def gives_tensors(self) -> bool:
        """Whether samples are rows of `tensors`, for `PositionDataset`; labels are numbers."""
        return not self.as_pil

    def __getitem__(self, position: int) -> tuple[Tensor | Image.Image, int]:
        image = self.images[position]
        if self.as_pil:
            return Image.fromarray(image.permute(1, 2, 0).numpy()), self.targets[position]
        return image, self.targets[position]

    def subset(
        self, positions: Integer[np.ndarray, "k"], new_ids: Integer[np.ndarray, "C"] | None = None
    ) -> "TensorImages":
        """The images at these positions, in this order; class ids as `new_ids` maps them."""
        targets = np.asarray(self.targets)[positions]
        ids = targets if new_ids is None else new_ids[targets]
        return TensorImages(self.images[torch.from_numpy(positions)], ids)


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

    def subset(
        self, positions: Integer[np.ndarray, "k"], new_ids: Integer[np.ndarray, "C"] | None = None
    ) -> "FileImages":
        """The images at these positions, in this order; class ids as `new_ids` maps them."""
        targets = np.asarray(self.targets)[positions]
        ids = targets if new_ids is None else new_ids[targets]
        paths = [self.paths[position] for position in positions.tolist()]
        return FileImages(paths, ids.tolist(), self.sizes, upright=self.upright)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set as read, before it is split. A class id is a position in `class_names`; each has
    images in both parts.
    """

    train: TensorImages | FileImages
    test: TensorImages | FileImages
    class_names: tuple[str, ...]
    image_size: int | None  # of the transformed images by default; None: the user must name one
    num_channels: int = 3
    statistics: Statistics = IMAGENET
    records: Records = field(default_factory=dict)  # what identifies your data
    left_out: tuple[str, ...] = ()  # files that cannot be used, where that is allowed
    remarks: tuple[str, ...] = ()  # one line each, for whoever starts a run


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
        return images.subset(np.flatnonzero(new_ids[images.targets] >= 0), new_ids)

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


def read_digits() -> Source:
    pixels, targets = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 16  # stored as 0 to 16
    test = np.zeros(len(targets), dtype=bool)
    for class_id in range(10):
        of_class = np.flatnonzero(targets == class_id)
        test[of_class] = is_test(len(of_class))
    everything = TensorImages(images, targets)
    return Source(
        train=everything.subset(np.flatnonzero(~test)),
        test=everything.subset(np.flatnonzero(test)),
        class_names=tuple("0123456789"),
        image_size=8,
        num_channels=1,
    )


def read_cifar100(root: Path | str | None, *, download: bool) -> Source:
    """torchvision reads the official pickles, and only after their md5 sums agree."""
    folder = download_cifar100(root) if download else cifar100_folder(root)
    try:
        train, test = (TorchvisionCIFAR100(folder, train=part) for part in (True, False))
    except RuntimeError as error:
        raise FileNotFoundError(
            f"CIFAR-100 is not on disk: looked for {folder / TorchvisionCIFAR100.base_folder}; or "
            "a file there is damaged, its md5 sum is not the official one. download=True fetches "
            f"{TorchvisionCIFAR100.url}, or unpacks {TorchvisionCIFAR100.filename} if that is in "
            f"{folder}."
        ) from error
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


def cifar100_folder(root: Path | str | None) -> Path:
    """Where CIFAR-100 is: by default in Avalanche's folder for data."""
    return Path(default_dataset_location("cifar100") if root is None else root)


def download_cifar100(root: Path | str | None = None) -> Path:
    """Download CIFAR-100 with its md5 sums checked; files that are there are only checked.

    Args:
        root: Where to put it. By default Avalanche's folder for data, where `split_cifar100` and
            the recipes look for it.

    Returns:
        The folder to give as `root` or `--data`.

    Raises:
        ConnectionError: If it cannot be downloaded, or the sum is wrong.
    """
    folder = cifar100_folder(root)
    try:
        TorchvisionCIFAR100(folder, download=True)
    except (OSError, RuntimeError) as error:  # of the network; of a sum that is wrong
        why = str(error).splitlines()[0].rstrip(".")
        raise ConnectionError(
            f"CIFAR-100 cannot be downloaded from {TorchvisionCIFAR100.url} ({why}). Put "
            f"{TorchvisionCIFAR100.filename} into {folder} and use the same command: it is checked "
            "and unpacked."
        ) from error
    return folder


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


def read_folder(
    root: Path | str,
    *,
    skip_bad: bool = False,
    known: Mapping[str, FileRecord] | None = None,
) -> Source:
    """The images of your folder; see `check_folder` for the arguments."""
    checked = check_folder(root, skip_bad=skip_bad, known=known)
    checked.raise_if_stopped()
    parts = [
        FileImages(
            [os.path.join(root, name) for images in classes.values() for name in images],
            [class_id for class_id, name in enumerate(classes) for _ in classes[name]],
            {checked.records[name][3:] for images in classes.values() for name in images},
            upright=True,
        )
        for classes in (checked.train, checked.test)
    ]
    return Source(
        train=parts[0],
        test=parts[1],
        class_names=checked.class_names,
        image_size=FOLDER_IMAGE_SIZE,
        records=checked.records,
        left_out=checked.left_out,
        remarks=tuple(_remarks(checked)),
    )


def _remarks(checked: DataCheck) -> Iterator[str]:
    if checked.junk:
        files = counted(len(checked.junk), "file")
        yield f"Skipped: {files} left behind by programs or hidden."
    if checked.left_out:
        yield f"Left out: {counted(len(checked.left_out), 'bad file')}; recipe.json names each."
    notes = sum(len(finding.where) for finding in checked.findings if not finding.bad)
    if notes:
        yield f"{counted(notes, 'remark')} on the images: see `hfc data check {checked.path}`."


def read_imagenet(root: Path | str | None, synsets: tuple[str, ...]) -> Source:
    """ILSVRC 2012 in train/<synset>/ and val/<synset>/; other things in `root` are not looked at.
    Orientation as stored, as is usual.
    """
    folder = Path(root) if root is not None else default_dataset_location("imagenet")
    parts = [folder / name for name in ("train", "val")]
    missing = [str(part) for part in parts if not part.is_dir()]
    if missing:
        raise FileNotFoundError(
            f"ImageNet is not on disk: looked for {' and '.join(missing)}. Get ILSVRC 2012 from "
            "https://image-net.org (needs an account) "
            "and unpack it as train/<synset>/*.JPEG and val/<synset>/*.JPEG."
        )
    train, test = (_synset_images(part, synsets) for part in parts)
    return Source(train=train, test=test, class_names=synsets, image_size=FOLDER_IMAGE_SIZE)


def _synset_images(folder: Path, synsets: tuple[str, ...]) -> FileImages:
    present = class_folders(folder)
    if present not in (sorted(synsets), sorted(imagenet_synsets())):
        missing = sorted(set(synsets).difference(present))
        unexpected = sorted(set(present).difference(synsets))
        raise ValueError(
            f"{folder} must hold the {len(synsets)} synset folders {synsets[0]} to {synsets[-1]} "
            f"of ImageNet, missing: {shortened(missing, 5) or 'none'}; unexpected: "
            f"{shortened(unexpected, 5) or 'none'}. The paper's ImageNet-100 is the first 100 "
            "synsets; for another choice, such as LUCIR's, use split_folder."
        )
    tree = scan_part(folder, synsets)
    classes = tree.parts[""]
    bad = sorted(name for names in tree.bad.values() for name in names)
    empty = [name for name in synsets if not classes[name]]
    if bad or empty:
        raise ValueError(
            f"{folder} holds files that are no images: {shortened(bad, 5) or 'none'}; classes "
            f"without an image: {shortened(empty) or 'none'}."
        )
    paths = [os.path.join(folder, name) for images in classes.values() for name in images]
    targets = [class_id for class_id, name in enumerate(synsets) for _ in classes[name]]
    return FileImages(paths, targets, _checked_sizes(paths), upright=False)


def _checked_sizes(paths: list[str]) -> set[tuple[int, int]]:
    """The (width, height) met; every unreadable image is named."""
    with ThreadPool() as pool:  # waits for the disk in parallel
        results = pool.map(_size_or_fault, paths, chunksize=64)
    faults = [fault for fault in results if isinstance(fault, str)]
    if faults:
        raise ValueError(
            f"{len(faults)} of {len(paths)} images cannot be read: {shortened(faults, 5)}."
        )
    return {size for size in results if not isinstance(size, str)}


def _size_or_fault(path: str) -> tuple[int, int] | str:
    """A JPEG that ends as one is judged by its header, 0.1 ms; everything else is decoded."""
    try:
        with open(path, "rb") as file, Image.open(file) as image:
            size = image.size
            file.seek(-len(JPEG_END), os.SEEK_END)
            whole = image.format == "JPEG" and file.read() == JPEG_END
            file.seek(0)
            if not whole:
                image.load()
            return size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"{path} ({error})"
