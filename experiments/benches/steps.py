"""What a step of a run costs beside its images: the same images in few and in many steps."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.run import run
from experiments.benches.timing import Row, side_by_side

FEW, MANY = 1, 5
PER_CLASS = 8  # of ten classes; few, so that a step costs more than its images


def rows() -> Iterator[Row]:
    works = {str(steps): partial(train, planned(steps)) for steps in (FEW, MANY)}
    seconds = side_by_side(works, repeats=9)
    yield Row(
        f"CPU time of a run of {MANY} steps: HFC on {10 * PER_CLASS} digits, one epoch",
        f"the same images in {FEW} step",
        1e3 * seconds[str(MANY)],
        1e3 * seconds[str(FEW)],
        "ms",
        "none",
        float("inf"),
    )


def planned(steps: int) -> Recipe:
    """HFC on digits, with a model as wide as that of the other rows."""
    values = {
        "num_steps": str(steps),
        "epochs": "1",
        "train_per_class": str(PER_CLASS),
        "test_per_class": "1",
        "mem_size": "10",
        "embed_dim": "128",
        "msa_blocks": "4",
    }
    return override(recipe("digits-b0-t5-hfc@demo"), values)


def train(chosen: Recipe) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(chosen, 0, Path(folder) / "run")
