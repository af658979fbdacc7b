"""The images of a recipe before they are split, and with classes of further folders behind them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avalanche_hfc._names import lookup
from avalanche_hfc.benchmarks._arrays import read_cifar100, read_digits, read_npz
from avalanche_hfc.benchmarks._folders import read_folder, read_imagenet
from avalanche_hfc.benchmarks._images import FileImages, Source, TensorImages, shortened
from avalanche_hfc.benchmarks._plan import Plan, _fit_to_augmentation, make_benchmark
from avalanche_hfc.benchmarks.orders import imagenet100_synsets, imagenet_synsets
from avalanche_hfc.recipes import Recipe
from avalanche_hfc.runs.data import arguments, cifar_file, how_to, read_cifar_file

Root = Path | str | None
READERS: dict[str, Callable[[Any], Source]] = {
    "cifar100": lambda root: read_cifar100(root, download=False),
    "imagenet100": lambda root: read_imagenet(root, imagenet100_synsets()),
    "imagenet1000": lambda root: read_imagenet(root, imagenet_synsets()),
    "digits": lambda root: read_digits(),
    "npz": read_npz,
    "folder": read_folder,
}
PAPER_ORDERS = {"cifar100": "cifar100-a", "imagenet100": "imagenet100", "imagenet1000": "imagenet1000"}


def data_root_of(recipe: Recipe, given: Root) -> Root:
    """Where the data is: as given, else as noted when the run began, which is so for the user's own."""
    noted = recipe.own.get("data")
    return given if given is not None or noted is None else str(noted)


def read_source(recipe: Recipe, data_root: Root) -> Source:
    """All images of the recipe's data set."""
    data = recipe.data
    file = cifar_file(data_root) if data.dataset == "cifar100" and recipe.scale != "paper" else None
    if file is not None:
        return read_cifar_file(file)
    if data_root is None and data.dataset in ("npz", "folder"):
        raise ValueError(f"{recipe.name}: name the {'npz file' if data.dataset == 'npz' else 'folder of images'} with --data.")
    try:
        return lookup(READERS, data.dataset, "data set")(data_root)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} {how_to(recipe)}") from error


@dataclass(frozen=True)
class LongerPlan(Plan):
    """A plan with steps behind it: `added` is the number of classes of each. Their ids follow those of the data set."""

    added: tuple[int, ...] = ()

    def order(self, num_classes: int) -> list[int]:
        own = num_classes - sum(self.added)
        return [*super().order(own), *range(own, num_classes)]

    def classes_per_step(self, num_classes: int) -> list[int]:
        return [*super().classes_per_step(num_classes - sum(self.added)), *self.added]


def plan_with(recipe: Recipe, seed: int, added: Sequence[int] = ()) -> LongerPlan:
    return LongerPlan(**arguments(recipe.data), seed=seed, paper_order=PAPER_ORDERS.get(recipe.data.dataset), added=tuple(added))


def longer_benchmark(recipe: Recipe, seed: int, data_root: Root, folders: Sequence[str]) -> Any:
    """The benchmark of a recipe and behind it one step for each of these folders of images, with all its classes."""
    source = read_source(recipe, data_root)
    if recipe.data.transforms != "plain":
        for part in (source.train, source.test):
            _fit_to_augmentation(part, recipe.data.transforms, recipe.data.image_size)
    added = []
    for folder in folders:
        new = read_folder(folder)
        refuse_known(folder, new.class_names, source.class_names)
        added.append(len(new.class_names))
        source = joined_source(source, new)
    return make_benchmark(source, plan_with(recipe, seed, added))


def refuse_known(folder: Path | str, names: Sequence[str], known: Sequence[str]) -> None:
    again = sorted(set(names) & set(known))
    if again:
        raise ValueError(f"{folder} has classes that are known already: {shortened(again)}. Each class belongs to one step.")


def joined_source(first: Source, second: Source) -> Source:
    """The classes of the second behind those of the first, under the statistics and the number of channels of the first."""
    parts = [
        JoinedImages(getattr(first, part), getattr(second, part), len(first.class_names), grey=first.num_channels == 1)
        for part in ("train", "test")
    ]
    return Source(
        train=parts[0],
        test=parts[1],
        class_names=(*first.class_names, *second.class_names),
        image_size=first.image_size or second.image_size,
        num_channels=first.num_channels,
        statistics=first.statistics,
    )


class JoinedImages(FileImages):
    """Images of any kind and, behind them, images in files; the class ids of these are raised by `offset`."""

    def __init__(self, first: TensorImages | FileImages, second: TensorImages | FileImages, offset: int, *, grey: bool):
        targets = [*first.targets, *(target + offset for target in second.targets)]
        super().__init__([], targets, first.sizes | second.sizes, upright=True)
        self.first, self.second, self.grey = first, second, grey

    def __getitem__(self, position):
        start = len(self.first)
        if position < start:
            return self.first[position]
        image = self.second[position - start][0]
        return image.convert("L") if self.grey else image, self.targets[position]
