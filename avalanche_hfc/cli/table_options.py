"""The options of the commands that run the cells of a table."""

from collections.abc import Callable
from pathlib import Path

import click

from avalanche_hfc.cli.device import device_option
from avalanche_hfc.engine.machine import WORKERS_HELP, most_workers
from avalanche_hfc.recipes import SCALES

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
    click.option("--no-run", is_flag=True, help="Take what is there; run nothing."),
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
