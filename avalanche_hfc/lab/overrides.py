"""Values of a recipe that a user changes: typed, checked, by the leaf's path or by its last name if
that is unique.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from avalanche_hfc.lab.options import Option, Value, check, describe
from avalanche_hfc.lab.schema import CHOSEN, Recipe, leaf_options
from avalanche_hfc.lab.settings import SMALL_WEIGHTS
from avalanche_hfc.lab.user_data import MEMORY, read_class_order
from avalanche_hfc.lab.weights_file import FROM_FILE, GEOMETRY, check_blocks, fitted

FIXED = tuple(
    f"{part}.{name}" for part, name in CHOSEN.items()
)  # another model or method has other options: another recipe
OTHER_BUDGET = {"memory.mem_size": "memory.per_class", "memory.per_class": "memory.mem_size"}
CLASS_ORDER = "data.class_order"
PROTOCOL = re.compile(
    r"(?P<dataset>[a-z0-9]+)-b(?P<base>\d+)-t(?P<steps>\d+)(?P<memory>-m\d+)?(?=-)"
)
WORDS = {"none": None, "true": True, "false": False}


def override(recipe: Recipe, given: Mapping[str, str]) -> Recipe:
    """Change values of a recipe.

    `memory.mem_size` replaces `memory.per_class` and vice versa; another `model.backbone` resets
    the options of its geometry and drops the packaged weights, a weights file of another width
    brings its geometry; `data.hold_out` replaces
    `data.test_per_class`. The name follows a changed number of steps, base fraction or number of
    exemplars per class, and `base` then keeps the name before; `overrides` and `sources` record the
    changes.

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
    for leaf in [leaf for leaf in changed if leaf in OTHER_BUDGET and changed[leaf] is not None]:
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
        if value != leaves[leaf] or replaces_default(recipe, leaf, value)
    }
    if not changed.keys().isdisjoint(("model.weights", "model.msa_blocks")):
        check_blocks(leaves | changed)
    given_by = {leaf: FROM_FILE if leaf in of_file else "given by the user" for leaf in changed}
    sources = {**recipe.sources, **given_by}
    overrides = {**recipe.overrides, **changed}
    name = renamed(recipe.name, changed)
    base = recipe.base if name == recipe.name else recipe.base or recipe.name
    changed_recipe = Recipe.of(name, recipe.scale, leaves | changed, sources, overrides)
    return replace(changed_recipe, paths=recipe.paths, base=base)


def replaces_default(recipe: Recipe, leaf: str, value: Value) -> bool:
    """Whether a value takes the place of a default that follows the data: the same number, too."""
    return leaf in OTHER_BUDGET and recipe.sources.get(leaf) == MEMORY and value is not None


def renamed(name: str, changed: Mapping[str, Value]) -> str:
    """The name of a recipe of which these leaves are changed.

    Example:
        >>> renamed("folder-b0-t5-hfc@small", {"data.num_steps": 3, "memory.per_class": 7})
        'folder-b0-t3-m7-hfc@small'
    """
    protocol = PROTOCOL.match(name)
    if protocol is None:
        return name
    base, steps, memory = protocol["base"], protocol["steps"], protocol["memory"] or ""
    fraction = changed.get("data.base_fraction")
    if isinstance(fraction, int | float):
        base = str(round(100 * fraction))
    if "memory.per_class" in changed:
        per_class = changed["memory.per_class"]
        memory = "" if per_class is None else f"-m{per_class}"
    steps = str(changed.get("data.num_steps", steps))
    return f"{protocol['dataset']}-b{base}-t{steps}{memory}{name[protocol.end() :]}"


def leaf_of(recipe: Recipe, name: str) -> str:
    """The path behind a path or a unique last name. Dashes count as underscores."""
    asked = name.replace("-", "_")
    leaves = list(recipe.leaves())
    short = {leaf.split(".", 1)[1]: leaf for leaf in leaves}
    matches = [leaf for leaf in leaves if asked == leaf] or [
        leaf for leaf in leaves if leaf.split(".", 1)[1] == asked
    ]
    if len(matches) > 1:
        raise ValueError(f"{name!r} is not unique in {recipe.name}: say {' or '.join(matches)}.")
    if not matches:
        near = dict.fromkeys(
            short.get(word, word) for word in get_close_matches(asked, [*leaves, *short], n=3)
        )
        hint = (
            f"Did you mean {', '.join(near)}?"
            if near
            else f"`hfc show {recipe.name}` lists its values."
        )
        raise ValueError(f"{recipe.name} has no value {name!r}. {hint}")
    if matches[0] in FIXED:
        raise ValueError(
            f"{matches[0]} cannot be changed: its options would be others. Choose another "
            "recipe; `hfc list` shows all."
        )
    return matches[0]


def read(leaf: str, option: Option, text: str) -> Value:
    """The value that a text stands for."""
    value = read_class_order(text) if leaf == CLASS_ORDER else _read(option, text.strip())
    try:
        check(leaf, option, value)
    except ValueError:
        raise ValueError(f"{leaf} must be {describe(option)}, got {text!r}.") from None
    return value


def _read(option: Option, text: str) -> Value:
    word = WORDS.get(text.lower(), text)
    if type(word) in option.types and not isinstance(word, str):
        return word
    try:
        if tuple in option.types and (float not in option.types or "," in text):
            return () if text.lower() == "none" else tuple(float(part) for part in text.split(","))
        if int in option.types:
            return int(text)
        if float in option.types:
            return float(text)
    except ValueError:
        pass
    return text
