"""Names that a shell completes. No torch."""

import click

from avalanche_hfc.recipes.listing import ALL_TABLES
from avalanche_hfc.recipes.tables import SPECS


def recipes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Recipes whose name begins like this."""
    return [name for name in SPECS if name.startswith(incomplete)]


def tables(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Tables whose name begins like this."""
    return [name for name in ALL_TABLES if name.startswith(incomplete)]


def recipes_and_tables(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Tables and recipes whose name begins like this."""
    return [*tables(context, parameter, incomplete), *recipes(context, parameter, incomplete)]
