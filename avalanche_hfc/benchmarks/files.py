"""Your files: the names of images in a folder, the pixels of one image, and records that identify
the data. No torch.
"""

import hashlib
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from avalanche_hfc._names import shortened

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff")
JUNK = ("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir")  # beside hidden files
STRANGE = ("Cc", "Cs", "Zl", "Zp")  # categories: control characters, undecodable bytes, line breaks
STRANGE_NAME = "a name with control characters or undecodable bytes"
SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")
SIXTEEN_BIT_FORMATS = ("PNG", "PPM")  # whose mode I, 32 bits wide, holds 16-bit values
OTHER_FILE = "not an image by its name"
IRREGULAR = "not a regular file"  # a pipe, or a link to nowhere

Classes = dict[str, list[str]]  # class name -> its images, both sorted


@dataclass(frozen=True)
class Tree:
    """The names below a folder, relative to it. `bad` files can be left out, `faults` cannot."""

    root: Path
    parts: dict[str, Classes] = field(default_factory=dict)  # "" where there are classes alone
    junk: list[str] = field(default_factory=list)
    bad: dict[str, list[str]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)


def scan(root: Path | str) -> Tree:
    """Find train/<class>/ and test/<class>/ (or val/), or <class>/ alone.

    Hidden files and files that operating systems leave behind are junk. Links are followed; a
    folder that is reached twice within a class is read once.

    Args:
        root: The folder.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"No folder {folder}. Expected are train/<class>/ and test/<class>/, or <class>/ alone."
        )
    tree = Tree(folder)
    tests = [name for name in ("test", "val") if (folder / name).is_dir()]
    train = ["train"] if (folder / "train").is_dir() else []
    if train and len(tests) != 1:
        found = "both" if tests else "neither"
        tree.faults[f"one of test/ and val/ is needed beside train/, there is {found}"] = [""]
    elif tests and not train:
        tree.faults[f"{tests[0]}/ without train/"] = [""]
    for part in [*train, *tests] or [""]:
        tree.parts[part] = _classes(tree, part)
        if not tree.parts[part]:
            tree.faults.setdefault("no class folder", []).append(part)
    return tree


def scan_part(folder: Path | str, names: tuple[str, ...]) -> Tree:
    """The images of the class folders with these names, which are there."""
    tree = Tree(Path(folder))
    tree.parts[""] = {name: _class_images(tree, "", name) for name in names}
    return tree


def scan_all(folder: Path | str) -> Tree:
    """The images at any depth below a folder, as one class without a name."""
    tree = Tree(Path(folder))
    tree.parts[""] = {"": _images(tree, "", set())}
    return tree


def class_folders(folder: Path | str) -> list[str]:
    """The names of the folders in a folder, sorted, without junk."""
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if not is_junk(entry.name) and os.path.isdir(entry.path)
    )


def class_names(root: Path | str) -> tuple[str, ...]:
    """The names of the classes of a folder of images, sorted: a class id is a position here."""
    parts = scan(root).parts
    return tuple(next(iter(parts.values())))


def divided(classes: Classes) -> tuple[Classes, Classes]:
    """A training and a test part of classes that are not divided yet."""
    parts: tuple[Classes, Classes] = ({}, {})
    for name, images in classes.items():
        for part in parts:
            part[name] = []
        for image, test in zip(images, is_test(len(images)), strict=True):
            parts[test][name].append(image)
    return parts


def is_test(num_images: int) -> list[bool]:
    """Which images of a class that is not divided are test images: the second, then every fifth.
    Two images suffice, and no seed matters.

    Example:
        >>> [place for place, test in enumerate(is_test(8)) if test]
        [1, 6]
    """
    return [place % 5 == 1 for place in range(num_images)]


def is_junk(name: str) -> bool:
    return name.startswith(".") or name.lower() in JUNK


def is_strange(name: str) -> bool:
    """Whether a name has characters that a CSV file or a terminal cannot hold safely."""
    return any(unicodedata.category(character) in STRANGE for character in name)


def _classes(tree: Tree, part: str) -> Classes:
    classes: Classes = {}
    for entry in sorted(os.scandir(tree.root / part), key=lambda entry: entry.name):
        name = os.path.join(part, entry.name)
        if is_junk(entry.name):
            tree.junk.append(name)
        elif not os.path.isdir(entry.path):
            tree.bad.setdefault("a file beside the class folders", []).append(name)
        else:
            if is_strange(entry.name):
                tree.faults.setdefault(STRANGE_NAME, []).append(name)
            classes[entry.name] = _class_images(tree, part, entry.name)
    return classes


def _class_images(tree: Tree, part: str, class_name: str) -> list[str]:
    outside = {os.path.realpath(tree.root), os.path.realpath(tree.root / part)}
    return _images(tree, os.path.join(part, class_name), outside)


def _images(tree: Tree, folder: str, entered: set[str]) -> list[str]:
    """The images at any depth below a folder. Each folder is entered once, those `entered` before
    not at all.
    """
    images = []
    for path, folders, files in os.walk(tree.root / folder, followlinks=True):
        if os.path.realpath(path) in entered:
            folders.clear()
            continue
        entered.add(os.path.realpath(path))
        below = os.path.relpath(path, tree.root)
        junk = [name for name in [*folders, *files] if is_junk(name)]
        tree.junk.extend(os.path.normpath(os.path.join(below, name)) for name in junk)
        folders[:] = sorted(set(folders).difference(junk))
        for file in sorted(set(files).difference(junk)):
            name = os.path.normpath(os.path.join(below, file))
            fault = _fault_of(tree.root, name, folder)
            if fault is None:
                images.append(name)
            else:
                tree.bad.setdefault(fault, []).append(name)
    return sorted(images)


def _fault_of(root: Path, name: str, folder: str) -> str | None:
    """Why a file in a class folder cannot be an image, without opening it."""
    if is_strange(name.removeprefix(folder)):
        return STRANGE_NAME
    if not os.path.isfile(root / name):
        return IRREGULAR
    return None if name.lower().endswith(SUFFIXES) else OTHER_FILE


def read_image(
    file: Path | str | IO[bytes] | BytesIO, *, upright: bool = True, mode: str = "RGB"
) -> Image.Image:
    """The image in a file, with 8 bits per channel.

    Values of 16 bits are scaled from 0 to 65535, floating-point values from 0 to 1.

    Args:
        file: A path, or a file opened for reading bytes.
        upright: Obey the orientation noted by the camera (EXIF).
        mode: "RGB", or "L" for grey.

    Returns:
        The decoded image.

    Raises:
        ValueError: The file cannot be decoded, or its values have no known range. The message
            says why; it does not name the file.

    Example:
        >>> file = BytesIO()
        >>> Image.fromarray(np.full((2, 2), 65535, dtype=np.uint16)).save(file, "PNG")
        >>> read_image(file).getpixel((0, 0))
        (255, 255, 255)
    """
    try:
        with Image.open(file) as image:
            turned = ImageOps.exif_transpose(image) if upright else image
            return _eight_bit(turned, image.format).convert(mode)
    except UnidentifiedImageError:
        raise ValueError("not an image in a known format") from None
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except Exception as error:  # decoders raise errors of any kind for a damaged file
        raise ValueError(str(error) or type(error).__name__) from error


def _eight_bit(image: Image.Image, file_format: str | None) -> Image.Image:
    """The image with at most 8 bits per channel; `convert` alone would cut values at 255."""
    if image.mode in SIXTEEN_BIT or (image.mode == "I" and file_format in SIXTEEN_BIT_FORMATS):
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode == "I":
        raise ValueError("32-bit integer pixels have no known range; save it with 8 or 16 bits")
    if image.mode == "F":
        floats = np.asarray(image)
        if not (floats.min() >= 0 and floats.max() <= 1):  # false for NaN, too
            raise ValueError(
                f"floating-point pixels from {floats.min():g} to {floats.max():g}; they must be in "
                "[0, 1]"
            )
        return Image.fromarray(np.round(floats * 255).astype(np.uint8))
    return image


class FileRecord(NamedTuple):
    """A file of a folder of images, or an array of an npz file.

    `modified` is the time of a file in nanoseconds and decides only whether it is read again; it is
    no part of the fingerprint. `width` and `height` are those of an image as stored.
    """

    size: int
    modified: int
    sha256: str
    width: int = 0
    height: int = 0


Records = Mapping[str, FileRecord]


def fingerprint(records: Records) -> str:
    """The sha256 over name, size and content of all records, whatever their order.

    Args:
        records: Record by name: the path below the folder, which holds the class, or the array's.

    Example:
        >>> a, b = FileRecord(1, 0, "aa"), FileRecord(2, 0, "bb")
        >>> fingerprint({"x": a, "y": b}) == fingerprint({"y": b, "x": a._replace(modified=9)})
        True
    """
    digest = hashlib.sha256()
    for name in sorted(records):
        digest.update(repr((name, records[name].size, records[name].sha256)).encode())
    return digest.hexdigest()


def difference(before: Records, now: Records) -> str:
    """What is missing, new or changed between two data sets, in words; empty where nothing is.

    Example:
        >>> a, b = FileRecord(1, 0, "aa"), FileRecord(1, 0, "bb")
        >>> difference({"x": a, "y": a}, {"x": b, "z": a})
        'changed: x; missing: y; new: z'
    """
    groups = {
        "changed": [
            name
            for name in before
            if name in now
            and (before[name].size, before[name].sha256) != (now[name].size, now[name].sha256)
        ],
        "missing": [name for name in before if name not in now],
        "new": [name for name in now if name not in before],
    }
    return "; ".join(
        f"{word}: {shortened(sorted(names), 5)}" for word, names in groups.items() if names
    )
