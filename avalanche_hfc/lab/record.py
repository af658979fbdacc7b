"""What a run keeps of its training: a row for every epoch, the rows of every step, checkpoints."""

import hashlib
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset, Subset

from avalanche_hfc._types import Json, Record, State, Strategy
from avalanche_hfc.benchmarks import SplitBenchmark
from avalanche_hfc.lab.checkpoint import save_checkpoint
from avalanche_hfc.lab.machine import Interrupts
from avalanche_hfc.lab.progress import Progress, StepWork
from avalanche_hfc.lab.ranks import on_first, peak_memory, together
from avalanche_hfc.lab.run_folder import LOSS, RunRows
from avalanche_hfc.metrics import (
    StepCounts,
    accuracy,
    accuracy_nme,
    average_incremental_accuracy,
    evaluate,
    forgetting,
    forgetting_heterogeneity,
)
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.steps import SampleWeights, StepTable
from avalanche_hfc.ranks import gather_objects, world

log = logging.getLogger(__name__)
AT_START: Json = {"step": 0, "inside": False, "done": 0.0}  # of a checkpoint between steps


class WeightSpread:
    """How W_i of Eq. 9 spread over the samples of an epoch. Sums are kept on the device and read
    once, when the epoch is over.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # n, Σ W_i, Σ W_i², samples alone in their step

    def add(self, batch: SampleWeights | None) -> None:
        """Count a batch; None: it was not weighed."""
        if batch is None:
            return
        weights = batch.weights.double()
        alone = (batch.steps[:, None] == batch.steps[None, :]).sum(1) == 1
        terms = (torch.ones_like(weights), weights, weights.square(), alone.double())
        sums = torch.stack([term.sum() for term in terms])
        self._sums = sums if self._sums is None else self._sums + sums

    def numbers(self) -> dict[str, float | None]:
        """Standard deviation of the weights and share of samples alone in their step, over the
        epoch; None where nothing was weighed.
        """
        if self._sums is None:
            return {"weight_spread": None, "alone_fraction": None}
        n, total, squares, alone = self._sums.tolist()
        return {
            "weight_spread": math.sqrt(max(squares / n - (total / n) ** 2, 0.0)),
            "alone_fraction": alone / n,
        }


def digest(module: nn.Module) -> str:
    """16 hexadecimal digits that change if any bit, name or form of the parameters and buffers
    does.
    """
    sha256 = hashlib.sha256()
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            sha256.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            sha256.update(
                value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            )
        else:
            sha256.update(f"{name} {value!r}\n".encode())
    return sha256.hexdigest()[:16]


COST = 0.01  # the share of the time that checkpoints inside a step may take


class Saver:
    """A checkpoint at the end of every step; inside a step after an epoch, of any phase, once the
    last one lies back 100 times the seconds that it took, or `interval` seconds if given. So they
    take 1 % of the time inside a step; with the one at its end it stays below 2 % in a step as long
    as 100 of them.
    """

    def __init__(self, rows: RunRows, interval: float | int | None = None):
        self.rows, self.interval = rows, interval
        self._took = 0.0
        self._ended = -math.inf

    def save_if_due(self, training: Strategy, note: Record) -> bool:
        """Save where it is time to; whether it was."""
        wait = self._took / COST if self.interval is None else self.interval
        due = time.perf_counter() - self._ended >= wait
        if due:
            self.save(training, note)
        return due

    def save(self, training: Strategy, note: Record) -> None:
        """Nothing for a training without a state, such as Avalanche's own."""
        if training.resumable:
            self.write(training.state_dict(), note)

    def write(self, state: State, note: Record) -> None:
        """A checkpoint of this state and the rows as they are."""
        start = time.perf_counter()
        self.rows.folder.check_owned()
        save_checkpoint(self.rows.folder.checkpoints, state, {**note, **self.rows.metadata()})
        self._ended = time.perf_counter()
        self._took = self._ended - start


class Recorder(RankedPlugin):
    """A row of train.csv after every epoch of every phase, then a checkpoint if one is due; the
    rows of every step, then a checkpoint. Rank 0 writes them.

    Give it to the strategy as a plugin, then call `begin`. It keeps nothing that a resumed run
    needs: epochs are recorded whole.
    """

    rows: RunRows  # on rank 0
    saver: Saver

    def __init__(self, progress: Progress, seed: int, interrupts: Interrupts | None = None):
        super().__init__()
        self.progress, self.seed = progress, seed
        self.interrupts = interrupts or Interrupts()

    def open(self, rows: RunRows, checkpoint_seconds: float | int | None) -> None:
        """Where to write; on rank 0."""
        self.rows, self.saver = rows, Saver(rows, checkpoint_seconds)

    def begin(
        self, strategy: Strategy, benchmark: SplitBenchmark, work: Sequence[StepWork], note: Json
    ) -> None:
        """Take over the training where `note` says that it stands."""
        self.strategy, self.benchmark = strategy, benchmark
        self.work_by_step, self.note = work, note
        self.steps = torch.full((len(benchmark.class_names),), -1)
        on_first(self._read_counts)
        strategy.draw_seed = self.seed

    def _read_counts(self) -> None:
        self.counts = counts_of(self.rows, len(self.steps))

    def steps_left(self) -> Iterator[tuple[int, Any]]:
        """Each step that is left, with what is trained on in it: its experience. For a strategy
        that trains on the whole stream, this is the last step, and the stream.
        """
        stream, begun = self.benchmark.train_stream, self.note["step"]
        first = max(begun, len(stream) - 1) if self.strategy.trains_on_stream else begun
        self.progress.begin([work.total for work in self.work_by_step], first + self.note["done"])
        for step, experience in enumerate(stream):
            self.steps[list(experience.classes_in_this_experience)] = step
            if step >= first:
                held = self.note if self.note["inside"] and step == begun else {}
                self.begin_step(step, **{name: held[name] for name in KEPT if name in held})
                yield step, stream if self.strategy.trains_on_stream else experience

    def begin_step(
        self, step: int, seconds: float = 0.0, images: int = 0, done: float = 0.0
    ) -> None:
        """`seconds`, `images` and the fraction `done` are those of an interrupted step, up to its
        checkpoint.
        """
        self.step, self.work = step, self.work_by_step[step]
        self.seconds_before, self.images, self.done = seconds, images, done
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Training of this step, in all processes."""
        return self.seconds_before + time.perf_counter() - self._start

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.weight_spread = epoch, WeightSpread()
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
        self._num_batches += 1
        batches = len(strategy.dataloader) * strategy.train_epochs
        self._end_batch(len(strategy.mb_y), self.work.main / batches)

    def after_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._end_epoch("train", self.epoch, self._lr, strategy.model)

    # Epochs of other phases

    def before_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._begin_epoch(strategy.phase_running.epoch)

    def after_phase_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        num_images = len(strategy.phase_running.batch[1])
        # a phase that is not planned is too short to be counted
        self._end_batch(num_images, self.work.each * num_images if self.work.later else 0)

    def after_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        phase = strategy.phase_running
        lr = phase.optimizer.param_groups[0]["lr"]
        self._end_epoch(phase.name, phase.epoch, lr, phase.module())

    def _end_batch(self, num_images: int, work: float | int) -> None:
        self.interrupts.check()
        self._num_images += num_images
        self.done += work / self.work.total
        self.progress.batch(work / self.work.total)

    def _end_epoch(self, phase: str, epoch: int, lr: float | None, trained: nn.Module) -> None:
        self.images += self._num_images
        losses = {f"{LOSS}{name}": value for name, value in self._losses().items()}
        seconds = max(time.perf_counter() - self._epoch_start, 1e-9)
        row = {
            "step": self.step,
            "phase": phase,
            "epoch": epoch,
            "lr": lr,
            **losses,
            **self.weight_spread.numbers(),
            "accuracy": None,
            "images_per_second": round(self._num_images / seconds, 1),
            "digest": digest(trained),
        }
        on_first(lambda: self._save_epoch(row))
        self.progress.epoch(row)

    def _save_epoch(self, row: Record) -> None:
        self.rows.add("train", [row])
        note = {name: row[name] for name in ("step", "phase", "epoch")}
        note |= {"inside": True, "seconds": self.seconds, "images": self.images}
        self.saver.save_if_due(self.strategy, {**note, "done": min(self.done, 0.99)})

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

    # Steps

    def judge_step(self, step: int) -> StepCounts:
        """One evaluation pass over the test images of all classes seen."""
        self._trained_seconds = self.seconds
        tests = self.benchmark.test_stream[: step + 1]
        seen: ConcatDataset = ConcatDataset([test.dataset for test in tests])
        try:
            return judge(self.strategy, seen, self.steps)
        except FloatingPointError as error:
            raise FloatingPointError(
                f"{error} It was trained up to step {step}, epoch {self.epoch} (counted "
                "from 0): training has diverged. Try a lower learning rate."
            ) from None

    def save_step(self, counts: StepCounts) -> Record:
        """The rows of a step, then a checkpoint. Its row of steps.csv."""
        seconds = self._trained_seconds
        self.counts.append(counts)
        row = {
            "step": self.step,
            **summary(self.strategy, self.counts, self.steps),
            "seconds": round(seconds, 2),
            "images_per_second": round(self.images / seconds, 1),
            "peak_memory": peak_memory(self.strategy.device),
        }
        names = self.benchmark.class_names
        self.rows.add("classes", class_rows(self.step, counts, self.steps, names))
        self.rows.add("confusion", confusion_rows(self.step, counts))
        self.rows.add("exemplars", exemplar_rows(self.step, self.strategy))
        self.rows.add("steps", [row])
        self.saver.save(self.strategy, {**AT_START, "step": self.step + 1})
        words = "step %d: accuracy %.4f on %d classes, %.1f s"
        log.info(words, self.step, row["accuracy"], row["classes"], seconds)
        return row


KEPT = ("seconds", "images", "done")  # of an interrupted step
BATCH = 128  # images of an evaluation that are judged at once


def judge(strategy: Strategy, data: Dataset, steps: Int[Tensor, "C"]) -> StepCounts:
    """One pass with what the strategy predicts with: its head, and the nearest means where it has
    them. Each rank judges a part of the images, in the batches of one rank.
    """
    means, (rank, ranks) = strategy.class_means(), world()
    num_images = len(cast(Sized, data))
    num_batches = math.ceil(num_images / BATCH)
    if ranks == 1 or num_batches < ranks:
        return evaluate(strategy.predictor, data, steps, class_means=means, batch_size=BATCH)
    first, last = (
        min(num_batches * place // ranks * BATCH, num_images) for place in (rank, rank + 1)
    )
    share = Subset(data, range(first, last))
    counts = together(
        lambda: evaluate(strategy.predictor, share, steps, class_means=means, batch_size=BATCH)
    )
    others = counts.correct_nme, counts.total, counts.gradient_sum, counts.gradient_square_sum
    # dense, because torch warns where a sparse tensor arrives
    parts = gather_objects((counts.cells.indices(), counts.cells.values(), *others))
    places, numbers, *columns = zip(*parts, strict=True)
    cells = torch.sparse_coo_tensor(
        torch.cat(places, 1), torch.cat(numbers), counts.cells.shape, check_invariants=True
    )
    summed: list[Any] = [
        None if column[0] is None else torch.stack(column).sum(0) for column in columns
    ]
    return StepCounts(cells, *summed)


def summary(strategy: Strategy, counts: Sequence[StepCounts], steps: Int[Tensor, "C"]) -> Record:
    """The numbers of the last of these steps: `accuracy` is that of the strategy's own classifier,
    head or nearest means.

    A strategy that trains on the whole stream at once has one step, and no average.
    """
    nme = strategy.inference == "nme"
    last, whole = counts[-1], strategy.trains_on_stream
    return {
        "classes": int((steps >= 0).sum()),
        "images": int(last.total.sum()),
        "accuracy": accuracy_nme(last) if nme else accuracy(last),
        "accuracy_nme": math.nan if last.correct_nme is None else accuracy_nme(last),
        "average": math.nan if whole else average_incremental_accuracy(counts, nme=nme),
        "forgetting": forgetting(counts, steps, nme=nme),
        "fh": forgetting_heterogeneity(last, steps),
    }


def class_rows(
    step: int, counts: StepCounts, steps: Int[Tensor, "C"], names: Sequence[str]
) -> Iterator[Record]:
    correct = counts.correct
    for k in (steps >= 0).nonzero().flatten().tolist():
        yield {
            "step": step,
            "class": k,
            "name": names[k],
            "brought_in": int(steps[k]),
            "correct": int(correct[k]),
            "correct_nme": None if counts.correct_nme is None else int(counts.correct_nme[k]),
            "total": int(counts.total[k]),
            "gradient_sum": float(counts.gradient_sum[k]),
            "gradient_square_sum": float(counts.gradient_square_sum[k]),
        }


def confusion_rows(step: int, counts: StepCounts) -> Iterator[Record]:
    """The cells that are not 0, ordered by class, then by predicted class."""
    cells = (*counts.cells.indices().tolist(), counts.cells.values().tolist())
    for k, predicted, number in zip(*cells, strict=True):
        yield {"step": step, "class": k, "predicted": predicted, "count": number}


def exemplar_rows(step: int, strategy: Strategy) -> Iterator[Record]:
    """Ranked positions after the step."""
    for k, positions in strategy.exemplars().items():
        for rank, position in enumerate(positions.tolist()):
            yield {"step": step, "class": k, "rank": rank, "position": position}


def counts_of(rows: RunRows, num_classes: int) -> list[StepCounts]:
    """The counts of every step that classes.csv and confusion.csv hold, as they were."""
    classes, cells = (by_step(rows.read(name)) for name in ("classes", "confusion"))
    return [
        counts_of_step(classes[step], cells.get(step, []), num_classes) for step in sorted(classes)
    ]


def by_step(rows: Sequence[Record]) -> dict[int, list[Record]]:
    steps: dict[int, list[Record]] = {}
    for row in rows:
        steps.setdefault(int(row["step"]), []).append(row)
    return steps


def counts_of_step(
    classes: Sequence[Record], cells: Sequence[Record], num_classes: int
) -> StepCounts:
    """The counts of a step from its rows of classes.csv and confusion.csv."""
    of_class = torch.tensor([int(row["class"]) for row in classes])

    def column(name: str, dtype: torch.dtype) -> Tensor:
        values = torch.tensor([float(row[name]) for row in classes], dtype=dtype)
        return torch.zeros(num_classes, dtype=dtype).index_put((of_class,), values)

    *places, numbers = (
        torch.tensor(
            [[int(row[name]) for name in ("class", "predicted", "count")] for row in cells],
            dtype=torch.int64,
        )
        .view(-1, 3)
        .T
    )
    return StepCounts(
        torch.sparse_coo_tensor(
            torch.stack(places), numbers, (num_classes, num_classes), check_invariants=True
        ),
        None if classes[0]["correct_nme"] == "" else column("correct_nme", torch.int64),
        column("total", torch.int64),
        column("gradient_sum", torch.float64),
        column("gradient_square_sum", torch.float64),
    )
