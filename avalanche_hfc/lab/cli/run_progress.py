"""What a run shows of itself: a bar on a terminal, plain lines elsewhere, curves for
TensorBoard.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from avalanche_hfc._types import Record
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.run_folder import LOSS

BAR = "{desc} |{bar}| {percentage:3.0f}% {elapsed}<{remaining}{postfix}"
QUIET_SECONDS = 30  # between two plain lines about epochs


class RunBar(Progress):
    """A line for each step, and below them, on a terminal, a bar with the step, the time left, and
    loss and images/s of the last epoch. It fits 80 columns.
    """

    leave = True  # whether the bar stays when it is closed

    def __init__(self, title: str):
        self.title = title
        self.bar: Any = None
        self._spoke = time.monotonic()

    def remark(self, line: str) -> None:
        click.echo(line, err=True)

    def begin(self, work: Sequence[int], done: float) -> None:
        self.work, self.step_now = work, int(done)
        behind: float = sum(work[: self.step_now])
        if done % 1:
            behind += (done % 1) * work[self.step_now]
        self.bar = tqdm(
            total=sum(work),
            initial=behind,
            bar_format=BAR,
            smoothing=0,
            dynamic_ncols=True,
            disable=None,
            leave=self.leave,
        )
        self.name_run()
        self._describe()

    def name_run(self) -> None:
        if not self.bar.disable:
            self._say(self.title)

    def describe(self) -> str:
        """What stands before the bar."""
        return f"step {min(self.step_now + 1, len(self.work))}/{len(self.work)}"

    def _describe(self) -> None:
        self.bar.set_description_str(self.describe(), refresh=False)

    def batch(self, fraction: float) -> None:
        left = sum(self.work[: self.step_now + 1]) - self.bar.n
        self.bar.update(min(fraction * self.work[self.step_now], left))

    def epoch(self, row: Record) -> None:
        words = f"{row['images_per_second']:.0f} images/s"
        if f"{LOSS}total" in row:
            words = f"loss {row[f'{LOSS}total']:.3g}, {words}"
        self.bar.set_postfix_str(words)
        if self.bar.disable and time.monotonic() - self._spoke > QUIET_SECONDS:
            self._say(
                f"step {row['step'] + 1}/{len(self.work)}, {row['phase']} epoch "
                f"{row['epoch'] + 1}: {words}"
            )

    def step(self, row: Record) -> None:
        self.step_now = row["step"] + 1
        average = "" if row["average"] != row["average"] else f", average {row['average']:.3f}"
        self._say(
            f"step {self.step_now}/{len(self.work)}: accuracy {row['accuracy']:.3f}{average} on "
            f"{row['classes']} classes; {row['seconds']:.0f} s, "
            f"{row['images_per_second']:.0f} images/s"
        )
        if not self.bar.disable:
            self.bar.n = sum(self.work[: self.step_now])
            self._describe()
            self.bar.refresh()

    def _say(self, line: str) -> None:
        """A line that stays: above the bar where there is one."""
        self._spoke = time.monotonic()
        if self.bar.disable:
            click.echo(line, err=True)
        else:
            self.bar.write(line, file=sys.stderr)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class TensorBoardBar(RunBar):
    """A bar, and every number of train.csv and steps.csv through Avalanche's logger for
    TensorBoard. A resumed run writes its repeated epochs a second time.
    """

    def __init__(self, title: str, folder: Path):
        super().__init__(title)
        self.folder = folder

    def begin(self, work: Sequence[int], done: float) -> None:
        from avalanche.logging import TensorboardLogger

        self.logger = TensorboardLogger(self.folder)
        super().begin(work, done)

    def epoch(self, row: Record) -> None:
        super().epoch(row)
        self._write(f"train/step {row['step']}/{row['phase']}", row, row["epoch"])

    def step(self, row: Record) -> None:
        super().step(row)
        self._write("steps", row, row["step"])

    def _write(self, prefix: str, row: Record, x: int) -> None:
        for name, value in row.items():
            if isinstance(value, float) and value == value:
                self.logger.log_single_metric(f"{prefix}/{name}", value, x)
        self.logger.writer.flush()
