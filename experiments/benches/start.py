"""Start-up of the command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from experiments.benches.timing import Row

HFC = Path(sys.executable).with_name("hfc")


def rows() -> Iterator[Row]:
    bare = cpu_seconds([sys.executable, "-c", "pass"])
    for command in ("--help", "list"):
        yield Row(
            f"hfc {command}",
            "python -c pass, plus 0.3 s",
            cpu_seconds([str(HFC), command]),
            bare + 0.3,
            "s",
            "≤ 1",
            1.0,
        )


def cpu_seconds(command: list[str], repeats: int = 5) -> float:
    """Least user + system time of a process: what the disk cache and the other core do is not the
    command's.
    """
    best = float("inf")
    for _ in range(repeats):
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        best = min(
            best,
            after.children_user
            - before.children_user
            + after.children_system
            - before.children_system,
        )
    return best
