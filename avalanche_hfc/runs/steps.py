"""Train a strategy step by step: one evaluation pass and one row per step."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from avalanche.training.plugins import SupervisedPlugin
from torch.utils.data import ConcatDataset

from avalanche_hfc.metrics import StepCounts, evaluate
from avalanche_hfc.runs.evidence import summary

Tick = Callable[[], None]


class TickPlugin(SupervisedPlugin):
    """Tells the outside that an epoch is over."""

    def __init__(self, tick: Tick):
        super().__init__()
        self.tick = tick

    def after_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        self.tick()


def train_steps(strategy: Any, benchmark: Any) -> Iterator[dict[str, Any]]:
    """A row per step, without method and seed. `accuracy` is that of the strategy's own classifier on the test images of all classes seen.

    `accuracy_nme` is that of the nearest means, where the strategy has them; `seconds` is training alone. A strategy that trains on the
    whole stream at once gives one row, the last, and no average.
    """
    steps = torch.full((len(benchmark.class_names),), -1)
    counts: list[StepCounts] = []
    whole = getattr(strategy, "trains_on_stream", False)
    for step, experience in enumerate(benchmark.train_stream):
        steps[list(experience.classes_in_this_experience)] = step
        if whole and step < len(benchmark.train_stream) - 1:
            continue
        start = time.perf_counter()
        strategy.train(benchmark.train_stream if whole else experience)
        seconds = time.perf_counter() - start
        seen: ConcatDataset = ConcatDataset([test.dataset for test in benchmark.test_stream[: step + 1]])
        counts.append(judge(strategy, seen, steps))
        yield {"step": step, **summary(strategy, counts, steps), "seconds": round(seconds, 2)}


def judge(strategy: Any, data: Any, steps: torch.Tensor) -> StepCounts:
    """One pass with what the strategy predicts with: its head, and the nearest means where it has them."""
    means = getattr(strategy, "class_means", lambda: None)()
    return evaluate(getattr(strategy, "predictor", strategy.model), data, steps, class_means=means)
