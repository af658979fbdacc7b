"""What a run shows of itself: a bar on a terminal, plain lines elsewhere, curves for
TensorBoard.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from avalanche_hfc._types import Record
from avalanche_hfc.engine.progress import Progress
from avalanche_hfc.store.run_folder import LOSS

BAR = "{desc} |{bar}| {percentage:3.0f}% {elapsed}<{remaining}{postfix}"
QUIET_SECONDS = 30  # between two plain lines about epochs


class RunBar(Progress):
    """Loss terms of the last epoch, accuracy of the last step, average so far, images/s, time left.
    The time counts new images as alike.
    """

    def __init__(self, title: str):
        self.title = title
        self.bar: Any = None
        self.accuracy = ""
        self._spoke = time.monotonic()

    def remark(self, line: str) -> None:
        click.echo(line, err=True)

    def begin(self, images: Sequence[int], done: float) -> None:
        self.images, self.step_now = images, int(done)
        behind = sum(images[: self.step_now]) + (done % 1) * (
            images[self.step_now] if done % 1 else 0
        )
        self.bar = tqdm(
            total=sum(images),
            initial=behind,
            bar_format=BAR,
            smoothing=0,
            dynamic_ncols=True,
            disable=None,
        )
        self._describe()

    def _describe(self) -> None:
        self.bar.set_description_str(
            f"{self.title}, step {min(self.step_now + 1, len(self.images))}/{len(self.images)}",
            refresh=False,
        )

    def batch(self, fraction: float) -> None:
        self.bar.update(fraction * self.images[self.step_now])

    def epoch(self, row: Record) -> None:
        losses = " ".join(
            f"{name.removeprefix(LOSS)} {value:.3g}"
            for name, value in row.items()
            if name.startswith(LOSS)
        )
        words = ", ".join(
            filter(None, [losses, self.accuracy, f"{row['images_per_second']:.0f} images/s"])
        )
        self.bar.set_postfix_str(words)
        if self.bar.disable and time.monotonic() - self._spoke > QUIET_SECONDS:
            self._say(
                f"step {row['step'] + 1}/{len(self.images)}, {row['phase']} epoch "
                f"{row['epoch'] + 1}: {words}"
            )

    def step(self, row: Record) -> None:
        self.step_now = row["step"] + 1
        average = "" if row["average"] != row["average"] else f", average {row['average']:.3f}"
        self.accuracy = f"accuracy {row['accuracy']:.3f}{average}"
        if not self.bar.disable:
            self.bar.n = sum(self.images[: self.step_now])
            self._describe()
            self.bar.refresh()
            return
        words = (
            f"{self.accuracy} on {row['classes']} classes; {row['seconds']:.0f} s, "
            f"{row['images_per_second']:.0f} images/s"
        )
        self._say(f"step {self.step_now}/{len(self.images)}: {words}")

    def _say(self, line: str) -> None:
        self._spoke = time.monotonic()
        click.echo(line, err=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class TensorBoard(Progress):
    """Every number of train.csv and steps.csv through Avalanche's logger. A resumed run writes its
    repeated epochs a second time.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.logger: Any = None

    def begin(self, images: Sequence[int], done: float) -> None:
        from avalanche.logging import TensorboardLogger

        self.logger = TensorboardLogger(self.folder)

    def epoch(self, row: Record) -> None:
        self._write(f"train/step {row['step']}/{row['phase']}", row, row["epoch"])

    def step(self, row: Record) -> None:
        self._write("steps", row, row["step"])

    def _write(self, place: str, row: Record, x: int) -> None:
        for name, value in row.items():
            if isinstance(value, float) and value == value:
                self.logger.log_single_metric(f"{place}/{name}", value, x)
        self.logger.writer.flush()
