"""python tests/faults/many_kills.py [KILLS]: runs killed at random moments, twenty times each,
compared with unbroken ones.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from kills import killed_and_resumed, unbroken

METHODS = ("hfc", "foster", "dytox")  # the last two have the most phases


def compare(method, kills, folder):
    """Kill a run until `kills` have landed, in as many whole runs as that takes. The number of
    runs.
    """
    import torch
    from tiny_runs import rows_of, weights_of

    seconds, landed, runs = unbroken(folder / "whole", method), 0, 0
    expected = weights_of(folder / "whole")
    while landed < kills:
        broken = folder / str(runs)
        landed += killed_and_resumed(
            broken, method, kills=kills - landed, seconds=seconds, seed=runs
        )
        runs += 1
        final = weights_of(broken)
        if rows_of(broken) != rows_of(folder / "whole") or any(
            not torch.equal(final[name], expected[name]) for name in expected
        ):
            sys.exit(
                f"{method}: {broken} differs from {folder / 'whole'} after {landed} kills. "
                "Both are kept."
            )
    return runs


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for method in METHODS:
        folder = Path(tempfile.mkdtemp(prefix=f"kills-{method}-"))
        runs = compare(method, kills, folder)
        shutil.rmtree(folder)
        sys.stdout.write(
            f"{method}: {kills} kills in {runs} runs; rows and weights equal those of an "
            "unbroken run\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
