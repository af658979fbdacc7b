"""`hfc plan`."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from avalanche_hfc._names import counted
from avalanche_hfc.lab import SCALES, Recipe, override, recipe
from avalanche_hfc.lab.cli.options import (
    DEVICE_HELP,
    RecipeCommand,
    announce_loading,
    overrides_of,
    recipes_and_tables,
)
from avalanche_hfc.lab.listing import ALL_TABLES
from avalanche_hfc.lab.user_data import with_data


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE|TABLE", shell_complete=recipes_and_tables)
@click.option(
    "--device",
    "devices",
    multiple=True,
    default=["auto"],
    show_default=True,
    help=f"{DEVICE_HELP} May be given several times.",
)
@click.option(
    "--scale",
    type=click.Choice(list(SCALES)),
    default="demo",
    show_default=True,
    help="Of a table.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of a table: runs of each recipe.",
)
@click.option("--data", "data_root", type=click.Path(path_type=Path), help="Where the data is.")
@click.option(
    "--synthetic", is_flag=True, help="Random images of the right size instead of the data."
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Training batches to time in each of two steps.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="Of a recipe: instead of timing it, which precision fits a card of this "
    "size, such as 8GB.",
)
@click.pass_context
def plan(
    context: click.Context,
    name: str,
    devices: Sequence[str],
    scale: str,
    seeds: int,
    data_root: Path | None,
    synthetic: bool,
    batches: int,
    memory: str | None,
) -> None:
    """Hours, memory and disk that RECIPE, or all runs of TABLE, need, from a few timed batches.
    Nothing is written.

    Values can be changed as in hfc run: hfc plan digits-b0-t5-hfc@demo --epochs 3. A table is added
    up for each device: hfc plan cifar100 --scale paper --synthetic --device cpu --device cuda
    """
    announce_loading()
    overrides = overrides_of(context.args)
    from avalanche_hfc.lab.plan import plan_all
    from avalanche_hfc.lab.ranks import check_device
    from avalanche_hfc.lab.table import cells_of, runs_of

    devices = [check_device(device) for device in devices]
    is_table = name in ALL_TABLES
    if memory is not None:
        if is_table:
            raise click.UsageError(f"--memory is for a recipe; {name} is a table.")
        tell_memory(override(recipe(name), overrides), memory)
        return
    if is_table:
        chosen = [run.recipe for run in runs_of(cells_of(name, scale), 1, Path(), overrides)]
    else:
        chosen = [override(recipe(name), overrides)]
        if data_root is not None:
            chosen = [with_data(chosen[0], data_root)]
    for device in devices:
        finished = []
        estimates = plan_all(
            chosen, device=device, data_root=data_root, synthetic=synthetic, batches=batches
        )
        try:
            for planned, estimate in estimates:
                if is_table:
                    click.echo(f"{planned.name}: {duration(estimate.seconds)}", err=True)
                finished.append(estimate)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error} Or estimate from random images: --synthetic."
            ) from error
        if is_table:
            tell_table(f"{name} @{scale}", device, finished, seeds, synthetic=synthetic)
        else:
            tell(chosen[0], device, finished[0], synthetic=synthetic)


def tell_memory(chosen: Recipe, memory: str) -> None:
    """Which precision fits, and whether activations must be checkpointed."""
    from avalanche_hfc.lab.plan import advice, fits, num_bytes

    room = num_bytes(memory)
    found = fits(chosen)
    click.echo(f"{chosen.name} in {size(room)}, about")
    for fit in found:
        holds = (
            "fits"
            if fit.whole <= room
            else f"fits with checkpointed activations ({size(fit.least)})"
            if fit.least <= room
            else "does not fit"
        )
        click.echo(
            f"  {fit.precision:<9} {size(fit.fixed)} and {size(fit.per_image)} per image, "
            f"{size(fit.whole)} for {fit.batch_size} images: {holds}"
        )
    click.echo(f"  hfc run   {advice(found, room) or 'no setting fits'}")


def tell_table(
    name: str, device: str, estimates: Sequence[Any], seeds: int, *, synthetic: bool
) -> None:
    """The sum over all runs, one after the other."""
    click.echo(f"{name} on {device}{', from random images' if synthetic else ''}")
    recipes = counted(len(estimates), "recipe")
    click.echo(f"  runs    {seeds * len(estimates)}: {recipes}, {counted(seeds, 'seed')} each")
    click.echo(
        f"  time    about {duration(seeds * sum(estimate.seconds for estimate in estimates))}"
    )
    click.echo(f"  memory  {size(max(estimate.measured.memory for estimate in estimates))} at most")
    tell_disk(
        seeds * sum(estimate.disk for estimate in estimates),
        "all runs, up to three checkpoints each",
    )


def tell_disk(needed: int, of_what: str) -> None:
    free = shutil.disk_usage(Path.cwd()).free
    click.echo(f"  disk    {size(needed)}: {of_what}")
    click.echo(
        f"          free in this folder: {size(free)}{'' if free > needed else ': too little'}"
    )


def tell(chosen: Recipe, device: str, estimate: Any, *, synthetic: bool) -> None:
    click.echo(f"{chosen.name} on {device}{', from random images' if synthetic else ''}")
    click.echo(f"  time    about {duration(estimate.seconds)}")
    first, later = estimate.measured.rates
    click.echo(
        f"          training {duration(sum(estimate.training))}: "
        f"{estimate.images:,} images, all epochs;"
    )
    click.echo(f"          {first:.0f} images/s in the first step, {later:.0f} in later ones")
    click.echo(
        f"          evaluation and herding {duration(estimate.evaluation)}: "
        f"{estimate.measured.eval_rate:.0f} images/s"
    )
    click.echo(f"          network, exemplars, checkpoints and files {duration(estimate.fixed)}")
    click.echo(
        f"  memory  {size(estimate.measured.memory)} at most, "
        f"{'of the device' if device.startswith('cuda') else 'of the process'}"
    )
    tell_disk(
        estimate.disk,
        f"up to three checkpoints of {size(estimate.measured.checkpoint)}, "
        f"rows {size(estimate.rows)}",
    )


def duration(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 60:.1f} minutes" if seconds >= 90 else f"{seconds:.1f} seconds"


def size(num_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes / 1e3:.0f} kB"
