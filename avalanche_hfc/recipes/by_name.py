"""Recipes by name."""

from difflib import get_close_matches
from functools import cache

from avalanche_hfc._names import lookup
from avalanche_hfc.recipes.options import Value
from avalanche_hfc.recipes.schema import SCALES, Recipe
from avalanche_hfc.recipes.settings import layers
from avalanche_hfc.recipes.tables import SPECS
from avalanche_hfc.recipes.user_data import asks_for_own, own_recipe


def all_names(scale: str | None = None) -> list[str]:
    """The names of all recipes, or of those of a scale."""
    if scale is not None:
        lookup(SCALES, scale, "scale")
    return [name for name, spec in SPECS.items() if scale in (None, spec.scale)]


@cache
def recipe(name: str) -> Recipe:
    """The recipe of a name; of one that does not exist, a ValueError with the nearest."""
    if asks_for_own(name):
        return own_recipe(name)
    if name not in SPECS:
        near = get_close_matches(name, SPECS, n=4, cutoff=0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"Unknown recipe {name!r}.{hint} `hfc list` shows all.")
    spec = SPECS[name]
    leaves: dict[str, Value] = {}
    sources: dict[str, str] = {}
    for source, values in layers(spec):
        leaves |= values
        sources |= dict.fromkeys(values, source)
    return Recipe.of(name, spec.scale, leaves, sources)
