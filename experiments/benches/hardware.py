"""Checkpointed activations: their size and their time. What half precision and compilation give."""

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from avalanche_hfc.models import ResNet32
from avalanche_hfc.strategies import HFCStrategy
from experiments.benches.timing import Row, side_by_side
from experiments.benches.training import DuringStep, benchmark, hfc, vit

KEPT = "activations kept"
OPTIONS: dict[str, dict[str, Any]] = {
    "bfloat16": {"precision": "bfloat16"},
    "compile": {"compile": True},
}


def rows() -> Iterator[Row]:
    checkpointed = {"checkpoint_activations": True}
    for network in (vit, resnet):
        ours, kept = activations(checkpointed, network), activations({}, network)
        name = f"HFC training with checkpointed activations, {network().__class__.__name__}, b = 64"
        target, limit = ("≤ 0.35", 0.35) if network is vit else ("none", math.inf)
        yield Row(f"memory: {name}", KEPT, ours / 2**20, kept / 2**20, "MB", target, limit)
        yield time_row(f"time: {name}", KEPT, checkpointed, "≤ 1.45", 1.45, network)
    for option, given in OPTIONS.items():
        name = f"HFC training with {option}, TSAViT, b = 64"
        yield time_row(f"time: {name}", "float32, not compiled", given, "none", math.inf)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are made inside, as long as they are in use.

    Args:
        known: Tensors from before, which do not count.
    """

    def __init__(self, known: list[Tensor]):
        super().__init__()
        self.live = self.peak = 0
        self.storages = weakref.WeakSet(tensor.untyped_storage() for tensor in known)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if not isinstance(value, Tensor) or value.layout is not torch.strided:
                continue  # a sparse tensor consists of dense ones, which have been counted
            if value.untyped_storage() not in self.storages:
                self.add(value.untyped_storage())
        return result

    def add(self, storage: torch.UntypedStorage) -> None:
        self.storages.add(storage)
        weakref.finalize(storage, self.remove, storage.nbytes())
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)

    def remove(self, num_bytes: int) -> None:
        self.live -= num_bytes


def resnet() -> ResNet32:
    return ResNet32(in_channels=3)


def activations(options: dict[str, Any], network: Callable[[], nn.Module] = vit) -> int:
    """The most bytes that one batch with its gradients holds beside weights, moments and images."""
    peaks: list[int] = []

    def measure(strategy: HFCStrategy) -> None:
        epoch(strategy)  # moments and tables of the step
        moments = [v for state in strategy.optimizer.state.values() for v in state.values()]
        known = [*strategy.model.parameters(), *strategy.model.buffers(), *moments]
        known += strategy.frozen_teacher.model.parameters()
        strategy.optimizer.zero_grad()
        with LiveBytes([value for value in known if isinstance(value, Tensor)]) as counted:
            epoch(strategy)
        peaks.append(counted.peak)

    torch.manual_seed(0)
    second_step(DuringStep(measure), options, network, images=64)
    return peaks[0]


def time_row(
    name: str,
    against: str,
    options: dict[str, Any],
    target: str,
    limit: float,
    network: Callable[[], nn.Module] = vit,
) -> Row:
    """Epochs of two strategies in their second step, in turns."""
    times: dict[str, float] = {}

    def with_plain(plain: HFCStrategy) -> None:
        def measure(ours: HFCStrategy) -> None:
            works = {"ours": lambda: epoch(ours), "plain": lambda: epoch(plain)}
            times.update(side_by_side(works, repeats=5))

        second_step(DuringStep(measure), options, network)

    second_step(DuringStep(with_plain), {}, network)
    return Row(name, against, times["ours"], times["plain"], "s per epoch", target, limit)


def epoch(strategy: HFCStrategy) -> None:
    """As a strategy trains its main epochs."""
    with strategy.hardware.epoch(), strategy.hardware.precision.autocast():
        strategy.training_epoch()


def second_step(
    plugin: DuringStep,
    options: dict[str, Any],
    network: Callable[[], nn.Module],
    images: int = 256,
) -> None:
    """Train two steps, with the work of the plugin in the second; `images` with the exemplars."""
    strategy = hfc(network(), mem_size=32, plugins=[plugin], **options)
    for experience in benchmark(2, images - 32, 8).train_stream:
        strategy.train(experience)
