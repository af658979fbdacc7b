"""The demonstration's runs."""

from collections.abc import Iterator
from typing import Any

import torch
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive, Replay

from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.models import TSAViT
from avalanche_hfc.plugins import HerdingReplayPlugin
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.steps import Tick, TickPlugin, train_steps
from avalanche_hfc.strategies import HFCStrategy, IncrementalTemplate


def build_strategy(recipe: DemoRecipe, method: str, tick: Tick) -> Any:
    """The method with the model, optimizer and budget that all of them share."""
    options = {"embed_dim": recipe.embed_dim, "num_heads": recipe.num_heads, "in_chans": 1}
    model = TSAViT(
        "vit_tiny_patch16_224", image_size=8, patch_size=recipe.patch_size, msa_blocks=recipe.msa_blocks, backbone_options=options
    )
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
    for row in train_steps(build_strategy(recipe, method, tick), benchmark):
        yield {"method": method, "seed": seed, **row}
