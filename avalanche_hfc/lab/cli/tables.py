"""The runs of a table, with a bar for the table and one for the run; a plain line per run where the
output is not a terminal.
"""

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

from avalanche_hfc._types import Options
from avalanche_hfc.lab import DEMO_EPOCHS, TableCell
from avalanche_hfc.lab.cli.options import RecipeCommand, announce_loading, overrides_of, run_options
from avalanche_hfc.lab.cli.options import tables as table_names
from avalanche_hfc.lab.cli.run_progress import QUIET_SECONDS, RunBar
from avalanche_hfc.lab.describe import command
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, check_writable, finished, runs_of, train, without

if TYPE_CHECKING:
    from avalanche_hfc.lab.jobs import Outcome

KNOWN = (
    "ValueError",
    "FolderInUseError",
    "FileNotFoundError",
    "FloatingPointError",
    "OSError",
    "PermissionError",
)  # errors whose text says all


TITLE = 24  # characters of a run's name beside its bar, which fits 80 columns


class Done(NamedTuple):
    """The runs that are finished, and those that failed with the reason."""

    finished: list[TableRun]
    failed: list[tuple[TableRun, str]]
    overrides: Options


def run_cells(cells: Sequence[TableCell], arguments: Sequence[str], options: Options) -> Done:
    """Run what is missing of some cells. A folder of another recipe, or a wrong value, is an error
    before anything is written.
    """
    given = overrides_of(arguments)
    if not options["no_run"]:
        check_writable(options["out"])
    announce_loading()
    runs = runs_of(cells, options["seeds"], options["out"], given)
    there = finished(runs)
    tell_unused(runs, given)
    overrides = {leaf: value for run in runs for leaf, value in run.recipe.overrides.items()}
    missing = [run for run in runs if run not in there]
    if options["commands"]:
        for run in missing:
            click.echo(command_of(run, options))
        sys.exit(0)
    if options["no_run"]:
        if missing:
            click.echo(f"Not finished: {'; '.join(map(str, missing))}.", err=True)
        return Done(there, [], overrides)
    return run_missing(runs, missing, options)._replace(overrides=overrides)


def run_missing(runs: Sequence[TableRun], missing: Sequence[TableRun], options: Options) -> Done:
    """Run those of some runs that are not finished. Ctrl-C ends the process with the command that
    resumes them.
    """
    there = [run for run in runs if run not in missing]
    if not missing:
        return Done(there, [], {})
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
    return Done(finished(runs), failed, {})


def tell_unused(runs: Sequence[TableRun], given: Mapping[str, str]) -> None:
    for name in given:
        others = without({run.recipe.name: run.recipe for run in runs}.values(), name)
        if others:
            click.echo(f"--{name} has no effect on {', '.join(others)}.", err=True)


def run_all(runs: Sequence[TableRun], options: Options) -> list[tuple[TableRun, str]]:
    """The runs that failed and why; the others are run. What none of them can do without is looked
    for once, before the first.
    """
    import torch

    from avalanche_hfc.lab.jobs import check_data, check_precisions, check_room, outcomes
    from avalanche_hfc.lab.run import check_device

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
    bar = tqdm(total=len(runs), unit="run", disable=None, dynamic_ncols=True)
    return tell_all(outcomes(work, runs, jobs=options["jobs"]), bar)


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
        bar = tqdm(total=len(runs), unit="run", disable=None, dynamic_ncols=True)
        results = ray_outcomes(
            ray,
            work,
            runs,
            cpus=1 + workers,
            gpus=int(device.startswith("cuda")),
            waiting=lambda: bar.set_postfix_str(steps_done(runs)),
        )
        return tell_all(results, bar)


def steps_done(runs: Sequence[TableRun]) -> str:
    """The steps that are done of all runs, read from their folders. A folder that cannot be read,
    as while one of its files is written on another node, counts for nothing this time.
    """
    done = 0
    for run in runs:
        with suppress(ValueError, OSError):
            done += len(RunFolder(run.folder).read("steps"))
    return f"{done} steps done"


def tell_all(outcomes: "Generator[Outcome, None, None]", bar: Any) -> list[tuple[TableRun, str]]:
    """Tell of each run as it ends; those that failed and why."""
    failed: list[tuple[TableRun, str]] = []
    lines = Lines(bar)
    with bar, closing(outcomes) as results:
        for run, row, error in results:
            bar.update()
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


class Lines:
    """A line about each run: above the bar, or with the time left where there is none."""

    def __init__(self, bar: Any):
        self.bar, self.count, self.start = bar, 0, time.monotonic()

    def tell(self, text: str) -> None:
        """Nothing is told of a run that failed as another did."""
        self.count += 1
        if not text:
            return
        if self.bar.disable:
            left = (time.monotonic() - self.start) / self.count * (self.bar.total - self.count)
            click.echo(f"{self.count}/{self.bar.total}{time_left(left)}: {text}", err=True)
        else:
            self.bar.write(text, file=sys.stderr)


def time_left(seconds: float) -> str:
    """A rough time in words, behind a comma; nothing if it is over."""
    if not seconds:
        return ""
    return ", less than a minute left" if seconds < 60 else f", about {seconds / 60:.0f} min left"


class TableRunBar(RunBar):
    """Below the bar of the table. Plain lines name the run, and a run of seconds has none but its
    last, which `Lines` tells; on a terminal that is the only line of a run. Remarks on the data are
    made once: `said` holds those of the runs before.
    """

    leave = False

    def __init__(self, title: str, said: set[str] | None = None):
        super().__init__(title)
        self.said = set() if said is None else said

    def remark(self, line: str) -> None:
        if line not in self.said:
            self.said.add(line)
            super().remark(line)

    def name_run(self) -> None:
        """The bar itself names the run."""

    def describe(self) -> str:
        title = self.title if len(self.title) <= TITLE else f"{self.title[: TITLE - 1]}…"
        return f"{title} {super().describe().removeprefix('step ')}"

    def _say(self, line: str) -> None:
        if self.bar.disable and time.monotonic() - self._spoke > QUIET_SECONDS:
            super()._say(f"{self.title}: {line}")


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
@run_options
@click.option(
    "--add",
    multiple=True,
    metavar="METHOD",
    help="A row for a method that you wrote, as module:Class or module:Class+hfc; may be given "
    "several times.",
)
@click.option(
    "--tables",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the tables  [default: OUT/tables]",
)
@click.pass_context
def table(
    context: click.Context, name: str, add: tuple[str, ...], tables: Path | None, **options: Any
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
    from avalanche_hfc.lab.cli.tables import end, none_finished, run_cells
    from avalanche_hfc.lab.read import read_runs
    from avalanche_hfc.lab.rows import replace_file
    from avalanche_hfc.lab.table import cells_of, check_writable, named_as_run
    from avalanche_hfc.report.table_figures import figures_of
    from avalanche_hfc.report.tables import paper_of, steps_of, table_of, title_of, write_table

    if add:
        announce_loading()  # their classes are read at once
    cells = cells_of(name, options["scale"], options["only"], add)
    paper = paper_of(options["paper"])
    folder = tables or options["out"] / "tables"
    check_writable(folder)
    done = run_cells(cells, context.args, options)
    if done.finished:
        scale, title = options["scale"], title_of(name, options["scale"], done.overrides, paper)
        runs, _ = read_runs([run.folder for run in done.finished])
        cells = named_as_run(cells, overrides_of(context.args))
        recipes = {run.recipe.name: run.recipe for run in done.finished}
        numbers = table_of(name, scale, cells, steps_of(runs), paper, recipes)
        stem = "-".join([name, scale, *options["only"], *add])
        files = write_table(name, numbers, folder, stem, title, cells=cells, runs=runs)
        drawn = figures_of(name, cells, runs, recipes, paper, only=options["only"])
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
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Seeds 0, 1, …; each has its own class order.",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=DEMO_EPOCHS,
    show_default=True,
    help="Epochs per step.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Result folder.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Start over. The runs that are there are moved aside, not deleted.",
)
def demo(seeds: int, epochs: int, out: Path, fresh: bool) -> None:
    """Split digits in five steps: HFC, herding replay, Avalanche's Replay and Naive; a table,
    curves and a report.

    Nothing is downloaded. Runs that are in the folder already are not run again.
    """
    from avalanche_hfc.lab.cli.tables import end, none_finished, run_cells
    from avalanche_hfc.lab.table import cells_of, runs_of, set_aside

    runs = out / "runs"
    options = {
        "scale": "demo",
        "seeds": seeds,
        "out": runs,
        "jobs": 1,
        "on": "local",
        "commands": False,
        "device": "cpu",
        "data": None,
        "workers": None,
        "no_run": False,
    }
    cells = cells_of("demo", "demo")
    if fresh and (old := set_aside(runs_of(cells, seeds, runs), runs)) is not None:
        click.echo(f"The runs that were there are in {old} now.", err=True)
    done = run_cells(cells, [] if epochs == DEMO_EPOCHS else ["--epochs", str(epochs)], options)
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
