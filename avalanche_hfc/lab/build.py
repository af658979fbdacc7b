"""From a recipe to what trains: benchmark, model, optimizer, schedule, strategy."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from avalanche.core import BasePlugin
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from timm.models import get_pretrained_cfg
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from avalanche_hfc._types import Options
from avalanche_hfc.benchmarks.files import Records
from avalanche_hfc.benchmarks.scenario import SplitBenchmark
from avalanche_hfc.lab import ModelRecipe, Recipe, TrainRecipe
from avalanche_hfc.lab.data import build_benchmark, learned_folders
from avalanche_hfc.lab.options import HARDWARE, method_class
from avalanche_hfc.lab.schedule import SchedulePlugin
from avalanche_hfc.models import (
    ConViTEncoder,
    DyToxModel,
    ResNet18,
    ResNet32,
    TSAViT,
    ViT,
    ViTEncoder,
)
from avalanche_hfc.strategies._base.decay_groups import decays

HEAD_PARTS = (
    "head",
    "tsa",
    "shared_embedding",
)  # of a model, by the first word of a parameter's name
OF_BACKBONE = {
    "embed_dim": "embed_dim",
    "num_heads": "num_heads",
    "in_channels": "in_chans",
}  # options of a ViT that timm takes


class Built(NamedTuple):
    """What a run needs: `strategy.train` each experience of `benchmark.train_stream`."""

    benchmark: SplitBenchmark
    strategy: SupervisedTemplate


def build(
    recipe: Recipe,
    seed: int,
    *,
    device: str | torch.device = "cpu",
    data_root: Path | str | None = None,
    plugins: Iterable[BasePlugin] = (),
    known: Records | None = None,
) -> Built:
    """Benchmark and strategy. torch, numpy and python are seeded first: the same recipe and seed
    give the same weights. `known` as in `build_benchmark`.
    """
    RNGManager.set_random_seeds(seed)
    benchmark = build_benchmark(recipe, seed, data_root, known)
    if learned_folders(recipe):  # the weights are those of the checkpoint that is loaded next
        recipe = without_weights(recipe)
    return Built(
        benchmark, build_strategy(recipe, build_model(recipe), device=device, plugins=plugins)
    )


# The model


def tsavit(image_size: int, options: Options) -> nn.Module:
    return TSAViT(image_size=image_size, **vit_arguments(options))


def vit(image_size: int, options: Options) -> nn.Module:
    return ViT(image_size=image_size, **vit_arguments(options))


def dytox(image_size: int, options: Options) -> nn.Module:
    encoder = {name: value for name, value in options.items() if name != "drop_path"}
    return DyToxModel(
        ViTEncoder(image_size=image_size, **vit_arguments(encoder)), drop_path=options["drop_path"]
    )


def convit(image_size: int, options: Options) -> nn.Module:
    return DyToxModel(ConViTEncoder(image_size=image_size, **options))


KINDS: dict[str, Callable[[int, Options], nn.Module]] = {
    "tsavit": tsavit,
    "vit": vit,
    "dytox": dytox,
    "convit": convit,
    "resnet32": lambda image_size, options: ResNet32(**options),
    "resnet18": lambda image_size, options: ResNet18(**options),
}


def vit_arguments(options: Options) -> Options:
    """Options of a recipe as those of our ViTs: what timm takes goes to `backbone_options`, where
    it is not the backbone's own.
    """
    ours = {name: value for name, value in options.items() if name not in OF_BACKBONE}
    inner = {
        word: options[name]
        for name, word in OF_BACKBONE.items()
        if options[name] not in (None, 3 if name == "in_channels" else None)
    }
    return {**ours, "backbone_options": inner}


def build_model(recipe: Recipe, device: str | torch.device = "cpu") -> nn.Module:
    """The model; on the meta device without its weights, and nothing is fetched."""
    options = dict(recipe.model.options)
    check_tag(recipe)
    device = torch.device(device)
    if device.type == "meta" and "weights" in options:
        options["weights"] = None
    with torch.device("meta" if device.type == "meta" else "cpu"):
        model = KINDS[recipe.model.kind](recipe.data.image_size, options)
    return model.to(device)


def check_tag(recipe: Recipe) -> None:
    """A recipe of the paper starts from MAE: weights trained with labels have seen those of
    ImageNet, of every step.
    """
    options = dict(recipe.model.options)
    if recipe.scale != "paper" or "backbone" not in options or options["weights"] != "timm":
        return
    config = get_pretrained_cfg(options["backbone"])
    tag = None if config is None else config.tag
    if tag != "mae":
        raise ValueError(
            f"{recipe.name}: the paper's ViT starts from MAE; the weights of "
            f"{options['backbone']!r} have the tag {tag!r}. "
            "Choose a backbone with the tag .mae, or weights=none."
        )


def without_weights(recipe: Recipe) -> Recipe:
    """The recipe of a model that starts at random: where a checkpoint is loaded next, nothing needs
    to be fetched.
    """
    options = tuple(
        (name, None if name == "weights" else value) for name, value in recipe.model.options
    )
    return replace(recipe, model=ModelRecipe(recipe.model.kind, options))


def for_any_device(recipe: Recipe) -> Recipe:
    """The recipe without options of the hardware it is trained on: where nothing is trained, a
    model that was trained on a GPU works elsewhere.
    """
    usual: dict[str, Any] = {leaf.removeprefix("train."): off for leaf, off in HARDWARE.items()}
    return replace(recipe, train=replace(recipe.train, **usual))


# What trains it


def build_optimizer(train: TrainRecipe, model: nn.Module) -> Optimizer:
    """Two groups where the head's rate is another: backbone; head, TSA block and its token. `scale`
    is what the schedule multiplies by.

    With `decay_all` False each is two: norms and biases, whose `decays` is False, follow the
    others.
    """
    own: Options = {"momentum": train.momentum} if train.optimizer == "sgd" else {}
    kind = {"sgd": SGD, "adamw": AdamW}[train.optimizer]
    named = list(model.named_parameters())
    groups: list[Options] = [{"params": [parameter for _, parameter in named], "scale": 1.0}]
    if train.head_lr_factor != 1:
        head = [parameter for name, parameter in named if name.split(".")[0] in HEAD_PARTS]
        rest = [parameter for name, parameter in named if name.split(".")[0] not in HEAD_PARTS]
        groups = [
            {"params": rest, "scale": 1.0},
            {"params": head, "scale": train.head_lr_factor, "lr": train.lr * train.head_lr_factor},
        ]
    if not train.decay_all:
        groups = [part for group in groups for part in by_decay(group)]
    return kind(groups, lr=train.lr, weight_decay=train.weight_decay, **own)


def by_decay(group: Options) -> list[Options]:
    """A parameter group in two: what has weight decay, and norms and biases without."""
    kept, free = (
        [parameter for parameter in group["params"] if decays(parameter) == wanted]
        for wanted in (True, False)
    )
    return [
        {**group, "params": kept, "decays": True},
        {**group, "params": free, "decays": False, "weight_decay": 0.0},
    ]


def build_strategy(
    recipe: Recipe,
    model: nn.Module,
    *,
    device: str | torch.device = "cpu",
    plugins: Iterable[BasePlugin] = (),
) -> SupervisedTemplate:
    """The strategy around a model. The schedule stands before the plugins given."""
    train, memory = recipe.train, recipe.memory
    budget = {
        name: value
        for name, value in (("mem_size", memory.mem_size), ("per_class", memory.per_class))
        if value is not None
    }
    hardware = {
        leaf.removeprefix("train."): value
        for leaf, value in recipe.leaves().items()
        if leaf in HARDWARE and value != HARDWARE[leaf]
    }
    return method_class(recipe.method.name)(
        model=model,
        optimizer=build_optimizer(train, model),
        train_mb_size=train.batch_size,
        train_epochs=train.epochs,
        eval_mb_size=train.eval_batch_size,
        device=device,
        evaluator=EvaluationPlugin(),
        plugins=[SchedulePlugin(train, total_steps=recipe.data.total_steps), *plugins],
        **budget,
        **hardware,
        **dict(recipe.method.options),
    )
