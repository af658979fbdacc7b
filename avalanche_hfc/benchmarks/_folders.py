"""Data sets in folders: <part>/<class>/…/<image>. Every image is looked at once, before training;
pixels are read on demand.
"""

import os
from itertools import chain
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
from PIL import Image

from avalanche_hfc.benchmarks._images import FileImages, Source, is_test, shortened
from avalanche_hfc.benchmarks.orders import (
    imagenet100_synsets,
    imagenet_synsets,
    lucir_imagenet100_synsets,
)

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff")
FOLDER_IMAGE_SIZE = 224
JPEG_END = b"\xff\xd9"


def read_folder(root: Path | str) -> Source:
    folder = Path(root)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"No folder {folder}. split_folder reads train/<class>/ and test/<class>/, or "
            "<class>/ alone."
        )
    tests = [folder / name for name in ("test", "val") if (folder / name).is_dir()]
    if not (folder / "train").is_dir():
        if tests:
            raise ValueError(f"{folder} has {tests[0].name}/ but no train/.")
        train, test = _divided(_scan(folder))
    elif len(tests) != 1:
        raise ValueError(
            f"{folder} needs one of test/ and val/ beside train/, it has "
            f"{'both' if tests else 'neither'}."
        )
    else:
        train, test = _scan(folder / "train"), _scan(tests[0])
        for part, other, name in ((train, test, tests[0]), (test, train, folder / "train")):
            missing = sorted(set(part) - set(other))
            if missing:
                raise ValueError(
                    f"{name} lacks the classes {shortened(missing)}. Both parts must hold "
                    "the same classes."
                )
    return _source(train, test, upright=True)


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
    for part in parts:
        _check_synsets(part, synsets)
    train, test = (_scan(part, only=synsets) for part in parts)
    return _source(train, test, upright=False)


def _check_synsets(folder: Path, synsets: tuple[str, ...]) -> None:
    found, expected = set(_class_folders(folder)), set(synsets)
    if synsets == imagenet100_synsets():
        if found == set(lucir_imagenet100_synsets()):
            raise ValueError(
                f"{folder} holds LUCIR's ImageNet-100, drawn with seed 1993. The paper's is "
                "another one: the first 100 synsets in sorted "
                f"order, {synsets[0]} to {synsets[-1]}; 9 are in both. Use split_folder for "
                "LUCIR's."
            )
        if found == set(imagenet_synsets()):
            return  # the full set serves, too: the first 100 are taken
    if found != expected:
        faults = {"missing": sorted(expected - found), "unexpected": sorted(found - expected)}
        named = "; ".join(
            f"{fault}: {shortened(names, 5)}" for fault, names in faults.items() if names
        )
        raise ValueError(
            f"{folder} must hold the {len(expected)} synset folders {synsets[0]} to "
            f"{synsets[-1]} of ImageNet. {named}."
        )


def _scan(folder: Path, only: tuple[str, ...] | None = None) -> dict[str, list[str]]:
    """Class name -> paths of its images, both sorted. What is neither hidden nor an image is
    refused.
    """
    classes = {name: _image_paths(folder / name) for name in only or _class_folders(folder)}
    if not classes:
        raise ValueError(f"{folder} has no class folder.")
    empty = [name for name, paths in classes.items() if not paths]
    if empty:
        raise ValueError(f"{folder} has classes without an image: {shortened(empty)}.")
    return classes


def _class_folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    stray = sorted(entry.path for entry in visible if not entry.is_dir())
    if stray:
        raise ValueError(
            f"Files beside the class folders: {shortened(stray, 5)}. Remove them or hide "
            "them with a leading dot."
        )
    return sorted(entry.name for entry in visible)


def _image_paths(folder: Path) -> list[str]:
    paths = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.join(parent, name) for name in files if not name.startswith(".")]
    strange = sorted(path for path in paths if not path.lower().endswith(SUFFIXES))
    if strange:
        raise ValueError(
            f"Not images: {shortened(strange, 5)}. Known suffixes: {', '.join(SUFFIXES)}. "
            "Remove or hide with a leading dot."
        )
    return sorted(paths)


def _divided(classes: dict[str, list[str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """A training and a test part of classes that come in one piece."""
    single = [name for name, paths in classes.items() if len(paths) < 2]
    if single:
        raise ValueError(
            f"Classes with one image only: {shortened(single)}. One is needed for training "
            "and one for the test."
        )
    tests = {name: is_test(len(paths)) for name, paths in classes.items()}
    train = {name: np.array(paths)[~tests[name]].tolist() for name, paths in classes.items()}
    return train, {name: np.array(paths)[tests[name]].tolist() for name, paths in classes.items()}


def _source(train: dict[str, list[str]], test: dict[str, list[str]], *, upright: bool) -> Source:
    parts = []
    for classes in (train, test):
        paths = list(chain.from_iterable(classes.values()))
        targets = [class_id for class_id, of_class in enumerate(classes.values()) for _ in of_class]
        parts.append(FileImages(paths, targets, _checked_sizes(paths), upright=upright))
    return Source(
        train=parts[0], test=parts[1], class_names=tuple(train), image_size=FOLDER_IMAGE_SIZE
    )


def _checked_sizes(paths: list[str]) -> set[tuple[int, int]]:
    """The (width, height) met; every unreadable image is named."""
    with ThreadPool() as pool:  # waits for the disk in parallel
        found = pool.map(_size_or_fault, paths, chunksize=64)
    faults = [fault for fault in found if isinstance(fault, str)]
    if faults:
        raise ValueError(
            f"{len(faults)} of {len(paths)} images cannot be read: {shortened(faults, 5)}."
        )
    return {size for size in found if not isinstance(size, str)}


def _size_or_fault(path: str) -> tuple[int, int] | str:
    """A JPEG that ends as one is judged by its header, 0.1 ms; everything else is decoded."""
    try:
        with Image.open(path) as image:
            size = image.size
            if image.format != "JPEG" or not _ends_as_jpeg(path):
                image.load()
            return size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"{path} ({error})"


def _ends_as_jpeg(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-len(JPEG_END), os.SEEK_END)
        return file.read() == JPEG_END
