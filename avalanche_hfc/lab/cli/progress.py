"""What runs show while they train: bars on a terminal, plain lines elsewhere, curves for
TensorBoard.
"""

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from avalanche_hfc._types import Record
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.run_folder import LOSS

TITLE = 24  # characters of a run's name beside its bar, which fits 80 columns
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
        if not self.bar.disable and self.leave:
            self.say(self.title)
        self.bar.set_description_str(self.describe(), refresh=False)

    def describe(self) -> str:
        """What stands before the bar."""
        return f"step {min(self.step_now + 1, len(self.work))}/{len(self.work)}"

    def batch(self, fraction: float) -> None:
        left = sum(self.work[: self.step_now + 1]) - self.bar.n
        self.bar.update(min(fraction * self.work[self.step_now], left))

    def epoch(self, row: Record) -> None:
        words = f"{row['images_per_second']:.0f} images/s"
        if f"{LOSS}total" in row:
            words = f"loss {row[f'{LOSS}total']:.3g}, {words}"
        self.bar.set_postfix_str(words)
        if self.bar.disable and time.monotonic() - self._spoke > QUIET_SECONDS:
            step, epoch = row["step"] + 1, row["epoch"] + 1
            self.say(f"step {step}/{len(self.work)}, {row['phase']} epoch {epoch}: {words}")

    def step(self, row: Record) -> None:
        self.step_now = row["step"] + 1
        average = "" if row["average"] != row["average"] else f", average {row['average']:.3f}"
        self.say(
            f"step {self.step_now}/{len(self.work)}: accuracy {row['accuracy']:.3f}{average} on "
            f"{row['classes']} classes; {row['seconds']:.0f} s, "
            f"{row['images_per_second']:.0f} images/s"
        )
        if not self.bar.disable:
            self.bar.n = sum(self.work[: self.step_now])
            self.bar.set_description_str(self.describe())

    def say(self, line: str) -> None:
        """Print a line that stays: above the bar where there is one."""
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


class TableRunBar(RunBar):
    """A bar below that of the table, which names the run. Elsewhere a line after every 30 seconds
    names it; `RunLines` says how it ended. Remarks that are in `said` are not repeated.
    """

    leave = False

    def __init__(self, title: str, said: set[str] | None = None):
        super().__init__(title)
        self.said = set() if said is None else said

    def remark(self, line: str) -> None:
        if line not in self.said:
            self.said.add(line)
            super().remark(line)

    def describe(self) -> str:
        title = self.title if len(self.title) <= TITLE else f"{self.title[: TITLE - 1]}…"
        return f"{title} {super().describe().removeprefix('step ')}"

    def say(self, line: str) -> None:
        if self.bar.disable and time.monotonic() - self._spoke > QUIET_SECONDS:
            super().say(f"{self.title}: {line}")


class PretrainBar(RunBar):
    """A bar on a terminal, a line per epoch elsewhere."""

    words = "pre-training"

    def describe(self) -> str:
        return self.words

    def epoch(self, row: Record) -> None:
        epoch, epochs = row["epoch"] + 1, sum(self.work)
        self.words = f"epoch {epoch}/{epochs}: loss {row['loss']:.4f}"
        self.bar.set_description_str(self.words)
        if self.bar.disable:
            click.echo(f"{self.words}, {row['seconds']:.0f} s", err=True)


class RunLines:
    """A line about each run of a table: above the bar, or with the time left where there is no
    bar.
    """

    def __init__(self, bar: Any):
        self.bar, self.count, self.start = bar, 0, time.monotonic()

    def tell(self, text: str) -> None:
        """Say how the next run ended; nothing for an empty text."""
        self.count += 1
        self.bar.update()
        if text and self.bar.disable:
            left = (time.monotonic() - self.start) / self.count * (self.bar.total - self.count)
            click.echo(f"{self.count}/{self.bar.total}{time_left(left)}: {text}", err=True)
        elif text:
            self.bar.write(text, file=sys.stderr)


def time_left(seconds: float) -> str:
    """A rough time in words, after a comma; nothing if it is over."""
    if not seconds:
        return ""
    return ", less than a minute left" if seconds < 60 else f", about {seconds / 60:.0f} min left"


@contextmanager
def shown(bar: RunBar, kept_in: Path, again: Sequence[str]) -> Iterator[RunBar]:
    """Show a training as this bar. Ctrl-C ends the process with `again`, the command that resumes
    the training.
    """
    try:
        yield bar
    except KeyboardInterrupt:
        bar.close()
        click.echo(
            f"\nhfc: stopped. What is done is kept in {kept_in}. To resume:\n{shlex.join(again)}",
            err=True,
        )
        sys.exit(130)
    finally:
        bar.close()
