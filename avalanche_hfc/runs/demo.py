"""The demonstration's runs."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from avalanche.training.plugins import EvaluationPlugin

from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.models import TSAViT
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.steps import Tick, TickPlugin, train_steps
from avalanche_hfc.strategies import STRATEGIES


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
    kind = STRATEGIES[method]
    memory = {"mem_size": recipe.mem_size} if "mem_size" in options_of(kind) else {}
    return kind(plugins=[TickPlugin(tick)], **memory, **common)


def options_of(kind: type) -> set[str]:
    """The names of all keyword arguments that a strategy's class, or one it is made of, takes."""
    return {name for base in kind.__mro__ if "__init__" in vars(base) for name in inspect.signature(base).parameters}


def run_method(recipe: DemoRecipe, method: str, seed: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """A row per step. Same seed, same class order, same initial weights for every method."""
    benchmark = split_digits(num_steps=recipe.num_steps, seed=seed)
    torch.manual_seed(seed)
    for row in train_steps(build_strategy(recipe, method, tick), benchmark):
        yield {"method": method, "seed": seed, **row}
