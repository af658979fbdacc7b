"""Recipes by name."""

from difflib import get_close_matches
from functools import cache

from avalanche_hfc._names import lookup
from avalanche_hfc.lab.schema import SCALES, Recipe
from avalanche_hfc.lab.settings import from_layers, layers
from avalanche_hfc.lab.tables import SPECS
from avalanche_hfc.lab.user_data import is_user_recipe, user_recipe


def all_names(scale: str | None = None) -> list[str]:
    """The names of all recipes, or of those of one scale.

    Args:
        scale: One of `SCALES`. By default all scales.

    Returns:
        The names.

    Raises:
        ValueError: If the scale does not exist.

    Example:
        >>> "digits-b0-t5-hfc@demo" in all_names("demo")
        True
    """
    if scale is not None:
        lookup(SCALES, scale, "scale")
    return [name for name, spec in SPECS.items() if scale in (None, spec.scale)]


@cache
def recipe(name: str) -> Recipe:
    """The recipe of a name.

    Args:
        name: one of `all_names()`, or a name for your data or method, such as `folder-t5-hfc`.

    Returns:
        The recipe, with the source of each of its values.

    Raises:
        ValueError: the name does not exist; with the nearest that do.

    Example:
        >>> recipe("digits-b0-t5-hfc@demo").train.epochs
        20
    """
    if is_user_recipe(name):
        return user_recipe(name)
    if name not in SPECS:
        near = get_close_matches(name, SPECS, n=4, cutoff=0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"Unknown recipe {name!r}.{hint} `hfc list` shows all.")
    return from_layers(name, SPECS[name].scale, layers(SPECS[name]))


def untuned(name: str) -> Recipe:
    """The recipe of a name before anything is tuned, from which trials start.

    Args:
        name: One of `all_names()`.

    Returns:
        The recipe with the values of its protocol.

    Example:
        >>> untuned("cifar100-b0-t5-podnet@small").train.lr
        0.0005
    """
    return from_layers(name, SPECS[name].scale, layers(SPECS[name], tuned=False))
