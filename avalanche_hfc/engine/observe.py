"""The plugin that writes train.csv, epoch by epoch, and the rule by which checkpoints are saved."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor
from torch.nn import Module

from avalanche_hfc._types import Record, State, Strategy
from avalanche_hfc.engine.interrupts import Interrupts
from avalanche_hfc.engine.progress import Progress, StepWork
from avalanche_hfc.engine.protocol import Resumable, RunnableStrategy
from avalanche_hfc.engine.sample_weights import WeightSpread, digest
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.store.checkpoint import save_checkpoint
from avalanche_hfc.store.run_folder import LOSS, RunRows

COST = 0.01  # the share of the time that checkpoints inside a step may take


class Saver:
    """A checkpoint at the end of every step; inside a step after an epoch, of any phase, once the
    last one lies back 100 times the seconds that it took, or `interval` seconds if given. So they
    take 1 % of the time inside a step; with the one at its end it stays below 2 % in a step as long
    as 100 of them.

    `check_owned` is called before each save and raises where the folder is no longer this
    process's.
    """

    def __init__(
        self,
        folder: Path,
        rows: RunRows,
        interval: float | int | None = None,
        check_owned: Callable[[], None] = lambda: None,
    ):
        self.folder, self.rows, self.interval = folder, rows, interval
        self.check_owned = check_owned
        self._took = 0.0
        self._ended = -math.inf

    def save_if_due(self, training: Resumable, note: Record) -> bool:
        """Save where it is time to; whether it was."""
        wait = self._took / COST if self.interval is None else self.interval
        due = time.perf_counter() - self._ended >= wait
        if due:
            self.save(training, note)
        return due

    def save(self, training: Resumable, note: Record) -> None:
        """Nothing for a training without a state, such as Avalanche's own."""
        if training.resumable:
            self.write(training.state_dict(), note)

    def write(self, state: State, note: Record) -> None:
        """A checkpoint of this state and the rows as they are."""
        start = time.perf_counter()
        self.check_owned()
        save_checkpoint(self.folder, state, {**note, **self.rows.metadata()})
        self._ended = time.perf_counter()
        self._took = self._ended - start


class Recorder(RankedPlugin):
    """A row of train.csv after every epoch of every phase, then a checkpoint if one is due.

    Give it to the strategy as a plugin, then call `begin`. It keeps nothing that a resumed run
    needs: epochs are recorded whole.
    """

    strategy: RunnableStrategy
    rows: RunRows
    saver: Saver

    def __init__(self, progress: Progress, seed: int, interrupts: Interrupts | None = None):
        super().__init__()
        self.progress, self.seed = progress, seed
        self.interrupts = interrupts or Interrupts()
        self.weight_spread = WeightSpread()
        self.step = 0
        self.seconds_before, self.images = (
            0.0,
            0,
        )  # of the step: what earlier processes trained; images of all of it
        self._start = time.perf_counter()
        self._begin_epoch(0)

    def begin(self, strategy: RunnableStrategy, rows: RunRows, saver: Saver) -> None:
        self.strategy, self.rows, self.saver = strategy, rows, saver
        strategy.draw_seed = self.seed

    def begin_step(
        self, step: int, work: StepWork, seconds: float = 0.0, images: int = 0, done: float = 0.0
    ) -> None:
        """`seconds`, `images` and the fraction `done` are those of an interrupted step, up to its
        checkpoint.
        """
        self.step, self.seconds_before, self.images = step, seconds, images
        self.work, self.done = work, done
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Training of this step, in all processes."""
        return self.seconds_before + time.perf_counter() - self._start

    def _begin_epoch(self, epoch: int) -> None:
        self.weight_spread.start()
        self.epoch = epoch
        self._lr: float | None = None
        self._loss: Tensor | None = None
        self._num_batches, self._num_images = 0, 0
        self._epoch_start = time.perf_counter()

    # Main epochs

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._begin_epoch(strategy.clock.train_exp_epochs)

    def before_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        if self._lr is None:  # after all plugins had their say in it
            self._lr = strategy.optimizer.param_groups[0]["lr"]

    def after_backward(self, strategy: Strategy, **kwargs: object) -> None:
        self.weight_spread.add(StepTable.of(strategy).sample_weights)
        loss = strategy.loss.detach().double()
        self._loss = loss if self._loss is None else self._loss + loss

    def after_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        self.interrupts.check()
        self._num_batches += 1
        self._num_images += len(strategy.mb_y)
        batches = len(strategy.dataloader) * strategy.train_epochs
        self._tell(self.work.main / batches)

    def after_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._end_epoch(strategy, "train", self.epoch, self._lr, strategy.model)

    # Epochs of other phases

    def before_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._begin_epoch(strategy.phase_running.epoch)

    def after_phase_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        self.interrupts.check()
        num_images = len(strategy.phase_running.batch[1])
        self._num_images += num_images
        if self.work.later:  # else too short to be counted
            self._tell(self.work.each * num_images)

    def after_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        phase = strategy.phase_running
        self._end_epoch(
            strategy, phase.name, phase.epoch, phase.optimizer.param_groups[0]["lr"], phase.module()
        )

    def _tell(self, work: float | int) -> None:
        fraction = work / self.work.total
        self.done += fraction
        self.progress.batch(fraction)

    def _end_epoch(
        self,
        strategy: Strategy,
        phase: str,
        epoch: int,
        lr: float | None,
        trained: Module,
    ) -> None:
        self.images += self._num_images
        row = {
            "step": self.step,
            "phase": phase,
            "epoch": epoch,
            "lr": lr,
            **{f"{LOSS}{name}": value for name, value in self._losses().items()},
            **self.weight_spread.numbers(),
            "accuracy": None,
            "images_per_second": round(
                self._num_images / max(time.perf_counter() - self._epoch_start, 1e-9), 1
            ),
            "digest": digest(trained),
        }
        self.rows.add("train", [row])
        self.progress.epoch(row)
        note = {
            "step": self.step,
            "inside": True,
            "phase": phase,
            "epoch": epoch,
            "seconds": self.seconds,
            "images": self.images,
            "done": min(self.done, 0.99),
        }
        self.saver.save_if_due(self.strategy, note)

    def _losses(self) -> Mapping[str, float]:
        """The terms that the strategy has recorded; else what it minimised."""
        terms = self.strategy.epoch_losses()
        if terms is not None:
            return terms
        if self._loss is None:
            return {}
        mean = self._loss.item() / self._num_batches
        if not math.isfinite(mean):
            raise FloatingPointError(
                f"The loss is not finite in step {self.step}, epoch {self.epoch} (counted from 0)."
            )
        return {"total": mean}
