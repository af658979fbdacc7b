"""`hfc run`."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.cli.options import (
    RecipeCommand,
    allow_code,
    announce_loading,
    device_option,
    overrides_of,
    recipes,
    seeds_of,
)
from avalanche_hfc.lab.cli.ranks import check_ranks, first, launch, launch_note, launched, restarted
from avalanche_hfc.lab.machine import WORKERS_HELP, most_workers, silence_host
from avalanche_hfc.lab.pretraining import DTYPES, PretrainRecipe
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, finished, set_aside
from avalanche_hfc.lab.user_data import memory_line, with_data


def read_several_seeds(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...]:
    """The seeds of a text that names several; none without a text."""
    if text is None:
        return ()
    seeds = seeds_of(text)
    if len(seeds) < 2 or len(set(seeds)) < len(seeds):
        raise click.BadParameter(
            f"{text!r} must name several seeds, each once, as 0-4 or 0,2,5. One is --seed 3."
        )
    return seeds


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
    "--seeds",
    callback=read_several_seeds,
    metavar="SEEDS",
    help="Train one seed after the other: 0-4, or 0,2,5.",
)
@click.option(
    "--fresh", is_flag=True, help="Start over. A run that is there is moved aside, not deleted."
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
@click.option("--skip-bad", is_flag=True, help="Leave out files of --data that are not images.")
@click.option(
    "--download", is_flag=True, help="Download CIFAR-100 first, unless it is in the folder."
)
@click.option(
    "--verify-data", is_flag=True, help="In a run that is resumed, read all images again."
)
@click.option(
    "--workers",
    type=click.IntRange(0, most_workers()),
    help=WORKERS_HELP,
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    help="Number of processes on this machine, one for each GPU or a part of the cores. Each has "
    "its share of every batch; the rows are those of one process up to rounding.",
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
    """Train RECIPE. The same command resumes a run that was stopped, and leaves a finished one
    as it is.

    Values can be changed: hfc run digits-b0-t5-hfc@demo --epochs 3 --method.relation-weight 0.5
    """
    if seeds and context.get_parameter_source("seed") is not ParameterSource.DEFAULT:
        raise click.UsageError("Choose --seed or --seeds, not both.")
    if first():
        announce_loading()
    changed = override(recipe(name), overrides_of(context.args))
    chosen = with_data(changed, data_root, skip_bad=skip_bad)
    if ranks is not None:
        check_ranks(ranks, chosen.train.batch_size)
        if ranks > 1 and not launched():
            launch(ranks, device)
    from avalanche_hfc.lab.ranks import check_device, join, on_first
    from avalanche_hfc.ranks import agree

    silence_host()
    device = join(check_device(device))
    if download:
        on_first(lambda: download_data(chosen, data_root))
    runs = [TableRun(chosen, each, out / chosen.name / str(each)) for each in seeds or (seed,)]
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
            tell(chosen, each.seed, RunFolder(each.folder))
        move = None  # the first run has moved all


def download_data(chosen: Recipe, folder: Path | None) -> None:
    """Download CIFAR-100, or check the files that are there."""
    from avalanche_hfc.benchmarks.download import download_cifar100

    if chosen.data.dataset != "cifar100":
        raise click.UsageError(f"--download is for CIFAR-100, {chosen.name} has other data.")
    download_cifar100(folder)


def leave_finished(run: TableRun, skip_bad: bool) -> None:
    """Say that a run is finished; refuse one that was trained on other data."""
    if "data" in run.recipe.paths:
        from avalanche_hfc.lab.data import refuse_other_place

        data = str(run.recipe.paths["data"])
        refuse_other_place(RunFolder(run.folder), data, skip_bad=skip_bad)
    click.echo("This run is already finished; nothing was done.", err=True)


def move_aside(runs: Sequence[TableRun], out: Path) -> dict[str, str]:
    """Move all these runs aside, and say where they are. What the new recipe.json is to hold."""
    old = set_aside(runs, out)
    if old is not None:
        click.echo(f"What was there is in {old / runs[0].recipe.name} now.", err=True)
    return launch_note()


def moved_before(runs: Sequence[TableRun]) -> bool:
    """Whether the launcher has started the ranks again, after they had moved the old runs aside."""
    notes = [RunFolder(each.folder).metadata() or {} for each in runs] if restarted() else []
    return any(note.get("launch") == launch_note()["launch"] for note in notes)


def train(run: TableRun, *, tensorboard: bool, workers: int | None, **options: Any) -> None:
    """Train a run; rank 0 shows it."""
    from avalanche_hfc.lab.run import run as run_recipe

    line = memory_line(run.recipe) if first() else None
    if line is not None:
        click.echo(line, err=True)
    again = ["hfc", *(word for word in sys.argv[1:] if word != "--fresh")]
    showing = shown(str(run), RunFolder(run.folder), again, tensorboard)
    with showing if first() else nullcontext() as progress:
        run_recipe(*run, num_workers=workers, progress=progress, **options)


@contextmanager
def shown(
    title: str, run_folder: RunFolder, again: Sequence[str], tensorboard: bool
) -> Iterator[Progress]:
    """Show a training inside as a bar, and as curves for TensorBoard. Ctrl-C ends the process with
    `again`, the command that resumes it.
    """
    from avalanche_hfc.lab.cli.run_progress import RunBar, TensorBoardBar

    folder = run_folder.path / "tensorboard"
    bar = TensorBoardBar(title, folder) if tensorboard else RunBar(title)
    try:
        yield bar
    except KeyboardInterrupt:
        bar.close()
        click.echo(
            f"\nhfc: stopped. What is done is kept in {run_folder.path}. To resume:\n"
            f"{shlex.join(again)}",
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


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--data",
    "data_root",
    type=click.Path(path_type=Path),
    help="Where the data is, if it has moved.",
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
    from avalanche_hfc.lab.learn import resume as train_rest
    from avalanche_hfc.lab.trained_run import read_run

    folder, metadata, recipe = read_run(run, allow_code=allow_code)
    if folder.finished:
        click.echo("This run is already finished; nothing was done.", err=True)
    else:
        title = f"{recipe.name}, seed {metadata['seed']}"
        with shown(title, folder, ["hfc", *sys.argv[1:]], tensorboard) as progress:
            train_rest(
                run, num_workers=workers, progress=progress, allow_code=allow_code, **options
            )
    tell(recipe, metadata["seed"], folder)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("new_folder", type=click.Path(path_type=Path))
@click.option(
    "--epochs", type=click.IntRange(min=1), help="Epochs of the new step  [default: as in the run]"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Run folder of the longer run  [default: beside RUN]",
)
@click.option(
    "--data",
    "data_root",
    type=click.Path(path_type=Path),
    help="Where the data of RUN is, if it is no longer where it was.",
)
@click.option("--verify-data", is_flag=True, help="Read all images of RUN again to compare them.")
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Leave out files of NEW_FOLDER that are not readable images, as for a RUN trained so.",
)
@device_option
@allow_code
def learn(
    run: Path,
    new_folder: Path,
    epochs: int | None,
    out: Path | None,
    data_root: Path | None,
    verify_data: bool,
    skip_bad: bool,
    device: str,
    allow_code: bool,
) -> None:
    """Teach the finished RUN the classes of NEW_FOLDER, as one more step, then evaluate old and new
    classes.

    NEW_FOLDER holds a folder of images for each class, or train/ and test/ with such folders. RUN
    is only read: the longer run has a folder of its own, with all rows, and can be used as RUN
    again. RUN may also be the folder of a recipe that holds one run.
    """
    announce_loading()
    from avalanche_hfc.lab.cli.run_progress import RunBar
    from avalanche_hfc.lab.learn import accuracies
    from avalanche_hfc.lab.learn import learn as teach

    bar = RunBar(f"{run} + {new_folder.name}")
    try:
        folder = teach(
            run,
            new_folder,
            epochs=epochs,
            out=out,
            data_root=data_root,
            device=device,
            progress=bar,
            verify_data=verify_data,
            skip_bad=skip_bad,
            allow_code=allow_code,
        )
    finally:
        bar.close()
    judged = accuracies(folder, allow_code=allow_code)
    for word, before in (("old", f"; {judged['before'].accuracy:.4f} before"), ("new", "")):
        found = judged[word]
        click.echo(
            f"{word} classes: accuracy {found.accuracy:.4f} on {found.classes} classes, "
            f"{found.images} test images{before}"
        )
    click.echo(f"Rows: {folder}")


def settings_as_options(command: Callable) -> Callable:
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
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("pretrained"),
    show_default=True,
    help="Run folder.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of weights, batches, crops and masks.",
)
@device_option
@settings_as_options
def pretrain(data: Path, out: Path, seed: int, device: str, **values: Any) -> None:
    """Pre-train a ViT on the images of DATA, without labels, as a masked autoencoder.

    DATA is a folder of images, at any depth, or an npz file with x_train. Writes
    OUT/encoder.safetensors, which --model.weights of `hfc run` loads. The same command resumes a
    run that was stopped.
    """
    recipe = PretrainRecipe(**{name: value for name, value in values.items() if value is not None})
    announce_loading()
    from avalanche_hfc.benchmarks.unlabelled import read_unlabelled
    from avalanche_hfc.lab.pretrain import PICTURES, WEIGHTS, check_pretraining, epochs_kept
    from avalanche_hfc.lab.pretrain import pretrain as train

    check_pretraining(recipe, seed, out, device)
    images = read_unlabelled(data, recipe.image_size)
    for remark in images.remarks:
        click.echo(remark, err=True)
    was_finished = RunFolder(out).finished
    bar = _bar(recipe.epochs, out)
    try:
        train(recipe, seed, out, images, device=device, progress=bar)
    except KeyboardInterrupt:
        bar.close()
        again, kept = shlex.join(["hfc", *sys.argv[1:]]), epochs_kept(out)
        click.echo(
            f"\nhfc: stopped. {out} keeps {kept} of {recipe.epochs} epochs. To resume with "
            f"epoch {kept + 1}:\n{again}",
            err=True,
        )
        sys.exit(130)
    finally:
        bar.close()
    if was_finished:
        click.echo("This pre-training is already finished; nothing was done.", err=True)
    click.echo(f"Weights: {out / WEIGHTS}. Reconstructions: {out / PICTURES}.")


def _bar(epochs: int, out: Path) -> Any:
    from avalanche_hfc.lab.cli.run_progress import RunBar

    class PretrainBar(RunBar):
        """A bar on a terminal, a line per epoch elsewhere."""

        words = "pre-training"

        def describe(self) -> str:
            return self.words

        def epoch(self, row: Mapping[str, Any]) -> None:
            self.words = f"epoch {row['epoch'] + 1}/{epochs}: loss {row['loss']:.4f}"
            self.bar.set_description_str(self.words)
            if self.bar.disable:
                click.echo(f"{self.words}, {row['seconds']:.0f} s", err=True)

    return PretrainBar(f"pre-training in {out}")
