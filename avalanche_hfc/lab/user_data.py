"""Recipes for your data and your methods, read from a name of the grammar of `names`: all parts
but the first may be left out.

    folder      folder-b0-t5-hfc@small, the same in full      npz-t4-podnet@demo
    folder-b50-t10-m20-mymethods:Mine@paper

`folder` is a folder of images as `split_folder` reads it, `npz` a file as `split_npz` reads it;
`--data` specifies where it is. A method `module:Class` also works with the data sets of the paper:
cifar100-b0-t10-mymethods:Mine@small.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from avalanche_hfc._names import lookup
from avalanche_hfc.benchmarks.files import divided, scan
from avalanche_hfc.lab.names import BACKBONES, ROWS, Spec
from avalanche_hfc.lab.options import CANNOT_RUN, METHODS, Value
from avalanche_hfc.lab.schema import SCALES, Recipe
from avalanche_hfc.lab.settings import Layer, from_layers, layers, values
from avalanche_hfc.lab.signatures import method_options, total_only, without_memory
from avalanche_hfc.lab.user_methods import is_user_method

USER_DATA = ("folder", "npz")
GIVEN = "the recipe's name"
CHOICE = "our choice for your data; nothing was tuned"
RESIZED = "our choice: your images are resized to squares of this side"
PER_CLASS = 20
SHARE = 5  # of this many training images of a class, one is kept at most
MEMORY = (
    f"our choice for your data: {PER_CLASS} exemplars per class, or a fifth of the training images "
    "of the smallest class if that is less"
)
IMAGE_SIZES = {"paper": 224, "small": 32, "medium": 32, "demo": 32}
NAME = re.compile(
    r"(?P<dataset>[a-z0-9]+)(?:-b(?P<base>\d+))?(?:-t(?P<steps>\d+))?(?:-m(?P<per_class>\d+))?"
    r"(?:-(?P<row>.+?))??(?P<losses>\+hfc)?(?P<backbone>-resnet32|-resnet18|-convit)?(?:@(?P<scale>[^@]*))?"
)


def is_user_recipe(name: str) -> bool:
    """Whether a name refers to your data or your method."""
    return re.split("[-@]", name)[0] in USER_DATA or is_user_method(name)


def user_recipe(name: str) -> Recipe:
    """The recipe of such a name; of one that is not understood, a ValueError."""
    spec = read_name(name)
    return from_layers(spec.name, spec.scale, user_layers(spec))


def read_name(name: str) -> Spec:
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"Unknown recipe {name!r}. Names are as in folder-b0-t5-hfc@small.")
    dataset, scale, row = match["dataset"], match["scale"] or "small", match["row"] or "hfc"
    lookup(SCALES, scale, "scale")
    lookup(dict.fromkeys(data_sets(scale)), dataset, f"data set at scale {scale}")
    if match["base"] not in (None, "0", "50"):
        raise ValueError(
            f"{name}: b{match['base']} must be b0, equal steps, or b50, half of the classes first."
        )
    backbones = {word: key for key, word in BACKBONES.items()}
    spec = Spec(
        dataset=dataset,
        base_fraction=0.5 if match["base"] == "50" else 0,
        num_steps=int(match["steps"] or 5),
        per_class=int(match["per_class"]) if match["per_class"] else None,
        row=row,
        losses="hfc" if match["losses"] else "host",
        backbone=backbones[match["backbone"] or ""],
        scale=scale,
    )
    check_row(spec)
    return spec


def data_sets(scale: str) -> tuple[str, ...]:
    """Your data, and the data sets of a scale, which a method that you wrote may be trained on."""
    return *USER_DATA, *{
        "paper": ("cifar100", "imagenet100", "imagenet1000"),
        "small": ("cifar100",),
        "medium": ("cifar100",),
        "demo": ("digits",),
    }[scale]


def check_row(spec: Spec, *, besides: Collection[str] = ()) -> None:
    """A ValueError for a method that is unknown, with the known ones; those in `besides` are not
    named.
    """
    rows = [
        name for name in dict.fromkeys([*METHODS, *ROWS]) if name not in (*CANNOT_RUN, *besides)
    ]
    if not is_user_method(spec.row) and spec.row not in rows:
        near = get_close_matches(spec.row, rows, n=2)
        if spec.row.isdigit():
            near = [f"t{spec.row} for {spec.row} steps"]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(
            f"Unknown method {spec.row!r}. Known: {', '.join(rows)}.{hint} Your own: module:Class."
        )
    method = spec.parts.method
    if spec.losses == "hfc" and "losses" not in method_options(method):
        raise ValueError(f"{method} takes no losses of HFC: leave +hfc out.")
    if spec.per_class is not None and (without_memory(method) or total_only(method)):
        raise ValueError(
            f"{method} takes no number of exemplars of each class: leave -m{spec.per_class} out."
        )


def user_layers(spec: Spec) -> Iterator[Layer]:
    """Those of a recipe on ImageNet-100, or on the paper's data set that is meant, and what differs
    from them.
    """
    stand_in = spec
    if spec.dataset in USER_DATA:
        stand_in = stand_in._replace(dataset="digits" if spec.scale == "demo" else "imagenet100")
    if is_user_method(spec.row):
        stand_in = stand_in._replace(row="baseline", losses="host")
    try:
        known = list(layers(stand_in, tuned=not is_user_method(spec.row)))
    except KeyError:
        raise ValueError(
            f"{spec.name}: no training of {spec.row} with this backbone is published. Take "
            "@small, change values."
        ) from None
    if is_user_method(spec.row):
        yield from (
            (source, leaves)
            for source, leaves in known
            if not any(leaf.startswith("method.") for leaf in leaves)
        )
        yield from method_layers(spec)
    else:
        yield from known
    if spec.dataset in USER_DATA:
        yield from data_layers(spec)


def method_layers(spec: Spec) -> Iterator[Layer]:
    options = method_options(spec.row)
    yield GIVEN, {"method.name": spec.row}
    yield (
        "default of the class",
        values("method", **{name: option.default for name, option in options.items()}),
    )
    if spec.losses == "hfc":
        yield GIVEN, {"method.losses": "hfc"}
    if without_memory(spec.row):
        yield "the class takes no mem_size", {"memory.mem_size": None, "memory.per_class": None}


def data_layers(spec: Spec) -> Iterator[Layer]:
    yield (
        GIVEN,
        values(
            "data",
            dataset=spec.dataset,
            num_steps=spec.num_steps,
            base_fraction=spec.base_fraction,
        ),
    )
    yield (
        "all of your images",
        values("data", train_per_class=None, test_per_class=None, num_classes=None),
    )
    yield "an order drawn by the seed", {"data.class_order": None}
    size = 32 if spec.model == "resnet32" else IMAGE_SIZES[spec.scale]
    yield RESIZED, {"data.image_size": size}
    if not without_memory(spec.parts.method):
        yield from memory_layers(spec)
    if spec.scale == "demo":
        yield "images are read as RGB", {"model.in_channels": 3}
        if "resnet" not in spec.model:
            yield CHOICE, {"model.patch_size": 8}
        if spec.row == "foster":  # the values of `hfc demo` are for its two exemplars per class
            names = ("beta", "compress_beta")
            yield (
                "default of the strategy",
                values(
                    "method", **{name: method_options("foster")[name].default for name in names}
                ),
            )


def memory_layers(spec: Spec) -> Iterator[Layer]:
    if spec.per_class is not None:
        yield GIVEN, {"memory.mem_size": None, "memory.per_class": spec.per_class}
    elif total_only(spec.parts.method):
        yield MEMORY, {"memory.mem_size": PER_CLASS, "memory.per_class": None}
    else:
        yield MEMORY, {"memory.mem_size": None, "memory.per_class": PER_CLASS}


def with_data(recipe: Recipe, data: Path | str | None, *, skip_bad: bool = False) -> Recipe:
    """The recipe with a note of where the user's data is, and with the memory that fits the data
    unless the user has chosen one; recipes of other data as they are.

    Args:
        recipe: The recipe.
        data: The folder or npz file.
        skip_bad: Leave out files that are no readable images.

    Raises:
        ValueError: No data is given, or `skip_bad` for data that is no folder.
        FileNotFoundError: The data is not there.
    """
    if skip_bad and recipe.data.dataset != "folder":
        raise ValueError(f"{recipe.name}: --skip-bad is for folders of images only.")
    if recipe.data.dataset not in USER_DATA:
        return recipe
    if data is None:
        what = "the folder of images" if recipe.data.dataset == "folder" else "the npz file"
        raise ValueError(f"{recipe.name}: name {what} with --data.")
    noted: dict[str, Value] = {"data": str(Path(data).resolve())}
    if skip_bad:
        noted["skip_bad"] = True
    return replace(with_memory(recipe, data), paths={**recipe.paths, **noted})


def with_memory(recipe: Recipe, data: Path | str) -> Recipe:
    """The recipe with the default memory for this data, if its memory is the default."""
    leaf = "memory.mem_size" if recipe.memory.per_class is None else "memory.per_class"
    if recipe.sources.get(leaf) != MEMORY:
        return recipe
    num_classes, images = smallest_class(recipe.data.dataset, data)
    kept = min(PER_CLASS, max(1, images // SHARE))
    value = kept if leaf == "memory.per_class" else kept * num_classes
    changed = {"per_class": value} if leaf == "memory.per_class" else {"mem_size": value}
    return replace(recipe, memory=replace(recipe.memory, **changed))


def smallest_class(dataset: str, data: Path | str) -> tuple[int, int]:
    """(number of classes, training images of the smallest class) of your data, without
    looking at an image.
    """
    if dataset == "npz":
        from avalanche_hfc.benchmarks.npz import smallest_class as npz_smallest_class

        return npz_smallest_class(data)
    parts = scan(data).parts
    train = divided(parts[""])[0] if "" in parts else next(iter(parts.values()))
    return len(train), min((len(images) for images in train.values()), default=0)


def memory_line(recipe: Recipe) -> str | None:
    """The default memory for your data, in one line; None if it is not used."""
    if recipe.sources.get("memory.per_class") != MEMORY:
        return None
    memory = recipe.memory
    kept = f"{memory.per_class} per class" if memory.per_class else f"{memory.mem_size} in total"
    return f"Exemplars: {kept} ({MEMORY}; change with --mem-size or --per-class)."


def read_class_order(text: str) -> Value:
    """A class order from the command line.

    Args:
        text: "seed", a name of `CLASS_ORDERS` or "paper", names of classes with commas between, or
            a file with one name per line.

    Returns:
        None for "seed", the names of classes as a tuple, or the name of an order.

    Example:
        >>> read_class_order("cat, ant,dog")
        ('cat', 'ant', 'dog')
    """
    if text.lower() in ("seed", "none"):
        return None
    if "," not in text and not Path(text).is_file():
        return text
    if Path(text).is_file():
        try:
            names = Path(text).read_text(encoding="utf-8").splitlines()
        except ValueError:
            raise ValueError(f"data.class_order: {text} is not a text file in UTF-8.") from None
    else:
        names = text.split(",")
    order = tuple(name.strip() for name in names if name.strip())
    if not order:
        raise ValueError(f"data.class_order: {text!r} holds no name of a class.")
    return order
