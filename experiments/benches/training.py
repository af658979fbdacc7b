"""Whole training steps: time, growth with the number of steps, memory."""

import copy
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from avalanche.benchmarks.scenarios.deprecated.generators import nc_benchmark
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from avalanche_hfc.benchmarks.positions import collate, flatten
from avalanche_hfc.models import TSAViT
from avalanche_hfc.strategies import HFCStrategy
from experiments.benches.timing import Row, side_by_side


def rows() -> Iterator[Row]:
    yield step_row()
    yield growth_row()
    yield memory_row()


def vit(dim: int = 128) -> TSAViT:
    return TSAViT(
        "vit_tiny_patch16_224",
        image_size=32,
        patch_size=4,
        msa_blocks=4,
        backbone_options=dict(embed_dim=dim, num_heads=4),
    )


def benchmark(num_steps: int, per_step: int, num_classes: int, side: int = 32):
    targets = torch.arange(num_steps * per_step) // (num_steps * per_step // num_classes)
    data = TensorDataset(torch.randn(len(targets), 3, side, side), targets)
    data.targets = targets.tolist()
    return nc_benchmark(
        data,
        data,
        n_experiences=num_steps,
        task_labels=False,
        shuffle=False,
        fixed_class_order=list(range(num_classes)),
    )


def hfc(model: nn.Module, epochs: int = 1, mem_size: int = 64, **kwargs) -> HFCStrategy:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return HFCStrategy(
        model=model,
        optimizer=optimizer,
        mem_size=mem_size,
        train_mb_size=64,
        train_epochs=epochs,
        eval_mb_size=256,
        evaluator=EvaluationPlugin(),
        **kwargs,
    )


class BareLoop:
    """The same model, teacher, data and loader; cross-entropy; nothing else."""

    def __init__(self, strategy: HFCStrategy, data):
        self.model = copy.deepcopy(strategy.model)
        self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.loader = DataLoader(flatten(data), 64, shuffle=True, collate_fn=collate)

    def epoch(self) -> None:
        for x, y, _ in self.loader:
            self.optimizer.zero_grad()
            with torch.no_grad():
                self.teacher(x)
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()


class DuringStep(SupervisedPlugin, supports_distributed=True):
    """Calls `work(strategy)` in the second step, when loader and teacher stand."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def before_training_epoch(self, strategy, **kwargs):
        if strategy.clock.train_exp_counter == 1 and self.work:
            work, self.work = self.work, None
            work(strategy)


def step_row() -> Row:
    times: dict[str, float] = {}

    def measure(strategy: HFCStrategy) -> None:
        bare = BareLoop(strategy, strategy.adapted_dataset)
        times.update(side_by_side({"ours": strategy.training_epoch, "bare": bare.epoch}, repeats=7))

    stream = benchmark(2, 448, 8).train_stream
    strategy = hfc(vit(), plugins=[DuringStep(measure)])
    for experience in stream:
        strategy.train(experience)
    return Row(
        "HFC training step, TSAViT, b = 64",
        "a bare loop: teacher forward, CE, same loader",
        times["ours"],
        times["bare"],
        "s per epoch",
        "≤ 1.05",
        1.05,
    )


def growth_row() -> Row:
    """Two classes a step, 100 in all; the memory is full from the first step on. Best of three
    epochs.
    """
    model = TSAViT(
        "vit_tiny_patch16_224",
        image_size=8,
        patch_size=4,
        msa_blocks=1,
        backbone_options=dict(embed_dim=32, num_heads=2),
    )
    per_image: list[float] = []

    class Clock(SupervisedPlugin):
        def before_training_epoch(self, strategy, **kwargs):
            self.start = time.process_time()

        def after_training_epoch(self, strategy, **kwargs):
            per_image.append((time.process_time() - self.start) / len(strategy.adapted_dataset))

    strategy = hfc(model, epochs=5, mem_size=100, plugins=[Clock()])
    for experience in benchmark(50, 200, 100, side=8).train_stream:
        strategy.train(experience)
    second, last = min(per_image[5:10]), min(per_image[-5:])
    return Row(
        "seconds per image at step 50 of 50",
        "step 2",
        1e6 * last,
        1e6 * second,
        "µs",
        "≤ 1.05",
        1.05,
    )


def memory_row() -> Row:
    """Growth of the peak resident size from just before the second step, each in a process of its
    own.
    """
    ours, bare = (measure_in_process(kind) for kind in ("ours", "bare"))
    return Row(
        "memory of HFC training",
        "bare loop: model, gradients, optimizer, teacher, activations",
        ours,
        bare,
        "MB",
        "≤ 1.05",
        1.05,
    )


def measure_in_process(kind: str) -> float:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    command = [sys.executable, "-W", "ignore", "-m", "experiments.benches.training", kind]
    return json.loads(
        subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()[-1]
    )


def peak_of(kind: str) -> float:
    """Weights, gradients, moments, teacher and one batch's activations: everything is made inside
    the measured part.
    """
    torch.set_num_threads(1)
    stream = benchmark(2, 256, 8).train_stream
    hfc(vit(32)).train(stream[0])  # warm: imports, pools, caches
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    strategy = hfc(vit(320))
    if kind == "ours":
        for experience in stream:
            strategy.train(experience)
    else:
        strategy.model.head.grow(range(8))
        bare = BareLoop(strategy, stream[0].dataset.train())
        del strategy
        for _ in range(2):
            bare.epoch()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    print(json.dumps(peak_of(sys.argv[1])))
