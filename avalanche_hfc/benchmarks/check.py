"""Check your images before training: what cannot be used, and what is worth
knowing. `split_folder`, `split_npz` and `hfc data check` find the same faults. No torch.
"""

import hashlib
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from avalanche_hfc._names import printable, shortened
from avalanche_hfc.benchmarks.files import (
    Classes,
    FileRecord,
    Records,
    Tree,
    divided,
    read_image,
    scan,
)
from avalanche_hfc.benchmarks.npz import (
    as_bytes,
    load_npz,
    npz_class_names,
    npz_records,
    positions_by_class,
)

TINY = 16  # pixels of the shorter side
HUGE = 25_000_000  # pixels: decoding takes longer than training on it
UNREADABLE = "cannot be read"


@dataclass(frozen=True)
class Finding:
    """One kind of fault, and where it is.

    `stops`: the data cannot be trained on as it is. `bad`: these are files that can be left out.
    """

    what: str
    where: tuple[str, ...]
    stops: bool = False
    bad: bool = False


@dataclass(frozen=True)
class DataCheck:
    """What a check saw. Names are relative to the folder.

    `train` and `test` hold the images of each class, of a folder; `records` identify the data.
    """

    path: Path
    num_images: int
    class_names: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    junk: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    train: Classes = field(default_factory=dict)
    test: Classes = field(default_factory=dict)
    records: Records = field(default_factory=dict)

    @property
    def stops(self) -> bool:
        """Whether the data cannot be trained on as it is."""
        return any(finding.stops for finding in self.findings)

    def raise_if_stopped(self) -> None:
        """A ValueError that names every fault, where there is one."""
        faults = [finding for finding in self.findings if finding.stops]
        if not faults:
            return
        named = "; ".join(
            f"{fault.what}: {shortened(fault.where, 5)}" if any(fault.where) else fault.what
            for fault in faults
        )
        hint = (
            " Remove or repair the files, or leave them out with --skip-bad (skip_bad=True)."
            if any(fault.bad for fault in faults)
            else ""
        )
        raise ValueError(f"{self.path} cannot be used: {named}.{hint}")

    def as_dict(self) -> dict:
        """Plain data, for JSON."""
        return {
            "path": str(self.path),
            "images": self.num_images,
            "classes": list(self.class_names),
            "usable": not self.stops,
            "findings": [
                {"what": one.what, "stops": one.stops, "where": list(one.where)}
                for one in self.findings
            ],
            "junk": list(self.junk),
            "left_out": list(self.left_out),
        }


class Seen(NamedTuple):
    """One image: why it cannot be used, or what it is. `pixels` is empty where it was not
    decoded.
    """

    fault: tuple[str, str] | None = None  # what, and more of it
    record: FileRecord | None = None
    grey: bool = False
    pixels: bytes = b""


def check_data(
    path: Path | str, *, skip_bad: bool = False, tick: Callable[[], object] = lambda: None
) -> DataCheck:
    """Check a folder of images or an npz file; see `check_folder` and `check_npz`."""
    if Path(path).is_dir():
        return check_folder(path, skip_bad=skip_bad, tick=tick)
    if Path(path).suffix != ".npz":
        raise FileNotFoundError(
            f"No folder and no npz file {path}. A folder holds train/<class>/ and test/<class>/, "
            "or <class>/ alone."
        )
    return check_npz(path)


def check_folder(
    root: Path | str,
    *,
    skip_bad: bool = False,
    known: Mapping[str, FileRecord] | None = None,
    tick: Callable[[], object] = lambda: None,
) -> DataCheck:
    """Decode every image of a folder and find what is wrong with it.

    Args:
        root: Holds train/<class>/ and test/<class>/ (or val/<class>/), or <class>/ alone.
        skip_bad: Leave out files that are no readable images, instead of stopping.
        known: Records of an earlier check. A file of the same size and time is not read again;
            remarks on its pixels are not repeated.
        tick: Called for each image.

    Returns:
        The findings, and the images and classes that can be used.

    Raises:
        FileNotFoundError: There is no such folder.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as root:
        ...     (Path(root) / "ant").mkdir()
        ...     check_folder(root).findings[0].what
        'a class without an image'
    """
    tree = scan(root)
    seen = look_at_all(tree, known or {}, tick)
    bad = {what: list(names) for what, names in tree.bad.items()}
    for name, one in seen.items():
        if one.fault is not None:
            what, more = one.fault
            bad.setdefault(what, []).append(f"{name} ({more})" if more else name)
    parts = {
        part: {
            name: [image for image in images if seen[image].fault is None]
            for name, images in classes.items()
        }
        for part, classes in tree.parts.items()
    }
    left_out = tuple(
        printable(f"{name}: {what}") for what, names in bad.items() for name in sorted(names)
    )
    records = {name: one.record for name, one in seen.items() if one.record is not None}
    train, test = divided(parts[""]) if "" in parts else (*parts.values(), {})[:2]
    findings = [
        *(Finding(what, tuple(sorted(names)), True) for what, names in tree.faults.items()),
        *(
            Finding(what, tuple(sorted(names)), not skip_bad, bad=True)
            for what, names in bad.items()
        ),
        *of_the_classes(parts),
        *of_the_images(seen, records),
        *of_copies({name: one.pixels for name, one in seen.items()}, train, test),
    ]
    return DataCheck(
        path=tree.root,
        num_images=len(records),
        class_names=tuple(dict.fromkeys(name for classes in parts.values() for name in classes)),
        findings=tuple(
            Finding(one.what, tuple(map(printable, one.where)), one.stops, one.bad)
            for one in findings
            if one.where
        ),
        junk=tuple(map(printable, tree.junk)),
        left_out=left_out if skip_bad else (),
        train=train,
        test=test,
        records=records,
    )


def check_npz(path: Path | str) -> DataCheck:
    """Read an npz file and find what is wrong with it.

    Args:
        path: Holds x_train, y_train, x_test, y_test and, optionally, class_names.

    Returns:
        The findings. Images are named by array and index, as in x_test[3].

    Raises:
        FileNotFoundError: There is no such file.
    """
    try:
        arrays = load_npz(path)
    except ValueError as error:
        what = str(error).removeprefix(f"{path}: ").rstrip(".")
        return DataCheck(Path(path), 0, (), (Finding(what, ("",), True),))
    names = npz_class_names(arrays)
    pixels: dict[str, bytes] = {}
    parts: list[Classes] = []
    for part in ("train", "test"):
        labels = arrays[f"y_{part}"]
        images = [f"x_{part}[{index}]" for index in range(len(labels))]
        parts.append(
            {
                name: [images[index] for index in positions]
                for name, positions in zip(
                    names, positions_by_class(labels, len(names)), strict=True
                )
            }
        )
        for image, values in zip(images, arrays[f"x_{part}"], strict=True):
            pixels[image] = hashlib.blake2b(as_bytes(values)).digest()
    height, width = arrays["x_train"].shape[1:3]
    size = Finding(f"images of less than {TINY} pixels", (f"{width} x {height}",))
    return DataCheck(
        path=Path(path),
        num_images=len(pixels),
        class_names=names,
        findings=(*([size] if min(width, height) < TINY else []), *of_copies(pixels, *parts)),
        records=npz_records(arrays),
    )


def look_at_all(
    tree: Tree, known: Mapping[str, FileRecord], tick: Callable[[], object]
) -> dict[str, Seen]:
    names = [
        name for classes in tree.parts.values() for images in classes.values() for name in images
    ]
    seen = {}
    with warnings.catch_warnings(), ThreadPool() as pool:  # decoders wait for no other thread
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # a remark says it
        look = partial(look_at, tree.root, known)
        for name, one in zip(names, pool.imap(look, names, chunksize=16), strict=True):
            seen[name] = one
            tick()
    return seen


def look_at(root: Path, known: Mapping[str, FileRecord], name: str) -> Seen:
    """Decode an image, unless its size and time are those of its record."""
    before = known.get(name)
    try:
        with open(root / name, "rb") as file:
            status = os.fstat(file.fileno())
            if before is not None and (status.st_size, status.st_mtime_ns) == before[:2]:
                return Seen(record=before)
            if status.st_size == 0:
                return Seen(("an empty file", ""))
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            picture = read_image(file)
    except (OSError, ValueError) as error:
        return Seen((UNREADABLE, str(error)))
    pixels = np.asarray(picture)
    grey = bool((pixels[..., :1] == pixels[..., 1:]).all())
    content = hashlib.blake2b(repr(picture.size).encode())
    content.update(as_bytes(pixels))
    record = FileRecord(status.st_size, status.st_mtime_ns, digest, *picture.size)
    return Seen(None, record, grey, content.digest())


def of_the_classes(parts: Mapping[str, Classes]) -> Iterator[Finding]:
    """Classes that lack images."""
    for part, classes in parts.items():
        names = {name: f"{part}/{name}" if part else name for name in classes}
        yield Finding(
            "a class without an image", tuple(names[n] for n in classes if not classes[n]), True
        )
        if not part:
            yield Finding(
                "a class with one image only, where training and test need one each",
                tuple(name for name in classes if len(classes[name]) == 1),
                True,
            )
        for other in parts:
            yield Finding(
                f"a class that {other}/ lacks",
                tuple(names[name] for name in classes if name not in parts[other]),
                True,
            )


def of_the_images(seen: Mapping[str, Seen], records: Records) -> Iterator[Finding]:
    """Images that are unlike others."""
    sizes = {name: (record.width, record.height) for name, record in records.items()}
    yield Finding(
        f"an image of less than {TINY} pixels",
        tuple(name for name, size in sizes.items() if min(size) < TINY),
    )
    yield Finding(
        f"an image of more than {HUGE // 10**6} megapixels, which slows training down",
        tuple(name for name, (width, height) in sizes.items() if width * height > HUGE),
    )
    decoded = {name: one.grey for name, one in seen.items() if one.pixels}
    grey = tuple(name for name, is_grey in decoded.items() if is_grey)
    yield Finding("a grey image among coloured ones", grey if len(grey) < len(decoded) else ())


def of_copies(pixels: Mapping[str, bytes], train: Classes, test: Classes) -> Iterator[Finding]:
    """Images with the same pixels, named with the one they repeat."""
    first: dict[bytes, tuple[str, str, str]] = {}
    copies: dict[str, list[str]] = defaultdict(list)
    places = [
        (part, name, image)
        for part, classes in (("train", train), ("test", test))
        for name, images in classes.items()
        for image in images
        if pixels[image]
    ]
    for part, name, image in places:
        before = first.setdefault(pixels[image], (part, name, image))
        if before[2] == image:
            continue
        if before[1] != name:
            what = "the same image in two classes"
        elif before[0] != part:
            what = "a test image that is a training image as well"
        else:
            what = "the same image twice in a class"
        copies[what].append(f"{image} = {before[2]}")
    yield from (Finding(what, tuple(where)) for what, where in copies.items())
