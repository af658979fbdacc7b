"""The one door to the images of a recipe: run, learn, plan, predict and report read them through
here and nowhere else. data.csv of a run says which files of yours it was trained on.
"""

import csv
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from avalanche_hfc._names import lookup, shortened
from avalanche_hfc.benchmarks import build_transforms
from avalanche_hfc.benchmarks.check import check_data
from avalanche_hfc.benchmarks.files import FileRecord, Records, difference, fingerprint
from avalanche_hfc.benchmarks.orders import imagenet100_synsets, imagenet_synsets
from avalanche_hfc.benchmarks.scenario import (
    Plan,
    SplitBenchmark,
    fit_to_augmentation,
    make_benchmark,
)
from avalanche_hfc.benchmarks.sources import (
    JoinedImages,
    Source,
    first_of_each_class,
    hold_out,
    of_classes,
    read_cifar100,
    read_digits,
    read_folder,
    read_imagenet,
    read_npz,
)
from avalanche_hfc.benchmarks.transforms import (
    CIFAR100,
    IMAGENET,
    ON_TENSORS,
    PADDED_CROP_LIMIT,
    Statistics,
    Transform,
)
from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.rows import as_csv, replace_file
from avalanche_hfc.lab.run_folder import RunFolder

Root = Path | str | None
DATA_FILE = "data.csv"
log = logging.getLogger(__name__)


class DataSet(NamedTuple):
    """How a data set is read, and what is known of it before."""

    read: Callable[..., Source]
    num_classes: int | None = None
    paper_order: str | None = None
    statistics: Statistics = IMAGENET
    per_class: int | None = None  # training images of each class, where all have as many


def read_cifar(root: Root) -> Source:
    """CIFAR-100 from the official files in a folder, or from an npz file in the layout of
    `split_npz`.
    """
    if root is None or Path(root).suffix != ".npz":
        return read_cifar100(root, download=False)
    return replace(read_npz(root), statistics=CIFAR100)


DATA_SETS = {
    "cifar100": DataSet(read_cifar, 100, "cifar100-a", CIFAR100, 500),
    "imagenet100": DataSet(
        lambda root: read_imagenet(root, imagenet100_synsets()), 100, "imagenet100"
    ),
    "imagenet1000": DataSet(
        lambda root: read_imagenet(root, imagenet_synsets()), 1000, "imagenet1000"
    ),
    "digits": DataSet(lambda root: read_digits(), 10),
    "npz": DataSet(read_npz),
    "folder": DataSet(read_folder),
}
# your data, which has no default place
NEEDED = {"npz": "the npz file", "folder": "the folder of images"}
HOW_TO = {  # what else may be given where data is not where it was looked for
    "cifar100": "Or name an npz file with x_train, y_train, x_test, y_test, or use --download.",
    "imagenet100": "Name the folder that holds it with --data.",
    "imagenet1000": "Name the folder that holds it with --data.",
}


def build_benchmark(
    recipe: Recipe, seed: int, data_root: Root = None, known: Records | None = None
) -> SplitBenchmark:
    """The benchmark of a recipe: its data, its classes over the steps, and a step for each folder
    learned later.

    Args:
        recipe: What to build.
        seed: Draws the class order where the recipe names none.
        data_root: Where the data is. None: where the recipe says it was, else Avalanche's
            folder for data.
        known: Records of the same data, read before. Files of the same size and time are not
            read again.

    Returns:
        The benchmark. Its `records` identify your data.
    """
    known = known or {}
    plan_of(recipe, seed)  # what can be refused without the data is refused before it is read
    source = read_source(recipe, data_root, known)
    added, folders = [], learned_folders(recipe)
    if folders and recipe.data.transforms not in ON_TENSORS:
        for images in (source.train, source.test):  # images in files join them: PIL images
            fit_to_augmentation(images, recipe.data.transforms, recipe.data.image_size)
    for number, folder in enumerate(folders, 1):
        mark = f"learned {number}/"
        before = {name.removeprefix(mark): known[name] for name in known if name.startswith(mark)}
        arriving = read_folder(folder, skip_bad="skip_bad" in recipe.paths, known=before)
        refuse_known_classes(folder, arriving.class_names, source.class_names)
        added.append(len(arriving.class_names))
        source = joined_source(source, arriving, mark)
    return make_benchmark(source, plan_of(recipe, seed, added))


def read_source(recipe: Recipe, data_root: Root = None, known: Records | None = None) -> Source:
    """The images of the recipe's data set, the classes and as many images of each as it selects,
    without folders learned later; `known` as in `build_benchmark`.
    """
    data, root = recipe.data, data_root_of(recipe, data_root)
    if root is None and data.dataset in NEEDED:
        raise ValueError(f"{recipe.name}: name {NEEDED[data.dataset]} with --data.")
    options: Mapping[str, Any] = (
        {"skip_bad": "skip_bad" in recipe.paths, "known": known} if data.dataset == "folder" else {}
    )
    try:
        source = lookup(DATA_SETS, data.dataset, "data set").read(root, **options)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} {HOW_TO.get(data.dataset, '')}".strip()) from error
    if recipe.scale == "paper" and data.train_per_class is None:
        check_all_there(recipe, source)
    if data.num_classes is not None:
        source = of_classes(source, chosen_classes(recipe, source.class_names))
    source = first_of_each_class(source, data.train_per_class, data.test_per_class)
    return source if data.hold_out is None else hold_out(source, data.hold_out)


def check_all_there(recipe: Recipe, source: Source) -> None:
    """A ValueError where the data is a part of the data set, which no number of the paper is of."""
    expected = DATA_SETS[recipe.data.dataset].per_class
    least = min(np.bincount(source.train.targets, minlength=len(source.class_names)))
    if expected is not None and least < expected:
        raise ValueError(
            f"{recipe.name}: {recipe.data.dataset} has {expected} training images of each class, "
            f"this data has a class with {least}. To train on a part of it, say how many with "
            "--data.train-per-class."
        )


def chosen_classes(recipe: Recipe, class_names: Sequence[str]) -> list[int]:
    """The ids, in the data, of the classes that `num_classes` selects, in order."""
    data, known = recipe.data, DATA_SETS[recipe.data.dataset]
    if known.num_classes not in (None, len(class_names)):
        raise ValueError(
            f"{recipe.name}: {data.dataset} has {known.num_classes} classes, this data has "
            f"{len(class_names)}."
        )
    check_num_classes(recipe, len(class_names))
    named = known.paper_order if data.class_order is None else data.class_order
    order = list(range(len(class_names))) if named is None else named
    whole = Plan(1, 0, order, data.transforms, data.image_size, 0, paper_order=known.paper_order)
    return whole.with_ids(class_names).order(len(class_names))[: data.num_classes]


def check_num_classes(recipe: Recipe, num_classes: int | None) -> None:
    """A ValueError where more classes are selected than there are."""
    asked = recipe.data.num_classes
    if asked is not None and num_classes is not None and asked > num_classes:
        raise ValueError(
            f"data.num_classes must be at most {num_classes}, the classes of the data, got {asked}."
        )


def data_root_of(recipe: Recipe, given: Root) -> Root:
    """Where the data is: as given, else as noted when the run began, which is so for data of the
    user's.
    """
    noted = recipe.paths.get("data")
    return given if given is not None or noted is None else str(noted)


def learned_folders(recipe: Recipe) -> tuple[str, ...]:
    """The folders that a run has learned behind the steps of its recipe."""
    folders: Any = recipe.paths.get("learn", ())
    return tuple(folders)


def eval_transform(recipe: Recipe) -> Transform:
    """What an image goes through in evaluation."""
    data = recipe.data
    return build_transforms(
        data.transforms, data.image_size, statistics=DATA_SETS[data.dataset].statistics
    )[1]


def image_mode(recipe: Recipe) -> str:
    """The mode of the PIL images that a recipe is trained on: "L" is grey."""
    return "L" if recipe.data.dataset == "digits" else "RGB"


def image_transform(recipe: Recipe) -> Transform:
    """The eval transform for PIL images of any size and mode: where the recipe's never resizes, the
    image is squashed to a square before.
    """
    data, mode, transform = recipe.data, image_mode(recipe), eval_transform(recipe)
    squash = data.transforms not in ON_TENSORS and data.image_size <= PADDED_CROP_LIMIT
    side = (data.image_size, data.image_size)

    def prepare(image: Image.Image) -> Tensor:
        image = image.convert(mode)
        return transform(image.resize(side, Image.Resampling.BICUBIC) if squash else image)

    return prepare


@dataclass(frozen=True)
class LongerPlan(Plan):
    """A plan with steps behind it: `added` is the number of classes of each. Their ids follow those
    of the data set.
    """

    added: tuple[int, ...] = ()

    def order(self, num_classes: int) -> list[int]:
        first = num_classes - sum(self.added)
        return [*super().order(first), *range(first, num_classes)]

    def classes_per_step(self, num_classes: int) -> list[int]:
        return [*super().classes_per_step(num_classes - sum(self.added)), *self.added]

    def with_ids(self, class_names: Sequence[str]) -> Plan:
        return super().with_ids(class_names[: len(class_names) - sum(self.added)])

    def remarks(self, num_classes: int) -> tuple[str, ...]:
        return () if self.added else super().remarks(num_classes)


def plan_of(recipe: Recipe, seed: int, added: Sequence[int] = ()) -> LongerPlan:
    """How the classes are dealt out over the steps; `added` classes for each folder learned
    later.
    """
    data, known = recipe.data, lookup(DATA_SETS, recipe.data.dataset, "data set")
    check_num_classes(recipe, known.num_classes)
    num_classes, order = data.num_classes or known.num_classes, data.class_order
    if data.num_classes is not None and order is not None:
        order = tuple(range(data.num_classes))  # the ids of `chosen_classes` are in order
    return LongerPlan(
        num_steps=data.num_steps,
        base_fraction=data.base_fraction,
        class_order=order,
        transforms=data.transforms,
        image_size=data.image_size,
        seed=seed,
        num_classes=None if num_classes is None else num_classes + sum(added),
        paper_order=known.paper_order,
        uneven=known.num_classes is None,
        added=tuple(added),
    )


def refuse_known_classes(folder: Path | str, names: Sequence[str], known: Sequence[str]) -> None:
    again = sorted(set(names) & set(known))
    if again:
        raise ValueError(
            f"{folder} has classes that are known already: {shortened(again)}. Each class "
            "belongs to one step."
        )


def joined_source(first: Source, second: Source, mark: str) -> Source:
    """The classes of the second behind those of the first, under the statistics and the number of
    channels of the first. `mark` stands before the names of its records.
    """
    offset, grey = len(first.class_names), first.num_channels == 1
    return replace(
        first,
        train=JoinedImages(first.train, second.train, offset, grey=grey),
        test=JoinedImages(first.test, second.test, offset, grey=grey),
        class_names=(*first.class_names, *second.class_names),
        image_size=first.image_size or second.image_size,
        records={
            **first.records,
            **{mark + name: record for name, record in second.records.items()},
        },
        left_out=(*first.left_out, *(mark + name for name in second.left_out)),
        remarks=(*first.remarks, *second.remarks),
    )


# What identifies your data, file by file


def read_records(folder: Path | str) -> dict[str, FileRecord]:
    """The records of a run, by file or array; none where it has none, or they cannot be read.

    Args:
        folder: The run folder.
    """
    try:
        with (Path(folder) / DATA_FILE).open(newline="", encoding="utf-8") as file:
            return {
                name: FileRecord(int(size), int(modified), sha256, int(width), int(height))
                for name, size, modified, sha256, width, height in list(csv.reader(file))[1:]
            }
    except (OSError, ValueError):  # every file is then read again
        return {}


def write_records(folder: Path | str, records: Records) -> None:
    """Replace the records of a run."""
    rows = [("name", *FileRecord._fields), *((name, *record) for name, record in records.items())]
    replace_file(Path(folder) / DATA_FILE, as_csv(rows))


def data_note(records: Records, left_out: Sequence[str] = ()) -> dict[str, Any]:
    """What recipe.json holds of the data: empty for data that is not the user's."""
    if not records:
        return {}
    return {"sha256": fingerprint(records), "files": len(records), "left_out": list(left_out)}


def refuse_other_data(run_folder: RunFolder, records: Records) -> None:
    """A ValueError that names what differs, unless a run was trained on this data.

    A run of a version that kept no fingerprint is accepted with a warning in the log.

    Args:
        run_folder: The run.
        records: Those of the data, or more: the data of folders learned later.
    """
    held = run_folder.metadata()
    if held is None or not records:
        return
    if "data" not in held:
        log.warning(
            "%s has no fingerprint of its data, so whether the data is the same is not checked.",
            run_folder.path,
        )
        return
    if held["data"]["sha256"] == fingerprint(records):
        return
    before = read_records(run_folder.path)
    if held["data"]["sha256"] != fingerprint(before):
        before = {}
    what = difference(before, records) if before else "data.csv, which names the files, is damaged"
    raise ValueError(
        f"The data is not what {run_folder.path} was trained on ({what}). Restore it, name its "
        "place with --data, or start another run with --out."
    )


def refuse_other_place(run_folder: RunFolder, data: Path | str, *, skip_bad: bool) -> None:
    """As `refuse_other_data`, of a finished run, where the data is at another place than it was."""
    held = run_folder.metadata() or {}
    before = held.get("recipe", {}).get("own", {}).get("data")
    if "data" in held and before is not None and before != str(data):
        checked = check_data(data, skip_bad=skip_bad)
        checked.raise_if_stopped()
        refuse_other_data(run_folder, checked.records or {})
