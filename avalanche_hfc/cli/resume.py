"""`hfc resume`."""

import sys
from pathlib import Path
from typing import Any

import click

from avalanche_hfc.cli.allow_code import allow_code
from avalanche_hfc.cli.device import device_option
from avalanche_hfc.cli.loading import announce_loading
from avalanche_hfc.cli.run import shown, tell
from avalanche_hfc.engine.machine import WORKERS_HELP, most_workers


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--data",
    "data_root",
    type=click.Path(path_type=Path),
    help="Where the data is, if it is no longer where it was.",
)
@click.option("--verify-data", is_flag=True, help="Read all images again to compare them.")
@device_option
@click.option(
    "--workers",
    type=click.IntRange(0, most_workers()),
    help=WORKERS_HELP,
)
@allow_code
@click.option(
    "--tensorboard",
    is_flag=True,
    help="Write the curves for TensorBoard, too, into the run's folder tensorboard.",
)
def resume(
    run: Path, workers: int | None, tensorboard: bool, allow_code: bool, **options: Any
) -> None:
    """Train the rest of RUN, a run folder of `hfc run` or `hfc learn`.

    Recipe, seed and data are those that the folder names. RUN may be the folder of a recipe that
    holds one run. A finished run is left as it is.
    """
    announce_loading()
    from avalanche_hfc.tasks.finished_run import read_run
    from avalanche_hfc.tasks.resume import resume as train_rest

    folder, metadata, recipe = read_run(run, allow_code=allow_code)
    if folder.finished:
        click.echo("This run is finished; nothing was done.", err=True)
    else:
        title = f"{recipe.name}, seed {metadata['seed']}"
        with shown(title, folder, ["hfc", *sys.argv[1:]], tensorboard) as progress:
            train_rest(
                run, num_workers=workers, progress=progress, allow_code=allow_code, **options
            )
    tell(recipe, metadata["seed"], folder)
