"""Run the demonstration: train each method step by step, one evaluation pass and one row per step."""

import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from avalanche.training.supervised import Naive, Replay
from torch.utils.data import ConcatDataset

from avalanche_hfc._version import __version__
from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.metrics import accuracy, average_incremental_accuracy, evaluate, forgetting, forgetting_heterogeneity
from avalanche_hfc.models import TSAViT
from avalanche_hfc.plugins import HerdingReplayPlugin
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.rows import RowFile, replace_file
from avalanche_hfc.strategies import HFCStrategy, IncrementalTemplate

COLUMNS = ("method", "seed", "step", "classes", "images", "accuracy", "average", "forgetting", "fh", "seconds")
Tick = Callable[[], None]


class TickPlugin(SupervisedPlugin):
    """Tells the outside that an epoch is over."""

    def __init__(self, tick: Tick):
        super().__init__()
        self.tick = tick

    def after_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        self.tick()


def build_model(recipe: DemoRecipe) -> TSAViT:
    options = {"embed_dim": recipe.embed_dim, "num_heads": recipe.num_heads, "in_chans": 1}
    return TSAViT(
        "vit_tiny_patch16_224", image_size=8, patch_size=recipe.patch_size, msa_blocks=recipe.msa_blocks, backbone_options=options
    )


def build_strategy(recipe: DemoRecipe, method: str, tick: Tick) -> Any:
    """The method with the model, optimizer and budget that all of them share."""
    model = build_model(recipe)
    common: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=recipe.lr),
        "criterion": torch.nn.CrossEntropyLoss(),
        "train_mb_size": recipe.batch_size,
        "train_epochs": recipe.epochs,
        "eval_mb_size": 512,
        "evaluator": EvaluationPlugin(),
    }
    ticker = TickPlugin(tick)
    if method == "hfc":
        return HFCStrategy(mem_size=recipe.mem_size, plugins=[ticker], **common)
    if method == "herding-replay":
        return IncrementalTemplate(plugins=[ticker, HerdingReplayPlugin(mem_size=recipe.mem_size)], **common)
    if method == "avalanche-replay":
        return Replay(mem_size=recipe.mem_size, plugins=[ticker], **common)
    return Naive(plugins=[ticker], **common)


def run_method(recipe: DemoRecipe, method: str, seed: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """A row per step. Same seed, same class order, same initial weights for every method."""
    benchmark = split_digits(num_steps=recipe.num_steps, seed=seed)
    torch.manual_seed(seed)
    strategy = build_strategy(recipe, method, tick)
    steps = torch.full((len(benchmark.class_names),), -1)
    counts = []
    for step, experience in enumerate(benchmark.train_stream):
        start = time.perf_counter()
        strategy.train(experience)
        seconds = time.perf_counter() - start
        steps[list(experience.classes_in_this_experience)] = step
        seen = ConcatDataset([test.dataset for test in benchmark.test_stream[: step + 1]])
        counts.append(evaluate(strategy.model, seen, steps))
        yield {
            "method": method,
            "seed": seed,
            "step": step,
            "classes": int((steps >= 0).sum()),
            "images": len(seen),
            "accuracy": accuracy(counts[-1]),
            "average": average_incremental_accuracy(counts),
            "forgetting": forgetting(counts, steps) if step else 0.0,
            "fh": forgetting_heterogeneity(counts[-1], steps),
            "seconds": round(seconds, 2),
        }


def open_folder(folder: Path, recipe: DemoRecipe) -> RowFile:
    """The folder's rows. A folder made with other settings is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "recipe.json"
    if note.exists():
        made_with = json.loads(note.read_text())["recipe"]
        changed = [f"{name} {made_with.get(name)}, now {value}" for name, value in recipe.as_dict().items() if made_with.get(name) != value]
        if changed:
            raise ValueError(f"{folder} was made with other settings ({'; '.join(changed)}). Use --fresh to start over, or another --out.")
    else:
        replace_file(note, json.dumps(describe(recipe), indent=2) + "\n")
    return RowFile(folder / "steps.csv", COLUMNS)


def describe(recipe: DemoRecipe) -> dict[str, Any]:
    versions = {"avalanche_hfc": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return {"recipe": recipe.as_dict(), "versions": versions, "machine": f"{platform.machine()}, {torch.get_num_threads()} thread(s)"}
