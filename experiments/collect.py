"""The rows of finished runs as the files that are committed.

    python experiments/collect.py runs --out rows

OUT/runs.csv has a line per run, OUT/steps.csv its steps, OUT/classes.csv the classes of two
methods, OUT/recipes.json the settings. Runs are added to those that are there. docs/protocol.md
lists the files.
"""

import argparse
import sys
from pathlib import Path

from real_images.rows import merged, read, rows_of, write

from avalanche_hfc.lab.read import read_runs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of them")
    parser.add_argument("--out", type=Path, required=True, help="folder of the files")
    arguments = parser.parse_args()
    try:
        found, waiting = read_runs(arguments.runs)
        finished = [run for run in found if run.finished]
        before = read(arguments.out)
        rows = merged(before, rows_of(finished))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    write(rows, arguments.out)
    count = len(rows.files["runs"])
    unfinished = len(found) - len(finished) + len(waiting)
    print(
        f"{count} runs in {arguments.out}, {count - len(before.files['runs'])} of them new; "
        f"{unfinished} not finished."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
