"""`hfc show`."""

import click

from avalanche_hfc.cli.completion import recipes
from avalanche_hfc.cli.loading import announce_loading
from avalanche_hfc.cli.overrides import RecipeCommand, overrides_of
from avalanche_hfc.recipes import Recipe, override, recipe
from avalanche_hfc.recipes.describe import (
    HFC_FORMS,
    command,
    cost,
    expectation,
    other_forms,
    text_of,
)
from avalanche_hfc.recipes.listing import tables_of


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE", shell_complete=recipes)
@click.pass_context
def show(context: click.Context, name: str) -> None:
    """Every value of RECIPE with its source, its command, cost and what to expect.

    Values can be changed: hfc show cifar100-b0-t10-hfc@small --epochs 3 --method.relation-weight
    0.5
    """
    announce_loading()
    chosen = override(recipe(name), overrides_of(context.args))
    click.echo(chosen.name)
    summary = {
        "command": command(chosen),
        "cost": cost(chosen),
        "expect": expectation(chosen),
        "tables": ", ".join(tables_of(name)),
    }
    for heading, text in summary.items():
        click.echo(f"  {heading:8} {text}")
    show_values(chosen)
    show_forms(chosen)


def show_values(chosen: Recipe) -> None:
    leaves = {leaf: text_of(value) for leaf, value in chosen.leaves().items()}
    widths = max(map(len, leaves)), max(map(len, leaves.values()))
    part = ""
    for leaf, text in leaves.items():
        if leaf.split(".")[0] != part:
            part = leaf.split(".")[0]
            click.echo()
        click.echo(f"{leaf:{widths[0]}}  {text:{widths[1]}}  {chosen.sources[leaf]}")


def show_forms(chosen: Recipe) -> None:
    if chosen.method.name != "hfc":
        return
    click.echo(
        "\nmethod.form, the losses of HFCStrategy (z: share of old classes); those of this "
        "recipe are marked *"
    )
    form_of_recipe = dict(chosen.method.options)["form"]
    for form, parts in HFC_FORMS.items():
        click.echo(
            f"{'*' if form == form_of_recipe else ' '} {form:9} "
            + "; ".join(f"{part}: {words}" for part, words in parts.items())
        )
    for name, changed in other_forms(chosen).items():
        click.echo(f"\n{name} changes")
        for leaf, (here, there) in changed.items():
            click.echo(f"  {leaf}: {text_of(here)} -> {text_of(there)}")
