"""`hfc plan`."""

import shutil
from pathlib import Path
from typing import Any

import click

from avalanche_hfc.cli.loading import announce_loading
from avalanche_hfc.cli.overrides import TAKES_OVERRIDES, overrides_of
from avalanche_hfc.recipes import Recipe, override, recipe
from avalanche_hfc.recipes.user_data import with_data


@click.command(context_settings=TAKES_OVERRIDES)
@click.argument("name", metavar="RECIPE")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, …")
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
@click.pass_context
def plan(
    context: click.Context,
    name: str,
    device: str,
    data_root: Path | None,
    synthetic: bool,
    batches: int,
) -> None:
    """Hours, memory and disk that RECIPE needs, from a few timed batches. Nothing is written.

    Values can be changed as in hfc run: hfc plan digits-b0-t5-hfc@demo --epochs 3
    """
    announce_loading()
    chosen = override(recipe(name), overrides_of(context.args))
    if data_root is not None:
        chosen = with_data(chosen, data_root)
    from avalanche_hfc.tasks.plan import plan as estimate

    try:
        found = estimate(
            chosen, device=device, data_root=data_root, synthetic=synthetic, batches=batches
        )
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} Or estimate from random images: --synthetic.") from error
    tell(chosen, device, found, synthetic=synthetic)


def tell(chosen: Recipe, device: str, found: Any, *, synthetic: bool) -> None:
    free = shutil.disk_usage(Path.cwd()).free
    click.echo(f"{chosen.name} on {device}{', from random images' if synthetic else ''}")
    click.echo(f"  time    about {duration(found.seconds)}")
    first, later = found.rates
    click.echo(
        f"          training {duration(sum(found.training))}: {found.images:,} images, all epochs;"
    )
    click.echo(f"          {first:.0f} images/s in the first step, {later:.0f} in later ones")
    click.echo(
        f"          evaluation and herding {duration(found.evaluation)}: "
        f"{found.eval_rate:.0f} images/s"
    )
    click.echo(
        f"  memory  {size(found.memory)} at the most, "
        f"{'of the device' if device.startswith('cuda') else 'of the process'}"
    )
    click.echo(
        f"  disk    {size(found.disk)}: up to three checkpoints of {size(found.checkpoint)}, "
        f"rows {size(found.rows)}"
    )
    click.echo(
        f"          free in this folder: {size(free)}{'' if free > found.disk else ': too little'}"
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
