"""Runs of a second: six digits in three steps, a tiny ViT, two epochs a step, a random transform.
For run folders and kills.
"""

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin, LRSchedulerPlugin
from strategy_runs import ORDER, SMALL_VIT, digit_tensors, jitter, vit
from torch.optim.lr_scheduler import CosineAnnealingLR

from avalanche_hfc.benchmarks import SplitBenchmark
from avalanche_hfc.benchmarks.sources import Source, TensorImages
from avalanche_hfc.lab.build import Built
from avalanche_hfc.lab.options import WITHOUT_MEMORY
from avalanche_hfc.lab.run import run
from avalanche_hfc.models import DyToxModel, ViTEncoder
from avalanche_hfc.strategies import STRATEGIES

OPTIONS = {
    "hfc": {},
    "foster": {"losses": "hfc"},
    "dytox": {"tune_epochs": 2, "losses": "hfc"},
    "icarl": {},
}
TIME_COLUMNS = {
    "steps": ["seconds", "images_per_second", "peak_memory"],
    "train": ["images_per_second"],
}


@dataclass(frozen=True)
class TinyRecipe:
    method: str = "hfc"
    epochs: int = 2
    lr: float = 3e-3

    def as_dict(self):
        return {
            "name": f"tiny-{self.method}",
            "train": asdict(self),
            "sources": {"train.lr": "chosen here"},
        }


def six_digits():
    train, test = (
        TensorImages(images, targets.numpy())
        for images, targets in (digit_tensors(len(ORDER), 6, skip) for skip in (0, 60))
    )
    names = ("zero", "one", "two", "three", "four, or so", "five")
    return SplitBenchmark(
        Source(train=train, test=test, class_names=names, image_size=8, num_channels=1),
        ORDER,
        [2, 2, 2],
        image_shape=(1, 8, 8),
        train_transform=jitter,
        eval_transform=None,
        remarks=(),
    )


def build(recipe, seed, *, device="cpu", data_root=None, known=None, plugins=()):
    """As the package's own: seeds, then makes benchmark and strategy."""
    benchmark = six_digits()
    RNGManager.set_random_seeds(seed)
    model = (
        DyToxModel(ViTEncoder("vit_tiny_patch16_224", **SMALL_VIT))
        if recipe.method == "dytox"
        else vit()
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr)
    kind = STRATEGIES[recipe.method]
    strategy = kind(
        model=model,
        optimizer=optimizer,
        plugins=[*plugins, LRSchedulerPlugin(CosineAnnealingLR(optimizer, 3))],
        train_mb_size=8,
        train_epochs=recipe.epochs,
        eval_mb_size=64,
        device=device,
        evaluator=EvaluationPlugin(),
        **({"mem_size": 12} if recipe.method not in WITHOUT_MEMORY else {}),
        **OPTIONS.get(recipe.method, {}),
    )
    return Built(benchmark, strategy)


def tiny_run(folder, method="hfc", *, seed=0, **options):
    run(TinyRecipe(method), seed, folder, **({"build": build, "checkpoint_seconds": 0} | options))


def rows_of(folder):
    """Every CSV as text lines, the columns of time and memory left out."""
    found = {}
    for name in ("steps", "classes", "confusion", "exemplars", "train"):
        lines = [
            line.split(",") for line in (Path(folder) / f"{name}.csv").read_text().splitlines()
        ]
        skipped = {lines[0].index(column) for column in TIME_COLUMNS.get(name, ())}
        found[name] = [
            [field for place, field in enumerate(line) if place not in skipped] for line in lines
        ]
    return found


def check_rows(one, other):
    """Assert that two runs have the same rows, numbers to four digits."""
    assert one["exemplars"] == other["exemplars"]
    assert one["confusion"] == other["confusion"]
    for name in ("steps", "classes", "train"):
        for row, found in zip(one[name], other[name], strict=True):
            assert [rounded(field) for field in row] == [rounded(field) for field in found]


def rounded(field):
    """A number to four digits after the point; a digest of weights is left out."""
    if len(field) == 16 and all(letter in "0123456789abcdef" for letter in field):
        return "digest"
    try:
        return pytest.approx(float(field), abs=1e-4, rel=1e-4)
    except ValueError:
        return field


def weights_of(folder):
    """The model in the last checkpoint."""
    return torch.load(Path(folder) / "checkpoint" / "last" / "state.pt", weights_only=True)["model"]


if __name__ == "__main__":  # a process that can be killed: folder, method
    torch.set_num_threads(1)
    os.write(1, b"begins\n")
    tiny_run(Path(sys.argv[1]), sys.argv[2])
