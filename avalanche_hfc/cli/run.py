"""`hfc run`."""

import shlex
import sys
from pathlib import Path

import click

from avalanche_hfc.cli.completion import recipes
from avalanche_hfc.cli.device import device_option
from avalanche_hfc.cli.loading import announce_loading
from avalanche_hfc.cli.overrides import RecipeCommand, overrides_of
from avalanche_hfc.engine.machine import most_workers
from avalanche_hfc.recipes import Recipe, override, recipe
from avalanche_hfc.recipes.user_data import memory_line, with_data
from avalanche_hfc.store.run_folder import RunFolder


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE", shell_complete=recipes)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of weights, batches and transforms.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="The run is kept in OUT/RECIPE/SEED.",
)
@device_option
@click.option("--data", "data_root", type=click.Path(path_type=Path), help="Where the data is.")
@click.option("--skip-bad", is_flag=True, help="Leave out files of --data that are no images.")
@click.option(
    "--verify-data", is_flag=True, help="In a run that is resumed, read all images again."
)
@click.option(
    "--workers",
    type=click.IntRange(0, most_workers()),
    default=0,
    show_default=True,
    help="Loader processes. They start once for each step; data in memory is read without them.",
)
@click.option(
    "--tensorboard",
    is_flag=True,
    help="Write the curves for TensorBoard, too, into the run's folder tensorboard.",
)
@click.pass_context
def run(
    context: click.Context,
    name: str,
    seed: int,
    out: Path,
    device: str,
    data_root: Path | None,
    skip_bad: bool,
    verify_data: bool,
    workers: int,
    tensorboard: bool,
) -> None:
    """Train RECIPE. The same command resumes a run that was stopped, and leaves a finished one
    as it is.

    Values can be changed: hfc run digits-b0-t5-hfc@demo --epochs 3 --method.relation-weight 0.5
    """
    announce_loading()
    values = overrides_of(context.args)
    chosen = with_data(override(recipe(name), values), data_root, skip_bad=skip_bad)
    run_folder = RunFolder(out / chosen.name / str(seed))
    run_folder.check(chosen.as_dict(), seed)
    if run_folder.finished:
        if "data" in chosen.paths:
            from avalanche_hfc.store.data_files import refuse_other_place

            refuse_other_place(run_folder, str(chosen.paths["data"]), skip_bad=skip_bad)
        click.echo("This run is finished; nothing was done.", err=True)
    else:
        train(
            chosen,
            seed,
            run_folder,
            device=device,
            data_root=data_root,
            workers=workers,
            tensorboard=tensorboard,
            verify_data=verify_data,
        )
    tell(chosen, seed, run_folder)


def train(
    chosen: Recipe,
    seed: int,
    run_folder: RunFolder,
    *,
    device: str,
    data_root: Path | None,
    workers: int,
    tensorboard: bool,
    verify_data: bool,
) -> None:
    line = memory_line(chosen)
    if line is not None:
        click.echo(line, err=True)
    from avalanche_hfc.cli.run_progress import RunBar, TensorBoard
    from avalanche_hfc.engine.progress import Several
    from avalanche_hfc.engine.run import run as run_recipe

    bar = RunBar(f"{chosen.name}, seed {seed}")
    listeners = [bar, TensorBoard(run_folder.path / "tensorboard")] if tensorboard else [bar]
    try:
        run_recipe(
            chosen,
            seed,
            run_folder.path,
            device=device,
            data_root=data_root,
            num_workers=workers,
            progress=Several(listeners),
            verify_data=verify_data,
        )
    except KeyboardInterrupt:
        bar.close()
        again = shlex.join(["hfc", *sys.argv[1:]])
        click.echo(
            f"\nhfc: stopped. What is done is kept in {run_folder.path}. To resume:\n{again}",
            err=True,
        )
        sys.exit(130)
    finally:
        bar.close()


def tell(chosen: Recipe, seed: int, run_folder: RunFolder) -> None:
    last = run_folder.read("steps")[-1]
    numbers = [
        f"{word} {float(last[column]):.4f}"
        for word, column in (("average", "average"), ("last", "accuracy"))
        if last[column]
    ]
    click.echo(
        f"{chosen.name}, seed {seed}: accuracy {', '.join(numbers)} on {last['classes']} "
        f"classes. Rows: {run_folder.path}"
    )
