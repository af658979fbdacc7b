"""The option of all commands that compute."""

import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path

import click

from avalanche_hfc.lab import SCALES
from avalanche_hfc.lab.machine import WORKERS_HELP, most_workers, silence_host
from avalanche_hfc.lab.schema import DataRecipe, MemoryRecipe, TrainRecipe
from avalanche_hfc.lab.tables import ALL_TABLES, SPECS

DEVICE_HELP = "auto: the GPU if torch finds one, else the CPU. Or as torch calls it: cpu, cuda:1."
device_option = click.option("--device", default="auto", show_default=True, help=DEVICE_HELP)


allow_code = click.option(
    "--allow-code",
    is_flag=True,
    help="Import the class of a run whose method is module:Class. Only for folders you trust.",
)


def announce_loading() -> None:
    """Say that torch and Avalanche are being loaded, unless they are, and silence the host."""
    silence_host()
    if "torch" not in sys.modules:
        click.echo("Loading torch and Avalanche …", err=True)


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of a text such as 0-4 or 0,2,5.

    Args:
        text: Numbers and ranges with commas between.

    Returns:
        The seeds, in the order given.

    Raises:
        click.BadParameter: The text has another form.

    Example:
        >>> seeds_of("0-2,7")
        (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise click.BadParameter(f"{text!r} is not of the form 0-4 or 0,2,5.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(seeds)


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
            raise click.UsageError(f"--{name} is given more than once.")
        overrides[name] = text
    return overrides


RUN_OPTIONS = (
    click.option(
        "--scale",
        default="demo",
        show_default=True,
        help="; ".join(f"{name}: {words}" for name, words in SCALES.items()) + ".",
    ),
    click.option(
        "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds 0, 1, …"
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="ROW",
        help="This row alone, as icarl or icarl+hfc; may be given several times.",
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs"),
        show_default=True,
        help="Run folders.",
    ),
    click.option(
        "--data", type=click.Path(path_type=Path), help="Where the images are; digits need none."
    ),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Runs at a time, one thread each if several.",
    ),
    click.option(
        "--on",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where to run: here, or on the Ray cluster that RAY_ADDRESS names; without one, Ray "
        "is started here.",
    ),
    device_option,
    click.option(
        "--workers",
        type=click.IntRange(0, most_workers()),
        help=WORKERS_HELP,
    ),
    click.option("--no-run", is_flag=True, help="Use the runs that are finished; run nothing."),
    click.option(
        "--commands",
        is_flag=True,
        help="Print a command for each run that is not finished, and run nothing.",
    ),
    click.option(
        "--paper",
        type=click.Path(path_type=Path),
        help="The paper's numbers  [default: experiments/paper.csv beside the package]",
    ),
)


def run_options(command: Callable) -> Callable:
    """The options of a command that runs the cells of a table."""
    for option in reversed(RUN_OPTIONS):
        command = option(command)
    return command
