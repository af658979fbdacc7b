"""`hfc compare`."""

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from avalanche_hfc._names import counted
from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.cli.options import announce_loading, device_option, seeds_of
from avalanche_hfc.lab.compare import (
    COMPARED,
    MOST_EPOCHS,
    TimeBudget,
    Work,
    comparable,
    compared_recipes,
    compared_runs,
    few_epochs,
    has_weights,
    model_size,
    note_epochs,
    noted_epochs,
    with_epochs,
    with_weights,
)
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, check_writable, finished
from avalanche_hfc.lab.user_data import PER_CLASS
from avalanche_hfc.lab.user_methods import is_user_method

if TYPE_CHECKING:
    from avalanche_hfc.benchmarks._images import Source
    from avalanche_hfc.lab.plan import Measured

BATCHES = 3  # timed in each of two steps, as `hfc plan` does


def read_seeds(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """The seeds of a comparison, each once."""
    seeds = seeds_of(text)
    if not seeds or len(set(seeds)) < len(seeds):
        raise click.BadParameter(f"{text!r} must name seeds, each once, as 0-4 or 0,2,5.")
    return seeds


@click.command()
@click.argument("data", metavar="DATA", type=click.Path(path_type=Path))
@click.option(
    "--methods",
    default=",".join(COMPARED),
    show_default=True,
    help="With commas between; icarl+hfc is iCaRL with both losses, module:Class is yours.",
)
@click.option(
    "--seeds",
    callback=read_seeds,
    default="0-2",
    show_default=True,
    metavar="SEEDS",
    help="0-4, or 0,2,5. Each draws its own class order, the same for all methods.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Steps in which the classes arrive.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Choose the epochs so that all runs finish in this time, "
    f"at most {MOST_EPOCHS} epochs per step.",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    help="Epochs per step, in place of --minutes  [default: the recipes' own]",
)
@click.option(
    "--weights",
    metavar="FILE|NAME",
    help="Of all networks, as from `hfc pretrain`  [default: the recipes' own, small-mae]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs at a time, one thread each if several.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("compare"),
    show_default=True,
    help="Folder of the page; the runs are in OUT/runs.",
)
@device_option
@click.option("--skip-bad", is_flag=True, help="Leave out files of DATA that are not images.")
def compare(
    data: Path,
    methods: str,
    seeds: tuple[int, ...],
    steps: int,
    minutes: float | None,
    epochs: int | None,
    weights: str | None,
    jobs: int,
    out: Path,
    device: str,
    skip_bad: bool,
) -> None:
    """Which method to use for DATA, a folder of images or an npz file.

    Trains each method with each seed on the same images, class order and number of exemplars, and
    writes one page: which method is best, by how much, whether the difference is more than chance,
    what it costs, which classes it forgets, and the command that uses it. The same command resumes
    runs that were stopped. A time budget: hfc compare photos --minutes 30
    """
    start = time.monotonic()
    if minutes is not None and epochs is not None:
        raise click.UsageError("Choose --minutes or --epochs, not both.")
    announce_loading()
    names = [name.strip() for name in methods.split(",")]
    recipes = compared_recipes(data, names, steps, skip_bad=skip_bad)
    if weights is not None:
        recipes = with_weights(recipes, weights)
    check_writable(out)
    work = Work(tuple(dict.fromkeys(names)), seeds, steps, jobs)
    noted = noted_epochs(out, minutes, work) if epochs is None else None
    epochs = noted or epochs
    from avalanche_hfc.lab.cli.tables import end, run_missing
    from avalanche_hfc.lab.data import refuse_other_data
    from avalanche_hfc.lab.plan import real_data
    from avalanche_hfc.lab.ranks import check_device

    device, reading = check_device(device), time.monotonic()
    source, sizes = real_data(recipes[0], seeds[0], None)
    overhead = time.monotonic() - reading
    if minutes is not None and noted is None:
        measured = timed(recipes, source, device, jobs)
        budget = TimeBudget(recipes, measured, sizes, len(seeds), jobs, overhead)
        epochs = budget.epochs_within(minutes, spent=time.monotonic() - start)
    if epochs is not None:
        recipes = with_epochs(recipes, epochs)
    runs = compared_runs(recipes, seeds, out)
    there = finished(runs)
    for run in runs:
        refuse_other_data(RunFolder(run.folder), source.records)
    if minutes is not None and epochs is not None and noted is None:
        note_epochs(out, minutes, epochs, work)
    tell(recipes, seeds)
    options = {"out": out, "data": None, "jobs": jobs, "device": device, "workers": None}
    missing = [run for run in runs if run not in there]
    done = run_missing(runs, missing, {**options, "scale": "small", "on": "local"})
    remaining, failed = comparable(runs, done.failed)
    if len({run.recipe.name for run in remaining}) > 1:
        write_verdict(remaining, out, data, failed)
    end(done)


def timed(recipes: Sequence[Recipe], source: "Source", device: str, jobs: int) -> list["Measured"]:
    """What a few batches tell of each method, on as many threads as a run has."""
    import torch

    from avalanche_hfc.lab.plan import measure

    click.echo("Timing a few batches of each method …", err=True)
    if jobs > 1:
        torch.set_num_threads(1)
    return [measure(candidate, source, device, BATCHES) for candidate in recipes]


def tell(recipes: Sequence[Recipe], seeds: Sequence[int]) -> None:
    """What is going to be trained, in a line."""
    epochs = max(candidate.train.epochs for candidate in recipes)
    kept = max(candidate.memory.per_class or 0 for candidate in recipes)
    memory = f", {counted(kept, 'exemplar')} per class" if kept else ""
    few = kept and kept < PER_CLASS
    why = f" ({PER_CLASS}, or a fifth of the training images of the smallest class)" if few else ""
    click.echo(
        f"{len(recipes)} methods, {counted(len(seeds), 'seed')}, {recipes[0].data.num_steps} steps "
        f"of {counted(epochs, 'epoch')}{memory}{why}.",
        err=True,
    )


def allowed(name: str) -> list[str]:
    """What a command needs besides to read a run of this recipe: one of a user's method runs its
    code.
    """
    return ["--allow-code"] if is_user_method(name) else []


def write_verdict(
    runs: Sequence[TableRun], out: Path, data: Path, failed: Mapping[str, str]
) -> None:
    """Write the page, and print its verdict. `failed` are methods that it has to do without, with
    the reason.
    """
    from avalanche_hfc.report.page import write_page
    from avalanche_hfc.report.verdict import make_verdict, spoken

    first = {run.recipe.name: run.folder for run in reversed(runs)}
    report = make_verdict(
        [run.folder for run in runs],
        f"Which method for {data.resolve().name}",
        {name: model_size(folder) for name, folder in first.items()},
        {
            name: shlex.join(["hfc", "predict", str(folder), "new.jpg", *allowed(name)])
            for name, folder in first.items()
            if has_weights(folder)
        },
        failed,
        few_epochs([run.recipe for run in runs]),
    )
    click.echo(f"{spoken(report)}\nPage: {write_page(report, out)}")
