"""Train the runs of the tables on real images, those that have no rows yet.

    python experiments/train_tables.py ROWS --data cifar100.npz --plan
    python experiments/train_tables.py ROWS --data cifar100.npz --jobs 2

The first adds up what the runs take, from a few timed batches of each, and trains nothing.

ROWS is the folder of the rows, as experiments/collect.py writes them: a run is added when it is
finished, and a run that is there is not trained again, with or without its run folder. Runs are
kept in RUNS and resumed. docs/protocol.md lists the tables.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from real_images.rows import check_same, merged, read, rows_of, run_key, settings_of, write
from real_images.tables import SHOWN, Shown
from tqdm import tqdm
from tune import GRIDS, existing, positive, train_all

from avalanche_hfc._names import counted, lookup
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.names import MEM_SIZES
from avalanche_hfc.lab.plan import plan_all
from avalanche_hfc.lab.published import TUNED
from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, runs_of
from avalanche_hfc.lab.tables import SPECS

TABLES = {shown.command.split(" --seeds")[0].removeprefix("hfc table "): shown for shown in SHOWN}


def runs_of_tables(tables: Iterable[Shown], runs: Path) -> list[TableRun]:
    """The runs of these tables, a table after the other, each seed by seed; none twice."""
    listed = [run for shown in tables for run in runs_of(shown.cells, shown.num_seeds, runs)]
    return list({(run.recipe.name, run.seed): run for run in listed}.values())  # the first place


def check_ready(runs: Iterable[TableRun], folder: Path) -> None:
    """A ValueError if a row that is to be tuned is not, or if rows are of other recipes than the
    runs: before anything is trained on test images.
    """
    specs = [SPECS[run.recipe.name] for run in runs]
    rows = {spec.row for spec in specs if spec.scale in MEM_SIZES}
    waiting = [row for row, grid in GRIDS.items() if grid and row in rows and row not in TUNED]
    if waiting:
        raise ValueError(f"Not tuned yet: {', '.join(waiting)}. See docs/protocol.md.")
    check_same(
        read(folder).recipes, {run.recipe.name: settings_of(run.recipe.as_dict()) for run in runs}
    )


def collect(runs: Iterable[TableRun], folder: Path) -> set[tuple[str, int]]:
    """Add the rows of those runs that are finished; the recipe and seed of all that have rows."""
    before = read(folder)
    known = {run_key(line) for line in before.files["runs"]}
    finished = [
        run.folder
        for run in runs
        if (run.recipe.name, run.seed) not in known and RunFolder(run.folder).finished
    ]
    if not finished:
        return known
    rows = merged(before, rows_of(read_runs(finished)[0]))
    write(rows, folder)
    return {run_key(line) for line in rows.files["runs"]}


def tell_plan(runs: Sequence[TableRun], data: Path) -> None:
    """Print the hours of all runs, one after the other, and of the longest."""
    seeds = Counter(run.recipe.name for run in runs)
    chosen = {run.recipe.name: run.recipe for run in runs}.values()
    estimates = plan_all(tqdm(chosen, unit="recipe"), data_root=data)
    seconds = {recipe.name: estimate.seconds for recipe, estimate in estimates}
    hours = sum(seconds[name] * number for name, number in seeds.items()) / 3600
    longest = max(seconds, key=seconds.__getitem__)
    print(
        f"{counted(len(runs), 'run')} to train: about {hours:.1f} hours of one core, at most "
        f"{seconds[longest] / 60:.1f} minutes each ({longest})."
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, metavar="ROWS", help="folder of the rows")
    parser.add_argument(
        "--data", type=existing, required=True, help="CIFAR-100: a folder or npz file"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="run folders")
    parser.add_argument("--jobs", type=positive, default=1, help="processes, one thread each")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TABLE", help=f"of {', '.join(TABLES)}"
    )
    parser.add_argument("--plan", action="store_true", help="how long it takes; train nothing")
    arguments = parser.parse_args()
    try:
        tables = [lookup(TABLES, name, "table") for name in arguments.only] or SHOWN
        runs = runs_of_tables(tables, arguments.runs)
        check_ready(runs, arguments.rows)
        known = collect(runs, arguments.rows)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    silence_host()
    missing = [run for run in runs if (run.recipe.name, run.seed) not in known]
    if arguments.plan and missing:
        tell_plan(missing, arguments.data)
        return 0
    failed = train_all(
        missing, arguments.data, arguments.jobs, lambda: collect(missing, arguments.rows)
    )
    known = collect(missing, arguments.rows)
    done = sum((run.recipe.name, run.seed) in known for run in runs)
    print(f"{done} of {len(runs)} runs are in {arguments.rows}.", *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
