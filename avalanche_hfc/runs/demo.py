"""A strategy on split digits: the demonstration's runs, and those of the comparison of all methods."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin

from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.models import DyToxModel, TSAViT, ViTEncoder
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.steps import Tick, TickPlugin, train_steps
from avalanche_hfc.strategies import STRATEGIES


def small_tsavit(**geometry: Any) -> TSAViT:
    return TSAViT("vit_tiny_patch16_224", **geometry)


def small_dytox(**geometry: Any) -> DyToxModel:
    """The same blocks; DyTox's own attention block takes the place of TSA."""
    return DyToxModel(ViTEncoder("vit_tiny_patch16_224", **geometry))


MODELS = {"dytox": small_dytox}  # all others: small_tsavit


def build_strategy(recipe: DemoRecipe, method: str, tick: Tick, **options: Any) -> Any:
    """The method with the model, optimizer and budget that all of them share. `options` are its own."""
    model = MODELS.get(method, small_tsavit)(
        image_size=8,
        patch_size=recipe.patch_size,
        msa_blocks=recipe.msa_blocks,
        backbone_options={"embed_dim": recipe.embed_dim, "num_heads": recipe.num_heads, "in_chans": 1},
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
    return kind(plugins=[TickPlugin(tick)], **memory, **common, **options)


def options_of(kind: type) -> set[str]:
    """The names of all keyword arguments that a strategy's class, or one it is made of, takes."""
    return {name for base in kind.__mro__ if "__init__" in vars(base) for name in inspect.signature(base).parameters}


def run_method(recipe: DemoRecipe, method: str, seed: int, tick: Tick, **options: Any) -> Iterator[dict[str, Any]]:
    """A row per step. Same seed, same class order, same initial weights for every method, whatever the process has drawn before."""
    benchmark = split_digits(num_steps=recipe.num_steps, seed=seed)
    RNGManager.set_random_seeds(seed)
    for row in train_steps(build_strategy(recipe, method, tick, **options), benchmark):
        yield {"method": method, "seed": seed, **row}
