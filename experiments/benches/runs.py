"""What a run costs beside training: its checkpoints."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab import record as recorder
from avalanche_hfc.lab.run import run
from experiments.benches.timing import Row


def rows() -> Iterator[Row]:
    yield checkpoint_row()


def checkpoint_row() -> Row:
    """Seconds in checkpoints against 2 % of the seconds of the run: HFC on digits, steps a hundred
    times as long as a checkpoint.
    """
    spent: list[float] = []
    save = recorder.save_checkpoint

    def timed(*arguments):
        start = time.perf_counter()
        save(*arguments)
        spent.append(time.perf_counter() - start)

    recorder.save_checkpoint = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run(
                override(recipe("digits-b0-t5-hfc@demo"), {"epochs": "40"}), 0, Path(folder) / "run"
            )
            total = time.perf_counter() - start
    finally:
        recorder.save_checkpoint = save
    return Row(
        "checkpoints of a run, HFC on digits",
        "2 % of the run's time",
        sum(spent),
        0.02 * total,
        "s",
        "≤ 1",
        1.0,
    )
