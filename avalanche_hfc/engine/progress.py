"""What a run reports while it is running. No torch."""

from collections.abc import Sequence

from avalanche_hfc._types import Record


class Progress:
    """Callbacks for every batch, epoch and step. They do nothing: override those you need. Rows are
    as in the CSV files, unrounded.
    """

    def remark(self, line: str) -> None:
        """A line about the data, before `begin`."""

    def begin(self, images: Sequence[int], done: float) -> None:
        """`images` is the number of new images of each step; `done` steps are behind, a fraction of
        one in the middle of a step.
        """

    def batch(self, fraction: float) -> None:
        """A batch of the main phase is done: this fraction of the step's main phase."""

    def epoch(self, row: Record) -> None:
        """A row of train.csv."""

    def step(self, row: Record) -> None:
        """A row of steps.csv."""


class Several(Progress):
    """Tells each of them in turn."""

    def __init__(self, listeners: Sequence[Progress]):
        self.listeners = listeners

    def remark(self, line: str) -> None:
        for listener in self.listeners:
            listener.remark(line)

    def begin(self, images: Sequence[int], done: float) -> None:
        for listener in self.listeners:
            listener.begin(images, done)

    def batch(self, fraction: float) -> None:
        for listener in self.listeners:
            listener.batch(fraction)

    def epoch(self, row: Record) -> None:
        for listener in self.listeners:
            listener.epoch(row)

    def step(self, row: Record) -> None:
        for listener in self.listeners:
            listener.step(row)
