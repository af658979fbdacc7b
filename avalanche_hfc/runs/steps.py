"""Train a strategy step by step: one evaluation pass and one row per step."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from avalanche.training.plugins import SupervisedPlugin
from torch.utils.data import ConcatDataset

from avalanche_hfc.metrics import accuracy, average_incremental_accuracy, evaluate, forgetting, forgetting_heterogeneity

Tick = Callable[[], None]


class TickPlugin(SupervisedPlugin):
    """Tells the outside that an epoch is over."""

    def __init__(self, tick: Tick):
        super().__init__()
        self.tick = tick

    def after_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        self.tick()


def train_steps(strategy: Any, benchmark: Any) -> Iterator[dict[str, Any]]:
    """A row per step, without method and seed. Accuracy is on the test images of all classes seen; `seconds` is training alone."""
    steps = torch.full((len(benchmark.class_names),), -1)
    counts = []
    for step, experience in enumerate(benchmark.train_stream):
        start = time.perf_counter()
        strategy.train(experience)
        seconds = time.perf_counter() - start
        steps[list(experience.classes_in_this_experience)] = step
        seen: ConcatDataset = ConcatDataset([test.dataset for test in benchmark.test_stream[: step + 1]])
        counts.append(evaluate(strategy.model, seen, steps))
        yield {
            "step": step,
            "classes": int((steps >= 0).sum()),
            "images": len(seen),
            "accuracy": accuracy(counts[-1]),
            "average": average_incremental_accuracy(counts),
            "forgetting": forgetting(counts, steps),
            "fh": forgetting_heterogeneity(counts[-1], steps),
            "seconds": round(seconds, 2),
        }
