"""What a user changes of a recipe: its values, by the leaf's path or by its last name if that is
unique; the weights file; the place of the data.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from avalanche_hfc.lab.names import USER_DATA, read_name
from avalanche_hfc.lab.options import Option, Value, check
from avalanche_hfc.lab.schema import Recipe, leaf_options
from avalanche_hfc.lab.settings import PER_CLASS, SHARE, SMALL_WEIGHTS, USER_MEMORY

FIXED = ("model.kind", "method.name")  # another model or method has other options
OTHER_BUDGET = {"memory.mem_size": "memory.per_class", "memory.per_class": "memory.mem_size"}
NAMED = {
    "data.num_steps": "num_steps",
    "data.base_fraction": "base_fraction",
    "memory.per_class": "per_class",
}  # leaves that the name of a recipe follows, as a `Spec` calls them
WORDS = {"none": None, "true": True, "false": False}
FROM_FILE = "the weights file"
# timm's plain ViTs by their width; the heads of all of them have 64 dimensions
BACKBONES = {
    192: "vit_tiny_patch16_224",
    384: "vit_small_patch16_224",
    768: "vit_base_patch16_224.mae",
    1024: "vit_large_patch16_224.mae",
}
GEOMETRY = (
    "model.backbone",
    "model.embed_dim",
    "model.num_heads",
    "model.patch_size",
    "model.msa_blocks",
)
PATCHES = re.compile(r"(?:.*\.)?patch_embed\.proj\.weight")


def override(recipe: Recipe, given: Mapping[str, str]) -> Recipe:
    """Change values of a recipe.

    `memory.mem_size` replaces `memory.per_class` and vice versa; another `model.backbone` resets
    the options of its geometry and drops the packaged weights; a weights file of another width
    brings its geometry; `data.hold_out` replaces `data.test_per_class`. The name follows a changed
    number of steps, base fraction or number of exemplars per class, and `base` then keeps the name
    before; `overrides` and `sources` record the changes.

    Args:
        recipe: The recipe to change; it is not modified.
        given: The new values as text, by dotted path or by the last name of the path if that is
            unique.

    Returns:
        The changed recipe.

    Raises:
        ValueError: If a name is unknown, not unique or given twice, or a value is not allowed.

    Example:
        >>> from avalanche_hfc.lab import recipe
        >>> changed = override(recipe("digits-b0-t5-hfc@demo"), {"epochs": "3"})
        >>> changed.train.epochs, dict(changed.overrides)
        (3, {'train.epochs': 3})
    """
    leaves, options = recipe.leaves(), leaf_options(recipe.model.kind, recipe.method.name)
    changed: dict[str, Value] = {}
    for name, text in given.items():
        leaf = leaf_of(recipe, name)
        if leaf in changed:
            raise ValueError(f"{leaf} is given more than once.")
        changed[leaf] = read(leaf, options[leaf], text)
    for leaf in OTHER_BUDGET.keys() & changed.keys():
        if changed[leaf] is not None:
            changed.setdefault(OTHER_BUDGET[leaf], None)
    if changed.get("data.hold_out") is not None:
        changed.setdefault("data.test_per_class", None)
    if changed.get("model.backbone", leaves.get("model.backbone")) != leaves.get("model.backbone"):
        packaged = ["model.weights"] if leaves["model.weights"] == SMALL_WEIGHTS else []
        changed = {**dict.fromkeys([*GEOMETRY[1:], *packaged]), **changed}
    of_file = fitted(leaves, changed)
    changed = {
        leaf: value
        for leaf, value in (changed | of_file).items()
        if value != leaves[leaf] or (value is not None and recipe.sources.get(leaf) == USER_MEMORY)
    }
    given_by = {leaf: FROM_FILE if leaf in of_file else "given by the user" for leaf in changed}
    name = renamed(recipe.name, changed)
    return Recipe.of(
        name,
        recipe.scale,
        leaves | changed,
        {**recipe.sources, **given_by},
        overrides={**recipe.overrides, **changed},
        paths=recipe.paths,
        base=recipe.base if name == recipe.name else recipe.base or recipe.name,
    )


def renamed(name: str, changed: Mapping[str, Value]) -> str:
    """The name of a recipe of which these leaves are changed.

    Example:
        >>> renamed("folder-b0-t5-hfc@small", {"data.num_steps": 3, "memory.per_class": 7})
        'folder-b0-t3-m7-hfc@small'
    """
    values: Any = {NAMED[leaf]: value for leaf, value in changed.items() if leaf in NAMED}
    spec = read_name(name) if values else None
    return name if spec is None else spec._replace(**values).name


def leaf_of(recipe: Recipe, name: str) -> str:
    """The path behind a path or a unique last name. Dashes count as underscores."""
    asked = name.replace("-", "_")
    leaves = list(recipe.leaves())
    matches = [leaf for leaf in leaves if asked == leaf] or [
        leaf for leaf in leaves if leaf.split(".", 1)[1] == asked
    ]
    if len(matches) > 1:
        raise ValueError(f"{name!r} is not unique in {recipe.name}: say {' or '.join(matches)}.")
    if not matches:
        words = {word: leaf for leaf in leaves for word in (leaf, leaf.split(".", 1)[1])}
        near = dict.fromkeys(words[word] for word in get_close_matches(asked, words, n=3))
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ValueError(
            f"{recipe.name} has no value {name!r}.{hint} `hfc show {recipe.name}` lists its values."
        )
    if matches[0] in FIXED:
        raise ValueError(
            f"{matches[0]} cannot be changed: it has options of its own. Choose another recipe; "
            "`hfc list` shows all."
        )
    return matches[0]


def read(leaf: str, option: Option, text: str) -> Value:
    """The value that a text stands for."""
    try:
        value = read_class_order(text) if leaf == "data.class_order" else parsed(option, text)
        check(leaf, option, value)
    except ValueError:
        raise ValueError(f"{leaf} must be {option}, got {text!r}.") from None
    return value


def parsed(option: Option, text: str) -> Value:
    text = text.strip()
    word = WORDS.get(text.lower(), text)
    if not isinstance(word, str) and type(word) in option.types:
        return word
    if tuple in option.types and (float not in option.types or "," in text):
        return () if word is None else tuple(float(number) for number in text.split(","))
    for kind in (int, float):
        if kind in option.types:
            with suppress(ValueError):
                return kind(text)
    return text


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
    if Path(text).is_file():
        names = Path(text).read_text(encoding="utf-8", errors="replace").splitlines()
    elif "," in text:
        names = text.split(",")
    else:
        return text
    return tuple(name.strip() for name in names if name.strip())


# The weights file


def geometry_of(path: Path) -> dict[str, Value]:
    """Values of a recipe's model by which a file fits: width, patches and number of blocks.

    Args:
        path: A weights file.

    Returns:
        Values by leaf: those of timm's backbone of this width, whose geometry the leaves at None
        stand for. Empty for a file that is not of a plain ViT of timm.
    """
    from avalanche_hfc.models.weights import blocks_in, read_tensors

    tensors = read_tensors(path)
    patches = [tensor for name, tensor in tensors.items() if PATCHES.fullmatch(name)]
    if len(patches) != 1 or patches[0].ndim != 4 or patches[0].shape[0] not in BACKBONES:
        return {}
    width, _, patch_size, _ = patches[0].shape
    depth = max(blocks_in(tensors).values(), default=0)
    return {
        "model.backbone": BACKBONES[width],
        "model.embed_dim": None,
        "model.num_heads": None,
        "model.patch_size": patch_size,
        "model.msa_blocks": depth,
    }


def fitted(leaves: Mapping[str, Value], changed: Mapping[str, Value]) -> dict[str, Value]:
    """What a weights file among the changed values changes further: the geometry, where the file's
    width is not the recipe's and the user has not changed it.
    """
    weights = str(changed.get("model.weights"))
    if leaves.get("model.embed_dim") is None or any(leaf in changed for leaf in GEOMETRY):
        return {}
    geometry = geometry_of(Path(weights)) if Path(weights).is_file() else {}
    if geometry and leaves["model.kind"] != "vit":
        geometry["model.msa_blocks"] = (
            int(str(geometry["model.msa_blocks"])) - 1
        )  # TSA is the last one
    return geometry


# Your data


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
    if recipe.sources.get(leaf) != USER_MEMORY:
        return recipe
    num_classes, images = smallest_class(recipe.data.dataset, data)
    kept = min(PER_CLASS, max(1, images // SHARE))
    changed = (
        {"per_class": kept} if leaf == "memory.per_class" else {"mem_size": kept * num_classes}
    )
    return replace(recipe, memory=replace(recipe.memory, **changed))


def smallest_class(dataset: str, data: Path | str) -> tuple[int, int]:
    """(number of classes, training images of the smallest class) of your data, without
    looking at an image.
    """
    if dataset == "npz":
        from avalanche_hfc.benchmarks.npz import smallest_class as npz_smallest_class

        return npz_smallest_class(data)
    from avalanche_hfc.benchmarks.files import divided, scan

    parts = scan(data).parts
    train = divided(parts[""])[0] if "" in parts else next(iter(parts.values()))
    return len(train), min((len(images) for images in train.values()), default=0)


def memory_line(recipe: Recipe) -> str | None:
    """The default memory for your data, in one line; None if it is not used."""
    if recipe.sources.get("memory.per_class") != USER_MEMORY:
        return None
    memory = recipe.memory
    kept = f"{memory.per_class} per class" if memory.per_class else f"{memory.mem_size} in total"
    return f"Exemplars: {kept} ({USER_MEMORY}; change with --mem-size or --per-class)."
