"""A folder of images as names: parts, classes and files. No image is opened. Neither torch
nor numpy.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff")
JUNK = ("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir")  # beside hidden files
STRANGE = ("Cc", "Cs", "Zl", "Zp")  # categories: control characters, undecodable bytes, line breaks
STRANGE_NAME = "a name with control characters or undecodable bytes"
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
    tree.parts[""] = {"": _images(tree, "", _files(tree, "", set()))}
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
        name = _join(part, entry.name)
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
    folder = _join(part, class_name)
    outside = {_identity(tree.root), _identity(tree.root / part)}
    return _images(tree, folder, _files(tree, folder, outside))


def _images(tree: Tree, folder: str, names: Iterable[str]) -> list[str]:
    images = []
    for name in names:
        if is_strange(name.removeprefix(folder)):
            fault = STRANGE_NAME
        elif not os.path.isfile(tree.root / name):
            fault = IRREGULAR
        elif not name.lower().endswith(SUFFIXES):
            fault = OTHER_FILE
        else:
            images.append(name)
            continue
        tree.bad.setdefault(fault, []).append(name)
    return sorted(images)


def _files(tree: Tree, folder: str, entered: set[tuple[int, int]]) -> Iterator[str]:
    """All that is no folder below a folder, without junk. Each folder is entered once, those
    `entered` before not at all.
    """
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        if _identity(tree.root / folder) in entered:
            continue
        entered.add(_identity(tree.root / folder))
        for entry in sorted(os.scandir(tree.root / folder), key=lambda entry: entry.name):
            name = _join(folder, entry.name)
            if is_junk(entry.name):
                tree.junk.append(name)
            elif os.path.isdir(entry.path):
                waiting.append(name)
            else:
                yield name


def _identity(folder: Path) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
