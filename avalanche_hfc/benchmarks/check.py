"""Look through a folder of images before training: what cannot be read, what is empty, tiny or
grey, what stands in both parts.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageOps

from avalanche_hfc.benchmarks._folders import SUFFIXES
from avalanche_hfc.benchmarks.orders import lucir_imagenet100_synsets

TINY = 16  # pixels of the shorter side
PARTS = (("train",), ("test", "val"))


@dataclass(frozen=True)
class Finding:
    """One kind of fault, and where it is. `stops`: the benchmark cannot be made of the folder as it
    is.
    """

    what: str
    where: tuple[str, ...]
    stops: bool


@dataclass(frozen=True)
class FolderCheck:
    """What `check_folder` saw. Paths are relative to the folder."""

    num_images: int
    num_classes: int
    findings: tuple[Finding, ...]

    @property
    def stops(self) -> bool:
        return any(finding.stops for finding in self.findings)


class Seen(NamedTuple):
    """One file: a fault in words, or what its pixels are."""

    path: str
    fault: str | None
    tiny: bool = False
    grey: bool = False
    pixels: bytes = b""


def check_folder(root: Path | str, *, tick: Callable[[], object] = lambda: None) -> FolderCheck:
    """Decode every image of `root` (train/<class>/ and test/<class>/ or val/<class>/, or <class>/
    alone). `tick` is called for each.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"No folder {folder}. It should hold train/<class>/ and test/<class>/, or "
            "<class>/ alone."
        )
    parts = parts_of(folder)
    classes = {part: sorted(name.name for name in visible(part) if name.is_dir()) for part in parts}
    files = {
        part: [path for name in classes[part] for path in files_below(part / name)]
        for part in parts
    }
    paths = [path for part in parts for path in files[part]]
    images = [path for path in paths if path.lower().endswith(SUFFIXES)]
    seen = []
    with ThreadPool() as pool:
        for one in pool.imap(look_at, images, chunksize=16):
            seen.append(one)
            tick()
    found = [
        *of_the_tree(folder, parts, classes, paths),
        *of_the_images(seen),
        *of_both_parts(parts, files, seen),
    ]
    shown = (
        Finding(f.what, tuple(os.path.relpath(path, folder) for path in f.where), f.stops)
        for f in found
        if f.where
    )
    return FolderCheck(len(images), len(set().union(*classes.values())), tuple(shown))


def parts_of(folder: Path) -> list[Path]:
    """The training and the test part; the folder itself where it holds classes alone."""
    found = [folder / name for names in PARTS for name in names if (folder / name).is_dir()]
    return found if (folder / "train").is_dir() else [folder]


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def files_below(folder: Path) -> list[str]:
    found = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(parent, name) for name in sorted(files) if not name.startswith(".")]
    return found


def of_the_tree(
    folder: Path, parts: list[Path], classes: dict[Path, list[str]], paths: list[str]
) -> Iterator[Finding]:
    """Faults of names and places, without opening a file."""
    yield Finding(
        "not an image by its name",
        tuple(path for path in paths if not path.lower().endswith(SUFFIXES)),
        True,
    )
    stray = tuple(str(path) for part in parts for path in visible(part) if not path.is_dir())
    yield Finding("a file beside the class folders", stray, True)
    empty = tuple(
        str(part / name) for part in parts for name in classes[part] if not files_below(part / name)
    )
    yield Finding("a class without an image", empty, True)
    if len(parts) == 2:
        for part, other in ((parts[0], parts[1]), (parts[1], parts[0])):
            one_sided = tuple(
                str(part / name) for name in classes[part] if name not in classes[other]
            )
            yield Finding(f"a class that {other.name}/ lacks", one_sided, True)
    elif len(parts) > 2:
        yield Finding("a second test part", tuple(str(part) for part in parts[2:]), True)
    if set(classes[parts[0]]) == set(lucir_imagenet100_synsets()):
        yield Finding(
            "LUCIR's ImageNet-100 (drawn with seed 1993), not the paper's first 100 synsets",
            (str(folder),),
            False,
        )


def of_the_images(seen: list[Seen]) -> Iterator[Finding]:
    for fault in sorted({one.fault for one in seen if one.fault is not None}):
        yield Finding(fault, tuple(one.path for one in seen if one.fault == fault), True)
    yield Finding(
        f"an image of less than {TINY} pixels", tuple(one.path for one in seen if one.tiny), False
    )
    yield Finding(
        "a grey image among coloured ones",
        tuple(one.path for one in seen if one.grey) if mixed(seen) else (),
        False,
    )


def mixed(seen: list[Seen]) -> bool:
    """Whether some images are coloured: a folder of grey ones has no fault."""
    return any(one.fault is None and not one.grey for one in seen)


def of_both_parts(
    parts: list[Path], files: dict[Path, list[str]], seen: list[Seen]
) -> Iterator[Finding]:
    """Images of the test part that the training part has, too, pixel by pixel."""
    if len(parts) == 2:
        pixels = {one.path: one.pixels for one in seen if one.fault is None}
        trained = {pixels[path] for path in files[parts[0]] if path in pixels}
        twice = tuple(path for path in files[parts[1]] if pixels.get(path, b"-") in trained)
        yield Finding("a test image that is a training image as well", twice, False)


def look_at(path: str) -> Seen:
    if os.path.getsize(path) == 0:
        return Seen(path, "an empty file")
    try:
        with Image.open(path) as image:
            picture = ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return Seen(path, "cannot be read")
    red, green, blue = (band.tobytes() for band in picture.split())
    digest = hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).digest()
    return Seen(path, None, min(picture.size) < TINY, red == green == blue, digest)
