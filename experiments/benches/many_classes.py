"""Time and memory of everything that has a size per class, at 10,000 and 100,000 classes: ten times
the classes may cost ten times as much, not more. Synthetic features; all in one process of its own.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.table import TableRun, train
from avalanche_hfc.memory import ExemplarMemory, herding_order
from avalanche_hfc.metrics.evaluation import count
from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.report import write_report
from experiments.benches.losses import backward, batch, both, cross_entropy_and_distillation
from experiments.benches.timing import Row, Work, side_by_side

WIDTH = 768  # of ViT-Base's embedding
BATCH = 256
PROC = Path("/proc/self")
LINEAR = 2.0  # caches cost up to as much again; quadratic growth would be 10
FOLDER = tempfile.TemporaryDirectory()


class Part(NamedTuple):
    """Something that grows: `prepare(size)` gives the work that is measured, at two sizes."""

    name: str
    prepare: Callable[[int], Work]
    smaller: int = 10_000
    larger: int = 100_000
    size: str = "C"
    repeats: int = 3


def grown_head(num_classes: int) -> Work:
    return lambda: GrowingLinear(WIDTH).grow(range(num_classes))


def head_step(num_classes: int) -> Work:
    """Forward, backward and AdamW's update. The first call also makes the head; weights, gradients
    and moments are in its memory.
    """
    x, made = torch.randn(BATCH, WIDTH), []

    def work() -> None:
        if not made:
            head = torch.nn.Linear(WIDTH, num_classes)
            made.extend((head, torch.optim.AdamW(head.parameters())))
        head, optimizer = made
        head(x).mean().backward()
        optimizer.step()

    return work


def loss_step(name: str, num_classes: int) -> Work:
    """Forward and backward of one of LOSSES."""
    logits, *others = batch(BATCH, num_classes)
    return lambda: backward(logits, LOSSES[name](logits, *others))


def loss_seconds() -> dict[str, list[float]]:
    """CPU seconds of each of LOSSES at two numbers of classes, measured in turns."""
    by_size = [
        side_by_side(
            {name: loss_step(name, num_classes) for name in LOSSES}, repeats=9, inner=inner
        )
        for num_classes, inner in ((10_000, 5), (100_000, 1))
    ]
    return {name: [seconds[name] for seconds in by_size] for name in LOSSES}


def memory(num_classes: int) -> Work:
    """Twenty images of each class, of which five are kept; all classes arrive in one step."""
    features, positions = torch.randn(20, 16), torch.arange(20)

    def work() -> None:
        held = ExemplarMemory(per_class=5)
        held.reserve(range(num_classes))
        for class_id in range(num_classes):
            held.update(class_id, features, positions + 20 * class_id)
        held.positions()

    return work


def herding_of_one_class(num_images: int) -> Work:
    features = torch.randn(num_images, WIDTH) + 1
    return lambda: herding_order(features, 20)


def counts(num_classes: int) -> Work:
    targets = torch.arange(100 * num_classes) % num_classes
    predicted = torch.randint(num_classes, targets.shape)
    return lambda: count(targets, predicted, torch.rand(targets.shape), num_classes)


def report(num_classes: int) -> Work:
    """A run of five steps whose rows are replaced by those of so many classes, ten images each."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "0"
    train(TableRun(recipe("digits-b0-t5-ncm@demo"), 0, folder))
    shutil.rmtree(folder / "checkpoint")  # which knows the rows that are replaced
    ids = np.arange(num_classes)
    arrival = ids // (num_classes // 5)
    correct = np.random.default_rng(0).integers(0, 11, num_classes)
    classes, confusion = [], []
    for step in range(5):
        seen = ids[arrival <= step]
        whole = {"step": step, "class": seen, "name": seen, "brought_in": arrival[seen]}
        numbers = {"correct": correct[seen], "correct_nme": correct[seen], "total": 10}
        classes.append(
            pd.DataFrame(whole | numbers | {"gradient_sum": 5.0, "gradient_square_sum": 3.0})
        )
        wrong = {"predicted": (seen + 1) % len(seen), "count": 10 - correct[seen]}
        right = {"predicted": seen, "count": correct[seen]}
        confusion += [
            pd.DataFrame({"step": step, "class": seen} | cells) for cells in (right, wrong)
        ]
    steps = pd.read_csv(folder / "steps.csv")
    steps["classes"] = num_classes // 5 * (steps["step"] + 1)
    for name, rows in {"classes": pd.concat(classes), "confusion": pd.concat(confusion)}.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
    steps.to_csv(folder / "steps.csv", index=False)
    return lambda: write_report([folder], folder.parent / "report")


PARTS = (
    Part("head that grows from 0 to C", grown_head),
    Part(f"head, step of AdamW, b = {BATCH}, D = {WIDTH}", head_step),
    Part("exemplars of C classes, 5 of 20 images each", memory, repeats=1),
    Part(f"herding of one class, 20 of n images, D = {WIDTH}", herding_of_one_class, size="n"),
    Part("counts of 100 images of each class", counts),
    Part("report on five steps", report, 1000, 10_000, repeats=1),
    Part(f"both losses, forward + backward, b = {BATCH}", partial(loss_step, "both losses")),
)
LOSSES: dict[str, Callable] = {
    "both losses": both,
    "cross-entropy": lambda logits, targets, *_: F.cross_entropy(logits, targets),
    "CE + KD on old logits": lambda *of: cross_entropy_and_distillation(*of[:3]),
}


def rows() -> Iterator[Row]:
    seconds, losses, megabytes = (measured(what) for what in ("seconds", "losses", "megabytes"))
    for part in PARTS:
        for of, unit, factor, (small, large), limit in (
            ("time", "ms", 1e3, seconds[part.name], LINEAR),
            ("memory", "MB", 1.0, megabytes[part.name], 1.2),
        ):
            yield Row(
                f"{of}: {part.name}, {part.size} = {part.larger}",
                f"10 × that of {part.size} = {part.smaller}",
                factor * large,
                10 * factor * small,
                unit,
                f"≤ {limit:g}",
                limit,
            )
    growth = {name: large / small for name, (small, large) in losses.items()}
    yield Row(
        f"growth of both losses from C = 10000 to 100000, b = {BATCH}",
        "growth of cross-entropy",
        growth["both losses"],
        growth["cross-entropy"],
        "×",
        "≤ 1.05",
        1.05,
    )
    other = "CE + KD on old logits"
    yield Row(
        f"both losses, forward + backward, b = {BATCH}, C = 100000",
        other,
        1e3 * losses["both losses"][1],
        1e3 * losses[other][1],
        "ms",
        "≤ 4",
        4.0,
    )


def measured(what: str) -> dict[str, tuple[float, float]]:
    """CPU seconds of every part at its two sizes, or of LOSSES, or megabytes, in a process of its
    own.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if what == "megabytes":  # what is freed goes back to the system
        environment |= {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-W", "ignore", "-m", "experiments.benches.many_classes", what]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(said.stdout.splitlines()[-1])


def cpu_seconds(work: Work, repeats: int) -> float:
    """Least CPU time of several calls, the first of several apart."""
    found = []
    for _ in range(repeats + (repeats > 1)):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found[-repeats:])


def peak_megabytes(work: Work) -> float:
    """By how much the resident size grows at most while the work is done."""
    gc.collect()
    (PROC / "clear_refs").write_text("5")  # forgets the peak
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def resident(name: str) -> float:
    """Resident size in MB, now (`VmRSS`) or at its peak (`VmHWM`)."""
    lines = (PROC / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def costs(what: str) -> dict[str, list[float]]:
    """What `measured` gives, of this process."""
    if what == "losses":
        return loss_seconds()
    found = {}
    for part in PARTS:
        works = (part.prepare(size) for size in (part.smaller, part.larger))
        found[part.name] = [
            cpu_seconds(work, part.repeats) if what == "seconds" else peak_megabytes(work)
            for work in works
        ]
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    silence_host()
    print(json.dumps(costs(sys.argv[1])))
