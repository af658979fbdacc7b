"""Data sets in folders: <part>/<class>/…/<image>. Every image is looked at once, before training:
those of the user are decoded, those of ImageNet by their headers. Pixels are read on demand.
"""

import os
from collections.abc import Iterator, Mapping
from multiprocessing.pool import ThreadPool
from pathlib import Path

from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
from PIL import Image

from avalanche_hfc._names import counted, shortened
from avalanche_hfc.benchmarks._images import FileImages, Source
from avalanche_hfc.benchmarks._records import FileRecord
from avalanche_hfc.benchmarks._tree import class_folders, scan_part
from avalanche_hfc.benchmarks.check import DataCheck, check_folder
from avalanche_hfc.benchmarks.orders import (
    imagenet100_synsets,
    imagenet_synsets,
    lucir_imagenet100_synsets,
)

FOLDER_IMAGE_SIZE = 224
JPEG_END = b"\xff\xd9"


def read_folder(
    root: Path | str,
    *,
    skip_bad: bool = False,
    known: Mapping[str, FileRecord] | None = None,
) -> Source:
    """The images of your folder; see `check_folder` for the arguments."""
    checked = check_folder(root, skip_bad=skip_bad, known=known)
    checked.raise_if_stopped()
    assert checked.train is not None and checked.test is not None and checked.records is not None
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
    for part in parts:
        _check_synsets(part, synsets)
    train, test = (_images(part, synsets) for part in parts)
    return Source(train=train, test=test, class_names=synsets, image_size=FOLDER_IMAGE_SIZE)


def _check_synsets(folder: Path, synsets: tuple[str, ...]) -> None:
    present, expected = set(class_folders(folder)), set(synsets)
    if synsets == imagenet100_synsets():
        if present == set(lucir_imagenet100_synsets()):
            raise ValueError(
                f"{folder} holds LUCIR's ImageNet-100, drawn with seed 1993. The paper's is "
                "another one: the first 100 synsets in sorted "
                f"order, {synsets[0]} to {synsets[-1]}; 9 are in both. Use split_folder for "
                "LUCIR's."
            )
        if present == set(imagenet_synsets()):
            return  # the full set serves, too: the first 100 are taken
    if present != expected:
        faults = {"missing": sorted(expected - present), "unexpected": sorted(present - expected)}
        named = "; ".join(
            f"{fault}: {shortened(names, 5)}" for fault, names in faults.items() if names
        )
        raise ValueError(
            f"{folder} must hold the {len(expected)} synset folders {synsets[0]} to "
            f"{synsets[-1]} of ImageNet. {named}."
        )


def _images(folder: Path, synsets: tuple[str, ...]) -> FileImages:
    tree = scan_part(folder, synsets)
    bad = sorted(name for names in tree.bad.values() for name in names)
    if bad:
        raise ValueError(f"{folder} holds files that are no images: {shortened(bad, 5)}.")
    classes = tree.parts[""]
    empty = [name for name in synsets if not classes[name]]
    if empty:
        raise ValueError(f"{folder} has classes without an image: {shortened(empty)}.")
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
