"""Values given on the command line in place of a recipe's: --epochs 3,
--method.relation-weight=0.5.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches

import click

from avalanche_hfc.recipes.schema import DataRecipe, MemoryRecipe, TrainRecipe

NEAR = 0.83  # from this likeness on, an unknown name is a misspelt option
EVERY_RECIPE = {"data": DataRecipe, "train": TrainRecipe, "memory": MemoryRecipe}


class RecipeCommand(click.Command):
    """A command that takes values of a recipe, anywhere among its own options. They are left in
    `context.args`, for `overrides_of`.
    """

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        known = [word for option in options for word in (*option.opts, *option.secondary_opts)]
        kept: list[str] = []
        values: list[str] = []
        rest = iter(args)
        for word in rest:
            name = word.partition("=")[0]
            if word == "--":
                kept += [word, *rest]
            elif not word.startswith("--") or name in known:
                kept.append(word)
            else:
                refuse_misspelt(ctx, name, known)
                values += [word] if "=" in word else [word, *value_after(word, rest)]
        remaining = super().parse_args(ctx, kept)
        ctx.args += values
        return remaining

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = [
            f"--{part}.{field.name.replace('_', '-')}"
            for part, section in EVERY_RECIPE.items()
            for field in fields(section)
        ]
        with formatter.section("Values of every recipe, model and method apart"):
            indent = " " * formatter.current_indent
            formatter.write(
                textwrap.fill(
                    " ".join(names),
                    formatter.width,
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_on_hyphens=False,
                )
                + "\n"
            )
        formatter.write_paragraph()
        formatter.write_text("`hfc show RECIPE` lists all values of a recipe.")


def refuse_misspelt(ctx: click.Context, name: str, known: list[str]) -> None:
    """Raise for a name that is much like one of the command's options."""
    near = get_close_matches(name, known, cutoff=NEAR)
    short = name.removeprefix("--").replace("-", "_")
    leaves = {field.name for section in EVERY_RECIPE.values() for field in fields(section)}
    if near and short not in leaves:
        raise click.NoSuchOption(name, possibilities=near, ctx=ctx)


def value_after(word: str, rest: Iterable[str]) -> list[str]:
    value = next(iter(rest), "")
    if not value or value.startswith("--"):
        raise click.UsageError(
            f"{word} needs a value, as in {word} 3. It is no option of this command."
        )
    return [value]


def overrides_of(arguments: Iterable[str]) -> dict[str, str]:
    """name -> text, of arguments that are no option of the command. `override` reads and checks
    them.
    """
    overrides: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("--"):
            raise click.UsageError(
                f"Unexpected argument {word!r}. A value of the recipe is given as --epochs 3."
            )
        name, sign, text = word[2:].partition("=")
        if not sign:
            text = value_after(word, rest)[0]
        if name in overrides:
            raise click.UsageError(f"--{name} is given twice.")
        overrides[name] = text
    return overrides
