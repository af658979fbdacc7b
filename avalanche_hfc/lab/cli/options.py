"""Options that several commands share, and commands that take values of a recipe."""

import re
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path

import click

from avalanche_hfc.lab.machine import WORKERS_HELP, most_workers, silence_host
from avalanche_hfc.lab.schema import DataRecipe, MemoryRecipe, TrainRecipe
from avalanche_hfc.lab.tables import ALL_TABLES, SPECS

AT_LEAST_1 = click.IntRange(min=1)
FOLDER = click.Path(path_type=Path, file_okay=False)
PATH = click.Path(path_type=Path)
DEVICE_HELP = "auto: the GPU if torch finds one, else the CPU. Or as torch calls it: cpu, cuda:1."
device_option = click.option("--device", default="auto", show_default=True, help=DEVICE_HELP)
workers_option = click.option(
    "--workers", type=click.IntRange(0, most_workers()), help=WORKERS_HELP
)
tensorboard_option = click.option(
    "--tensorboard",
    is_flag=True,
    help="Also write the curves for TensorBoard, into the folder tensorboard of the run.",
)
jobs_option = click.option(
    "--jobs",
    type=AT_LEAST_1,
    default=1,
    show_default=True,
    help="Number of runs at a time, one thread each if several.",
)
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


def read_seeds(context: object, parameter: object, text: str | None) -> tuple[int, ...]:
    """The seeds of a text such as 0-4 or 0,2,5; none without a text.

    Raises:
        click.BadParameter: The text has another form, or names a seed twice.

    Example:
        >>> read_seeds(None, None, "0-2,7")
        (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for word in () if text is None else text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", word.strip())
        if match is None:
            raise click.BadParameter(f"{text!r} is not of the form 0-4 or 0,2,5.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    if text is not None and (not seeds or len(set(seeds)) < len(seeds)):
        raise click.BadParameter(f"{text!r} must name each seed once, as in 0-4 or 0,2,5.")
    return tuple(seeds)


def recipe_names(context: object, parameter: object, start: str) -> list[str]:
    return [name for name in SPECS if name.startswith(start)]


def table_names(context: object, parameter: object, start: str) -> list[str]:
    return [name for name in ALL_TABLES if name.startswith(start)]


def all_names(context: object, parameter: object, start: str) -> list[str]:
    return [name for name in (*ALL_TABLES, *SPECS) if name.startswith(start)]


NEAR = 0.83  # from this similarity on, an unknown name is a misspelt option
VALUES = [
    f"{section}.{field.name}"
    for section, cls in (("data", DataRecipe), ("train", TrainRecipe), ("memory", MemoryRecipe))
    for field in fields(cls)
]  # of every recipe


class RecipeCommand(click.Command):
    """A command that takes values of a recipe, anywhere among its other options. They are passed on
    as `overrides`, texts by name.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        known = [word for option in options for word in (*option.opts, *option.secondary_opts)]
        kept, ctx.params["overrides"] = split_overrides(args, known)
        return super().parse_args(ctx, kept)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = " ".join(f"--{value.replace('_', '-')}" for value in VALUES)
        indent = " " * (formatter.current_indent + formatter.indent_increment)
        lines = textwrap.wrap(
            names,
            formatter.width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        with formatter.section("Values of every recipe, model and method apart"):
            formatter.write("\n".join(lines) + "\n")
        formatter.write_paragraph()
        formatter.write_text("`hfc show RECIPE` lists all values of a recipe.")


def split_overrides(
    arguments: Iterable[str], known: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """The arguments of a command, and apart from them the values of a recipe, by name: options that
    are not `known`. `override` reads and checks the values.
    """
    kept: list[str] = []
    overrides: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        option, sign, text = word.partition("=")
        if word == "--":
            kept += [word, *rest]
        elif not word.startswith("--") or option in known:
            kept.append(word)
        else:
            refuse_misspelt(option, list(known))
            name = option.removeprefix("--")
            text = text if sign else next(rest, "")
            if not sign and (not text or text.startswith("--")):
                raise click.UsageError(
                    f"{option} needs a value, as in {option} 3. It is not an option of "
                    "this command."
                )
            if name in overrides:
                raise click.UsageError(f"{option} is given more than once.")
            overrides[name] = text
    return kept, overrides


def refuse_misspelt(option: str, known: list[str]) -> None:
    """Raise for a name that is much like one of the command's options."""
    near = get_close_matches(option, known, cutoff=NEAR)
    name = option.removeprefix("--").replace("-", "_")
    if near and name not in [value.split(".")[1] for value in VALUES]:
        raise click.NoSuchOption(option, possibilities=near)
