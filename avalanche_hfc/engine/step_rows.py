"""The rows of a finished step, and the counts that can be had back from them."""

import math
from collections.abc import Iterator, Sequence, Sized
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset, Subset

from avalanche_hfc._types import Record
from avalanche_hfc.engine.protocol import RunnableStrategy
from avalanche_hfc.engine.ranks import together
from avalanche_hfc.metrics import (
    StepCounts,
    accuracy,
    accuracy_nme,
    average_incremental_accuracy,
    evaluate,
    forgetting,
    forgetting_heterogeneity,
)
from avalanche_hfc.ranks import gather_objects, world
from avalanche_hfc.store.run_folder import RunRows

BATCH = 128  # images of an evaluation that are judged at once


def judge(strategy: RunnableStrategy, data: Dataset, steps: Int[Tensor, "C"]) -> StepCounts:
    """One pass with what the strategy predicts with: its head, and the nearest means where it has
    them. Each rank judges a part of the images, in the batches of one rank.
    """
    means, rank, ranks = strategy.class_means(), *world()
    num_images = len(cast(Sized, data))
    num_batches = math.ceil(num_images / BATCH)
    if ranks == 1 or num_batches < ranks:
        return evaluate(strategy.predictor, data, steps, class_means=means, batch_size=BATCH)
    first, last = (
        min(num_batches * place // ranks * BATCH, num_images) for place in (rank, rank + 1)
    )
    own = Subset(data, range(first, last))
    counts = together(
        lambda: evaluate(strategy.predictor, own, steps, class_means=means, batch_size=BATCH)
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


def summary(
    strategy: RunnableStrategy, counts: Sequence[StepCounts], steps: Int[Tensor, "C"]
) -> Record:
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


def exemplar_rows(step: int, strategy: RunnableStrategy) -> Iterator[Record]:
    """Ranked positions after the step."""
    for k, positions in strategy.exemplars().items():
        for rank, position in enumerate(positions.tolist()):
            yield {"step": step, "class": k, "rank": rank, "position": position}


def counts_of(rows: RunRows, num_classes: int) -> list[StepCounts]:
    """The counts of every step that classes.csv and confusion.csv hold, as they were.

    Raises:
        ValueError: A row of them cannot be; it is named.
    """
    by_step: dict[int, _Read] = {}
    for name, take in (("classes", _take_class), ("confusion", _take_cell)):
        for number, row in enumerate(rows.read(name), 1):
            try:
                take(by_step, row, num_classes)
            except (ValueError, LookupError) as error:
                raise ValueError(
                    f"{rows.files[name].path} is damaged: row {number} cannot be read "
                    f"({type(error).__name__}: {error})."
                ) from None
    return [step.counts(num_classes) for step in by_step.values()]


class _Read(NamedTuple):
    """What the rows of a step held so far."""

    columns: dict[str, Tensor]  # of classes.csv, (C,) each
    cells: list[tuple[int, int, int]]  # class, predicted class, count

    def counts(self, num_classes: int) -> StepCounts:
        *places, counts = torch.tensor(self.cells, dtype=torch.int64).view(-1, 3).T
        confusion = torch.sparse_coo_tensor(
            torch.stack(places), counts, (num_classes, num_classes), check_invariants=True
        )
        return StepCounts(confusion, self.columns.pop("correct_nme", None), **self.columns)


def _take_class(by_step: dict[int, _Read], row: Record, num_classes: int) -> None:
    step = int(row["step"])
    if step not in by_step:
        by_step[step] = _Read(_empty(num_classes, nme=row["correct_nme"] != ""), [])
    for name, column in by_step[step].columns.items():
        column[int(row["class"])] = (
            float(row[name]) if column.is_floating_point() else int(row[name])
        )


def _take_cell(by_step: dict[int, _Read], row: Record, num_classes: int) -> None:
    place = int(row["class"]), int(row["predicted"])
    if not all(0 <= k < num_classes for k in place):
        raise IndexError(f"class {place[0]} or {place[1]} is none of {num_classes}")
    by_step[int(row["step"])].cells.append((*place, int(row["count"])))


def _empty(num_classes: int, *, nme: bool) -> dict[str, Tensor]:
    whole = ["total", "correct_nme"] if nme else ["total"]
    columns = {name: torch.zeros(num_classes, dtype=torch.int64) for name in whole}
    return columns | {
        name: torch.zeros(num_classes, dtype=torch.float64)
        for name in ("gradient_sum", "gradient_square_sum")
    }
