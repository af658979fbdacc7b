"""Commands that train one recipe: `hfc run`, `resume`, `learn` and `pretrain`."""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.cli.options import (
    AT_LEAST_1,
    FOLDER,
    PATH,
    RecipeCommand,
    allow_code,
    announce_loading,
    device_option,
    read_seeds,
    recipe_names,
    tensorboard_option,
    workers_option,
)
from avalanche_hfc.lab.cli.progress import PretrainBar, RunBar, TensorBoardBar, shown
from avalanche_hfc.lab.cli.ranks import check_ranks, first, launch, launch_note, launched, restarted
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.overrides import memory_line, with_data
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.schema import DTYPES, PretrainRecipe
from avalanche_hfc.lab.table import TableRun, finished, set_aside

FINISHED = "This run is already finished; nothing was done."


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE", shell_complete=recipe_names)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of weights, batches and transforms.",
)
@click.option(
    "--seeds",
    callback=read_seeds,
    metavar="SEEDS",
    help="Train one seed after the other: 0-4, or 0,2,5.",
)
@click.option(
    "--fresh", is_flag=True, help="Start over. An earlier run is moved aside, not deleted."
)
@click.option(
    "--out",
    type=FOLDER,
    default=Path("runs"),
    show_default=True,
    help="The run is kept in OUT/RECIPE/SEED.",
)
@device_option
@click.option("--data", "data_root", type=PATH, help="Where the data is.")
@click.option("--skip-bad", is_flag=True, help="Leave out files of --data that are not images.")
@click.option(
    "--download", is_flag=True, help="Download CIFAR-100 first, unless it is in the folder."
)
@click.option("--verify-data", is_flag=True, help="Read all images again when a run is resumed.")
@workers_option
@click.option(
    "--ranks",
    type=AT_LEAST_1,
    help="Number of processes on this machine, one for each GPU or a part of the cores. Each "
    "trains on a share of every batch; the rows are those of one process up to rounding.",
)
@tensorboard_option
@click.pass_context
def run(
    context: click.Context,
    name: str,
    overrides: dict[str, str],
    seed: int,
    seeds: tuple[int, ...],
    fresh: bool,
    out: Path,
    data_root: Path | None,
    skip_bad: bool,
    download: bool,
    ranks: int | None,
    device: str,
    **options: Any,
) -> None:
    """Train RECIPE. The same command resumes a run that was stopped, and leaves a finished one as
    it is.

    Values can be changed: hfc run digits-b0-t5-hfc@demo --epochs 3 --method.relation-weight 0.5
    """
    if seeds and context.get_parameter_source("seed") is not ParameterSource.DEFAULT:
        raise click.UsageError("Choose --seed or --seeds, not both.")
    if first():
        announce_loading()
    changed = with_data(override(recipe(name), overrides), data_root, skip_bad=skip_bad)
    if ranks is not None:
        check_ranks(ranks, changed.train.batch_size)
        if ranks > 1 and not launched():
            launch(ranks, device)
    from avalanche_hfc.lab.ranks import check_device, join, on_first
    from avalanche_hfc.ranks import agree

    silence_host()
    device = join(check_device(device))
    if download:
        on_first(lambda: download_data(changed, data_root))
    runs = [TableRun(changed, each, out / changed.name / str(each)) for each in seeds or (seed,)]
    agree("--fresh", str(fresh))  # it decides what the ranks do next
    move = partial(move_aside, runs, out) if fresh else None
    if on_first(lambda: moved_before(runs)):
        move = None
    done = on_first(lambda: [each.seed for each in finished(runs)]) if move is None else []
    for each in runs:
        if each.seed not in done:
            train(each, data_root=data_root, device=device, set_aside=move, **options)
        elif first():
            leave_finished(each, skip_bad)
        if first():
            tell(each)
        move = None  # the first run has moved all


def download_data(changed: Recipe, folder: Path | None) -> None:
    """Download CIFAR-100, or check the files that are there."""
    from avalanche_hfc.benchmarks.sources import download_cifar100

    if changed.data.dataset != "cifar100":
        raise click.UsageError(f"--download is for CIFAR-100; {changed.name} has other data.")
    download_cifar100(folder)


def leave_finished(run: TableRun, skip_bad: bool) -> None:
    """Say that a run is finished; refuse one that was trained on other data."""
    if "data" in run.recipe.paths:
        from avalanche_hfc.lab.data import refuse_other_place

        data = str(run.recipe.paths["data"])
        refuse_other_place(RunFolder(run.folder), data, skip_bad=skip_bad)
    click.echo(FINISHED, err=True)


def move_aside(runs: Sequence[TableRun], out: Path) -> dict[str, str]:
    """Move all these runs aside, and say where they are. What the new recipe.json is to hold."""
    old = set_aside(runs, out)
    if old is not None:
        click.echo(f"The earlier runs are now in {old / runs[0].recipe.name}.", err=True)
    return launch_note()


def moved_before(runs: Sequence[TableRun]) -> bool:
    """Whether the launcher has started the ranks again, after they had moved the old runs aside."""
    notes = [RunFolder(each.folder).metadata() or {} for each in runs] if restarted() else []
    return any(note.get("launch") == launch_note()["launch"] for note in notes)


def train(run: TableRun, *, tensorboard: bool, workers: int | None, **options: Any) -> None:
    """Train a run; rank 0 shows it."""
    from avalanche_hfc.lab.run import run as run_recipe

    line = memory_line(run.recipe)
    if line is not None and first():
        click.echo(line, err=True)
    again = ["hfc", *(word for word in sys.argv[1:] if word != "--fresh")]
    bar = shown(bar_of(str(run), run.folder, tensorboard), run.folder, again)
    with bar if first() else nullcontext() as progress:
        run_recipe(*run, num_workers=workers, progress=progress, **options)


def bar_of(title: str, folder: Path, tensorboard: bool) -> RunBar:
    return TensorBoardBar(title, folder / "tensorboard") if tensorboard else RunBar(title)


def tell(run: TableRun) -> None:
    last = RunFolder(run.folder).read("steps")[-1]
    numbers = [
        f"{word} {float(last[column]):.4f}"
        for word, column in (("average", "average"), ("last", "accuracy"))
        if last[column]
    ]
    click.echo(
        f"{run}: accuracy {', '.join(numbers)} on {last['classes']} classes. Rows: {run.folder}"
    )


@click.command()
@click.argument("run", type=PATH)
@click.option("--data", "data_root", type=PATH, help="Where the data is, if it has moved.")
@click.option("--verify-data", is_flag=True, help="Read all images again to compare them.")
@device_option
@workers_option
@allow_code
@tensorboard_option
def resume(
    run: Path, workers: int | None, tensorboard: bool, allow_code: bool, **options: Any
) -> None:
    """Train the rest of RUN, a run folder of `hfc run` or `hfc learn`.

    Recipe, seed and data are those that the folder names. RUN may be the folder of a recipe that
    holds one run. A finished run is left as it is.
    """
    announce_loading()
    from avalanche_hfc.lab.learn import resume as train_rest
    from avalanche_hfc.lab.trained_run import read_run

    folder, metadata, recipe = read_run(run, allow_code=allow_code)
    resumed = TableRun(recipe, metadata["seed"], folder.path)
    if folder.finished:
        click.echo(FINISHED, err=True)
    else:
        bar = bar_of(str(resumed), folder.path, tensorboard)
        with shown(bar, folder.path, ["hfc", *sys.argv[1:]]) as progress:
            train_rest(
                run, num_workers=workers, progress=progress, allow_code=allow_code, **options
            )
    tell(resumed)


@click.command()
@click.argument("run", type=PATH)
@click.argument("new_folder", type=PATH)
@click.option("--epochs", type=AT_LEAST_1, help="Epochs of the new step  [default: as in the run]")
@click.option("--out", type=FOLDER, help="Folder of the longer run  [default: beside RUN]")
@click.option("--data", "data_root", type=PATH, help="Where the data of RUN is, if it has moved.")
@click.option("--verify-data", is_flag=True, help="Read all images of RUN again to compare them.")
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Leave out files of NEW_FOLDER that are not readable images, as for a RUN trained so.",
)
@device_option
@allow_code
def learn(run: Path, new_folder: Path, allow_code: bool, **options: Any) -> None:
    """Teach the finished RUN the classes of NEW_FOLDER, as one more step, then evaluate old and new
    classes.

    NEW_FOLDER holds a folder of images for each class, or train/ and test/ with such folders. RUN
    is only read: the longer run has a folder of its own, with all rows, and can be used as RUN
    again. RUN may also be the folder of a recipe that holds one run.
    """
    announce_loading()
    from avalanche_hfc.lab.learn import accuracies
    from avalanche_hfc.lab.learn import learn as teach

    with closing(RunBar(f"{run} + {new_folder.name}")) as bar:
        folder = teach(run, new_folder, progress=bar, allow_code=allow_code, **options)
    judged = accuracies(folder, allow_code=allow_code)
    for word, before in (("old", f"; {judged['before'].accuracy:.4f} before"), ("new", "")):
        of_classes = judged[word]
        click.echo(
            f"{word} classes: accuracy {of_classes.accuracy:.4f} on {of_classes.classes} classes, "
            f"{of_classes.images} test images{before}"
        )
    click.echo(f"Rows: {folder}")


def pretrain_options(command: Callable) -> Callable:
    """An option for every field of PretrainRecipe."""
    for field in reversed(fields(PretrainRecipe)):
        option_type: Any = click.Choice(DTYPES) if field.name == "dtype" else field.type
        command = click.option(
            f"--{field.name.replace('_', '-')}",
            type=option_type,
            default=field.default,
            show_default=field.default is not None,
            help=field.metadata["help"],
        )(command)
    return command


@click.command()
@click.argument("data", type=PATH)
@click.option(
    "--out", type=FOLDER, default=Path("pretrained"), show_default=True, help="Run folder."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of weights, batches, crops and masks.",
)
@device_option
@pretrain_options
def pretrain(data: Path, out: Path, seed: int, device: str, **values: Any) -> None:
    """Pre-train a ViT on the images of DATA, without labels, as a masked autoencoder.

    DATA is a folder of images, at any depth, or an npz file with x_train. Writes
    OUT/encoder.safetensors, which --model.weights of `hfc run` loads. The same command resumes a
    run that was stopped.
    """
    recipe = PretrainRecipe(**{name: value for name, value in values.items() if value is not None})
    announce_loading()
    from avalanche_hfc.benchmarks.unlabelled import read_unlabelled
    from avalanche_hfc.lab.pretrain import PICTURES, WEIGHTS, check_pretraining
    from avalanche_hfc.lab.pretrain import pretrain as train

    check_pretraining(recipe, seed, out, device)
    images = read_unlabelled(data, recipe.image_size)
    for remark in images.remarks:
        click.echo(remark, err=True)
    was_finished = RunFolder(out).finished
    with shown(PretrainBar(f"pre-training in {out}"), out, ["hfc", *sys.argv[1:]]) as bar:
        train(recipe, seed, out, images, device=device, progress=bar)
    if was_finished:
        click.echo("This pre-training is already finished; nothing was done.", err=True)
    click.echo(f"Weights: {out / WEIGHTS}. Reconstructions: {out / PICTURES}.")
