"""Published runs trained again, in a temporary folder, and compared with their committed rows.

    python experiments/reproduce.py ROWS --data cifar100.npz

ROWS is a folder that experiments/collect.py has written. Exit code 1 if rows differ although CPU
and versions are the same.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from real_images.rows import (
    CONDITIONS,
    MAPPED,
    Rows,
    check_same,
    differences,
    read,
    rows_of,
    run_key,
    settings_of,
    steps_of,
)
from tune import existing

from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.lab.table import TableRun, train

RECIPES = (MAPPED["herding-replay"], "cifar100-b0-t5-ncm@small", MAPPED["hfc"])


def line_of(rows: Rows, run: tuple[str, int]) -> dict[str, str]:
    """The line of a run in runs.csv.

    Raises:
        ValueError: There is none.
    """
    found = [line for line in rows.files["runs"] if run_key(line) == run]
    if not found:
        known = ", ".join(sorted({line["recipe"] for line in rows.files["runs"]})) or "none"
        raise ValueError(f"No rows of {run[0]}, seed {run[1]}. There are rows of: {known}.")
    return found[0]


def compared(rows: Rows, again: Rows, run: tuple[str, int]) -> tuple[str, bool]:
    """What a run trained again says about its committed rows, and whether these are refuted.
    Another version of this package is no excuse, nor is another file of the data: the images are
    chosen by rule.
    """
    was, now = line_of(rows, run), line_of(again, run)
    names = [name for name in CONDITIONS if was[name] != now[name]]
    others = [f"{name} was {was[name]}, is {now[name]}" for name in names]
    excused = not {"avalanche_hfc", "data"}.issuperset(names)
    different = differences(steps_of(rows, run), steps_of(again, run))
    text = f"{run[0]}, seed {run[1]}: "
    text += f"{len(different)} values differ ({different[0]})" if different else "equal"
    text += f"; trained under other conditions: {'; '.join(others)}." if others else "."
    return text, bool(different) and not excused


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, metavar="ROWS", help="folder of the committed files")
    parser.add_argument("--data", type=existing, help="CIFAR-100: a folder or npz file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--recipe", action="append", metavar="NAME", help=f"instead of {', '.join(RECIPES)}"
    )
    arguments = parser.parse_args()
    rows = read(arguments.rows)
    names = arguments.recipe or RECIPES
    try:
        for name in names:
            line_of(rows, (name, arguments.seed))
        check_same(rows.recipes, {name: settings_of(recipe(name).as_dict()) for name in names})
    except ValueError as error:
        parser.error(str(error))
    silence_host()
    refuted = False
    for name in names:
        with TemporaryDirectory() as folder:
            run = TableRun(recipe(name), arguments.seed, Path(folder) / name)
            train(run, data_root=arguments.data)
            again = rows_of(read_runs([run.folder])[0])
        text, differs = compared(rows, again, (name, arguments.seed))
        print(text, flush=True)
        refuted |= differs
    return int(refuted)


if __name__ == "__main__":
    sys.exit(main())
