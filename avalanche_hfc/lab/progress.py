"""What a run reports while it is running. No torch."""

from collections.abc import Sequence
from typing import NamedTuple

from avalanche_hfc._types import Record
from avalanche_hfc.lab.describe import phases_by_step
from avalanche_hfc.lab.schema import Recipe

# Of an image, in forward passes of the model
TRAINING, TEACHER = 3, 1


class StepWork(NamedTuple):
    """What a step takes, in forward passes of one image: its main epochs, its later phases, one
    pass over all test images so far; `each` is what an image in training takes.
    """

    main: int
    later: int
    passes: int
    each: int

    @property
    def total(self) -> int:
        return self.main + self.later + self.passes


def work_by_step(
    recipe: object, sizes: Sequence[tuple[int, int]], tests: Sequence[int], *, teacher: bool
) -> list[StepWork]:
    """What each step will take, as a share of which progress is told; roughly.

    Args:
        recipe: The recipe. What is no `Recipe` counts new images only.
        sizes: Classes and training images that each step brings.
        tests: Test images that each step brings.
        teacher: Whether the model of the step before is asked about each image.

    Returns:
        The work of each step.

    Example:
        >>> work_by_step(None, [(2, 100), (2, 50)], [20, 20], teacher=True)[1]
        StepWork(main=200, later=0, passes=40, each=4)
    """
    phases = [(images, 0) for _, images in sizes]
    if isinstance(recipe, Recipe):
        phases = phases_by_step(recipe, sizes)
    work = []
    for step, (main, later) in enumerate(phases):
        each = TRAINING + (TEACHER if step and teacher else 0)
        work.append(StepWork(each * main, each * later, sum(tests[: step + 1]), each))
    return work


class Progress:
    """Callbacks for every batch, epoch and step. They do nothing: override those you need. Rows are
    as in the CSV files, unrounded.
    """

    def remark(self, line: str) -> None:
        """A line about the data, before `begin`."""

    def begin(self, work: Sequence[int], done: float) -> None:
        """`work` says how long each step takes compared with the others; `done` steps are behind, a
        fraction of one in the middle of a step.
        """

    def batch(self, fraction: float) -> None:
        """A batch of any phase is done: this fraction of the step."""

    def epoch(self, row: Record) -> None:
        """A row of train.csv."""

    def step(self, row: Record) -> None:
        """A row of steps.csv."""
