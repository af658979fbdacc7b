"""Commands that train many recipes: `hfc table`, `demo` and `compare`."""

import shlex
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from tqdm import tqdm

from avalanche_hfc._names import counted
from avalanche_hfc._types import Options
from avalanche_hfc.lab import DEMO_EPOCHS, SCALES, Recipe, TableCell
from avalanche_hfc.lab.cli.options import (
    AT_LEAST_1,
    FOLDER,
    PATH,
    RecipeCommand,
    announce_loading,
    device_option,
    jobs_option,
    read_seeds,
    table_names,
    workers_option,
)
from avalanche_hfc.lab.cli.progress import RunLines, TableRunBar
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
from avalanche_hfc.lab.describe import command
from avalanche_hfc.lab.options import is_user_method
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.settings import PER_CLASS
from avalanche_hfc.lab.table import (
    TableRun,
    cells_of,
    check_writable,
    finished,
    named_as_run,
    runs_of,
    set_aside,
    train,
    without,
)

if TYPE_CHECKING:
    from avalanche_hfc.benchmarks.sources import Source
    from avalanche_hfc.lab.jobs import Outcome
    from avalanche_hfc.lab.plan import Measured

KNOWN = (
    "ValueError",
    "FolderInUseError",
    "FileNotFoundError",
    "FloatingPointError",
    "OSError",
    "PermissionError",
)  # errors whose text says all
BATCHES = 3  # timed in each of two steps, as `hfc plan` does
LOCAL: Options = {
    "on": "local",
    "commands": False,
    "no_run": False,
    "data": None,
    "jobs": 1,
    "workers": None,
}  # options of `hfc table` that other commands do not have


class Done(NamedTuple):
    """The runs that are finished, and those that failed with the reason."""

    finished: list[TableRun]
    failed: list[tuple[TableRun, str]]


def run_cells(cells: Sequence[TableCell], overrides: Mapping[str, str], options: Options) -> Done:
    """Run what is missing of some cells. A folder of another recipe, or a wrong value, is an error
    before anything is written.
    """
    if not options["no_run"]:
        check_writable(options["out"])
    announce_loading()
    runs = runs_of(cells, options["seeds"], options["out"], overrides)
    there = finished(runs)
    missing = [run for run in runs if run not in there]
    for name in overrides:
        others = without({run.recipe.name: run.recipe for run in runs}.values(), name)
        if others:
            click.echo(f"--{name} has no effect on {', '.join(others)}.", err=True)
    if options["commands"]:
        for run in missing:
            click.echo(command_of(run, options))
        sys.exit(0)
    if options["no_run"]:
        if missing:
            names = "; ".join(map(str, missing))
            click.echo(f"Not finished: {len(missing)} of {len(runs)} runs. {names}.", err=True)
        return Done(there, [])
    return run_missing(runs, missing, options)


def run_missing(runs: Sequence[TableRun], missing: Sequence[TableRun], options: Options) -> Done:
    """Run those of some runs that are not finished. Ctrl-C ends the process with the command that
    resumes them.
    """
    there = [run for run in runs if run not in missing]
    if not missing:
        return Done(there, [])
    if there:
        click.echo(f"{len(there)} of {len(runs)} runs are finished.", err=True)
    try:
        failed = run_all(missing, options)
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. What is done is kept; the same command resumes it:"
            f"\n{shlex.join(['hfc', *sys.argv[1:]])}",
            err=True,
        )
        sys.exit(130)
    return Done(finished(runs), failed)


def run_all(runs: Sequence[TableRun], options: Options) -> list[tuple[TableRun, str]]:
    """Run these, and return those that failed and why. What all of them need is checked once,
    before the first.
    """
    import torch

    from avalanche_hfc.lab.jobs import check_data, check_precisions, check_room, outcomes
    from avalanche_hfc.lab.ranks import check_device

    on_ray = options["on"] == "ray"
    device = options["device"] if on_ray else check_device(options["device"])
    if not on_ray:
        check_precisions(runs, device)
    check_data(runs, options["data"])
    check_room(runs, options["out"])
    if on_ray:
        return run_on_ray(runs, options)
    if options["scale"] == "demo":
        torch.set_num_threads(1)  # the models are too small for two
    one = partial(train_with_bar, said=set()) if options["jobs"] == 1 else train
    work = partial(one, device=device, data_root=options["data"], num_workers=options["workers"])
    return tell_all(outcomes(work, runs, jobs=options["jobs"]), run_bar(runs))


def run_on_ray(runs: Sequence[TableRun], options: Options) -> list[tuple[TableRun, str]]:
    """As `run_all`, each run as a task of Ray."""
    from avalanche_hfc.lab.jobs import (
        check_nodes,
        check_precisions,
        cluster,
        device_on,
        ray_outcomes,
        workers_on,
    )

    jobs = options["jobs"] if options["jobs"] > 1 else None
    out, data = options["out"].resolve(), options["data"]
    data = data if data is None else data.resolve()
    runs = [run._replace(folder=run.folder.resolve()) for run in runs]
    with cluster(runs=jobs, workers=options["workers"] or 0) as ray:
        device = device_on(ray, options["device"])
        check_precisions(runs, device)
        workers = workers_on(ray, device, options["workers"])
        check_nodes(ray, out, [] if data is None else [data])
        work = partial(train, device=device, data_root=data, num_workers=workers)
        bar = run_bar(runs)
        results = ray_outcomes(
            ray,
            work,
            runs,
            cpus=1 + workers,
            gpus=int(device.startswith("cuda")),
            waiting=lambda: bar.set_postfix_str(steps_done(runs)),
        )
        return tell_all(results, bar)


def run_bar(runs: Sequence[TableRun]) -> Any:
    return tqdm(total=len(runs), unit="run", disable=None, dynamic_ncols=True)


def steps_done(runs: Sequence[TableRun]) -> str:
    """The number of steps that all runs have done, read from their folders. A folder that cannot be
    read, such as one that another node is writing to, counts for nothing this time.
    """
    done = 0
    for run in runs:
        with suppress(ValueError, OSError):
            done += len(RunFolder(run.folder).read("steps"))
    return f"{done} steps done"


def tell_all(outcomes: "Generator[Outcome, None, None]", bar: Any) -> list[tuple[TableRun, str]]:
    """Say how each run ended; those that failed and why. A reason is printed once."""
    failed: list[tuple[TableRun, str]] = []
    lines = RunLines(bar)
    with bar, closing(outcomes) as results:
        for run, row, error in results:
            if error is None:
                lines.tell(f"{run}: {in_words(row)}")
            else:
                said = reason(error)
                known = any(said == before for _, before in failed)
                lines.tell("" if known else f"{run} failed: {said}")
                failed.append((run, said))
    return failed


def command_of(run: TableRun, options: Options) -> str:
    """The command that trains a run, from any folder. Repeated, it does nothing."""
    out, data = options["out"].resolve(), options["data"]
    further = ["--seed", str(run.seed), "--out", str(out)]
    if options["device"] != "auto":
        further += ["--device", options["device"]]
    if options["workers"] is not None:
        further += ["--workers", str(options["workers"])]
    return command(run.recipe, data and str(data.resolve()), further)


def train_with_bar(run: TableRun, *, said: set[str], **options: Any) -> dict[str, str]:
    with closing(TableRunBar(str(run), said)) as bar:
        return train(run, progress=bar, **options)


def in_words(row: Mapping[str, str]) -> str:
    average = f"average {100 * float(row['average']):.1f} %, " if row["average"] else ""
    return f"{average}last {100 * float(row['accuracy']):.1f} %"


def reason(error: str) -> str:
    """The last line of a traceback where that says all, else the whole."""
    kind, _, text = error.strip().splitlines()[-1].partition(": ")
    return (text or kind) if kind.rsplit(".", 1)[-1] in KNOWN else error.strip()


def end(done: Done) -> None:
    """Name what failed. Exit code 1 if something did."""
    if done.failed:
        by_reason: dict[str, list[str]] = {}
        for run, said in done.failed:
            by_reason.setdefault(said.splitlines()[-1], []).append(str(run))
        for said, names in by_reason.items():
            click.echo(f"Failed: {'; '.join(names)}: {said}", err=True)
        click.echo("The same command tries them again.", err=True)
        sys.exit(1)


def none_finished(table: str, options: Options) -> ValueError:
    return ValueError(
        f"No finished run of table {table} at scale {options['scale']} in {options['out']}. "
        "Leave out --no-run."
    )


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="NAME", shell_complete=table_names)
@click.option(
    "--scale",
    default="demo",
    show_default=True,
    help="; ".join(f"{name}: {words}" for name, words in SCALES.items()) + ".",
)
@click.option("--seeds", type=AT_LEAST_1, default=1, show_default=True, help="Seeds 0, 1, …")
@click.option(
    "--only",
    multiple=True,
    metavar="ROW",
    help="Only this row, such as icarl or icarl+hfc; can be repeated.",
)
@click.option(
    "--out", type=FOLDER, default=Path("runs"), show_default=True, help="Folder of the runs."
)
@click.option("--data", type=PATH, help="Where the images are; digits need none.")
@jobs_option
@click.option(
    "--on",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where to run: here, or on the Ray cluster that RAY_ADDRESS names; without one, Ray is "
    "started here.",
)
@device_option
@workers_option
@click.option("--no-run", is_flag=True, help="Use the finished runs and train nothing.")
@click.option(
    "--commands",
    is_flag=True,
    help="Print a command for each run that is not finished, and train nothing.",
)
@click.option(
    "--paper",
    type=PATH,
    help="The paper's numbers  [default: experiments/paper.csv beside the package]",
)
@click.option(
    "--add",
    multiple=True,
    metavar="METHOD",
    help="A row for a method that you wrote, module:Class or module:Class+hfc; can be repeated.",
)
@click.option("--tables", type=FOLDER, help="Folder of the tables  [default: OUT/tables]")
def table(
    name: str, overrides: dict[str, str], add: tuple[str, ...], tables: Path | None, **options: Any
) -> None:
    """Table NAME as CSV, markdown and LaTeX, with its figures as PNG; for a table of the paper our
    number, the paper's and the gap.

    Runs what is missing, each run in a folder of its own that other tables share; a finished one is
    not run again. Values of the recipes can be changed: hfc table cifar100 --epochs 3. --add
    mymethods:Mine adds a row for a method that you wrote. Exit code 1 if a run failed.

    \b
    cifar100  imagenet100  imagenet1000  plug-and-play  ablation  per-class-20  fh
    steps-imagenet100  steps-imagenet1000  steps-plug-and-play
    avalanche  hfc-forms  practical  methods (no numbers of the paper)
    comparison  protocols  memory  initialisation  order (at scale small)
    """
    from avalanche_hfc.lab.read import read_runs
    from avalanche_hfc.lab.rows import replace_file
    from avalanche_hfc.lab.table import cells_of, check_writable
    from avalanche_hfc.report.table_figures import figures_of
    from avalanche_hfc.report.tables import paper_of, steps_of, table_of, title_of, write_table

    if add:
        announce_loading()  # their classes are read at once
    scale, only = options["scale"], options["only"]
    cells = cells_of(name, scale, only, add)
    paper = paper_of(options["paper"])
    folder = tables or options["out"] / "tables"
    check_writable(folder)
    done = run_cells(cells, overrides, options)
    if done.finished:
        recipes = {run.recipe.name: run.recipe for run in done.finished}
        changed = {leaf: value for own in recipes.values() for leaf, value in own.overrides.items()}
        title = title_of(name, scale, changed, paper)
        runs, _ = read_runs([run.folder for run in done.finished])
        cells = named_as_run(cells, overrides)
        numbers = table_of(name, scale, cells, steps_of(runs), paper, recipes)
        stem = "-".join([name, scale, *only, *add])
        files = write_table(name, numbers, folder, stem, title, cells=cells, runs=runs)
        drawn = figures_of(name, cells, runs, recipes, paper, only=only)
        figures = [folder / f"{stem}-{figure}.png" for figure in drawn]
        for path, picture in zip(figures, drawn.values(), strict=True):
            replace_file(path, picture)
        click.echo(files[1].read_text())
        if paper is None:
            click.echo(
                "The paper's numbers are not available: there is no experiments/paper.csv next to "
                "the package. Use --paper FILE.",
                err=True,
            )
        click.echo(f"Tables: {', '.join(map(str, files))}")
        if figures:
            click.echo(f"Figures: {', '.join(map(str, figures))}")
    end(done)
    if not done.finished:
        raise none_finished(name, options)


@click.command()
@click.option(
    "--seeds",
    type=AT_LEAST_1,
    default=1,
    show_default=True,
    help="Seeds 0, 1, …; each has its own class order.",
)
@click.option(
    "--epochs", type=AT_LEAST_1, default=DEMO_EPOCHS, show_default=True, help="Epochs per step."
)
@click.option(
    "--out", type=FOLDER, default=Path("demo"), show_default=True, help="Folder of the results."
)
@click.option(
    "--fresh", is_flag=True, help="Start over. Earlier runs are moved aside, not deleted."
)
def demo(seeds: int, epochs: int, out: Path, fresh: bool) -> None:
    """Split digits in five steps: HFC, herding replay, Avalanche's Replay and Naive; a table,
    curves and a report.

    Nothing is downloaded. Runs that are in the folder already are not run again.
    """
    runs = out / "runs"
    options = LOCAL | {"scale": "demo", "seeds": seeds, "out": runs, "device": "cpu"}
    cells = cells_of("demo", "demo")
    if fresh and (old := set_aside(runs_of(cells, seeds, runs), runs)) is not None:
        click.echo(f"The earlier runs are now in {old}.", err=True)
    done = run_cells(cells, {} if epochs == DEMO_EPOCHS else {"epochs": str(epochs)}, options)
    end(done)
    if not done.finished:
        raise none_finished("demo", options)
    from avalanche_hfc.report.table_figures import write_demo
    from avalanche_hfc.report.tables import DEMO_DEFINITIONS, demo_table

    click.echo(demo_table(write_demo(out)))
    click.echo(
        f"\n{DEMO_DEFINITIONS}\n\nRows: {out / 'steps.csv'}, {out / 'summary.csv'}; curves: "
        f"{out / 'curves.png'}"
    )
    click.echo(f"Report, to open in a browser: {out / 'report.html'}")


@click.command()
@click.argument("data", metavar="DATA", type=PATH)
@click.option(
    "--methods",
    default=",".join(COMPARED),
    show_default=True,
    help="Separated by commas; icarl+hfc is iCaRL with both losses, module:Class is yours.",
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
    type=AT_LEAST_1,
    help="Epochs per step, in place of --minutes  [default: that of the recipes]",
)
@click.option(
    "--weights",
    metavar="FILE|NAME",
    help="Weights of all networks, as from `hfc pretrain`  [default: small-mae]",
)
@jobs_option
@click.option(
    "--out",
    type=FOLDER,
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
    tell_work(recipes, seeds)
    options = LOCAL | {"scale": "small", "out": out, "jobs": jobs, "device": device}
    done = run_missing(runs, [run for run in runs if run not in there], options)
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


def tell_work(recipes: Sequence[Recipe], seeds: Sequence[int]) -> None:
    """Say in a line what will be trained."""
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
    """Write the page, and print its verdict. `failed` says which methods are missing and why."""
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
