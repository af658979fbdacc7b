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

from avalanche_hfc._types import Options, Strategy
from avalanche_hfc.benchmarks.files import Records
from avalanche_hfc.benchmarks.scenario import SplitBenchmark
from avalanche_hfc.lab import ModelRecipe, Recipe, TrainRecipe
from avalanche_hfc.lab.data import build_benchmark, learned_folders
from avalanche_hfc.lab.options import HARDWARE, method_class
from avalanche_hfc.models import (
    ConViTEncoder,
    DyToxModel,
    ResNet18,
    ResNet32,
    TSAViT,
    ViT,
    ViTEncoder,
)
from avalanche_hfc.plugins.herding import exemplars_of
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.rates import cosine, warm_up
from avalanche_hfc.strategies import IncrementalTemplate
from avalanche_hfc.strategies._base.decay_groups import decays

# of a model, by the first word of a parameter's name
HEAD_PARTS = ("head", "tsa", "shared_embedding")
# options of a ViT that timm takes, by its names
OF_BACKBONE = {"embed_dim": "embed_dim", "num_heads": "num_heads", "in_channels": "in_chans"}


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


def dytox(image_size: int, options: Options) -> nn.Module:
    encoder = {name: value for name, value in options.items() if name != "drop_path"}
    return DyToxModel(
        ViTEncoder(image_size=image_size, **vit_arguments(encoder)), drop_path=options["drop_path"]
    )


KINDS: dict[str, Callable[[int, Options], nn.Module]] = {
    "tsavit": lambda size, options: TSAViT(image_size=size, **vit_arguments(options)),
    "vit": lambda size, options: ViT(image_size=size, **vit_arguments(options)),
    "dytox": dytox,
    "convit": lambda size, options: DyToxModel(ConViTEncoder(image_size=size, **options)),
    "resnet32": lambda size, options: ResNet32(**options),
    "resnet18": lambda size, options: ResNet18(**options),
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
    tag = getattr(get_pretrained_cfg(options["backbone"]), "tag", None)
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


# The schedule


class SchedulePlugin(RankedPlugin):
    """Sets what `TrainRecipe` says of epochs, rate and decay. A group's rate is multiplied by its
    entry `scale` (1 without one).
    """

    def __init__(self, train: TrainRecipe, *, total_steps: int):
        super().__init__()
        self.recipe = train
        self.total_steps = total_steps

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        step = strategy.clock.train_exp_counter
        strategy.train_epochs = epochs_of(self.recipe, step)
        if self.recipe.decay_by_step:
            for group in strategy.optimizer.param_groups:
                if group.get("decays", True):
                    group["weight_decay"] = self.recipe.weight_decay * self.total_steps / (step + 1)

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        rate = lr_of(self.recipe, strategy.clock.train_exp_epochs, strategy.train_epochs)
        for group in strategy.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)


def epochs_of(train: TrainRecipe, step: int) -> int:
    """Epochs of a step, counted from 0."""
    return train.first_epochs if step == 0 and train.first_epochs is not None else train.epochs


def lr_of(train: TrainRecipe, epoch: int, num_epochs: int) -> float:
    """The rate of an epoch, counted from 0, of a step of `num_epochs`."""
    epoch = max(epoch - train.schedule_delay, 0)
    if epoch < train.warm_up_epochs:
        return warm_up(train.lr, epoch, train.warm_up_epochs, train.warm_up_lr)
    if train.schedule == "cosine":
        assert train.lowest_lr is not None
        return cosine(train.lr, train.lowest_lr, epoch, num_epochs)
    if train.schedule == "drops":
        assert train.drop_factor is not None
        return train.lr * train.drop_factor ** sum(
            epoch >= round(fraction * num_epochs) for fraction in train.drops_at
        )
    return train.lr


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


# What a run asks of it

DEFAULTS = {  # what Avalanche itself does
    "trains_on_stream": lambda host: False,
    "predictor": lambda host: host.model,
    "inference": lambda host: "head",
    "class_means": lambda host: lambda: None,
    "nearest_scores": lambda host: lambda images: None,
    "epoch_losses": lambda host: lambda: None,
    "exemplars": lambda host: lambda: exemplars_of(host.plugins),
}


def runnable(strategy: SupervisedTemplate) -> "Strategy | AdaptedStrategy":
    """The strategy as a run asks it: itself where it is one of ours, else behind the adapter."""
    return strategy if isinstance(strategy, IncrementalTemplate) else AdaptedStrategy(strategy)


class AdaptedStrategy:
    """A `SupervisedTemplate` of Avalanche, or your own, with what a run asks of it.

    Your class may have any of the attributes below; where it has none, the model predicts by its
    head, one experience at a time is trained, nothing is recorded and nothing can be saved.

    Args:
        host: The strategy that is asked.

    Attributes:
        resumable: Whether it has `state_dict` and `load_state_dict`, which hold all that the rest
            of a training depends on, as tensors and plain data.
        draw_seed: Seeds what random transforms draw, together with step, phase, epoch and position.
            A strategy that does not load by position ignores it.
        trains_on_stream: Whether `train` takes the whole stream, once.
        predictor: Images to logits, as in the evaluation of the strategy.
        inference: The classifier that it predicts with: "head", the largest logit, or "nme", the
            nearest mean of exemplars.
        class_means: The unit mean of each class's exemplars in the space of features, or None.
        nearest_scores: -‖φ(x) - c_k‖² of each image in the column of class k, or None.
        epoch_losses: The mean of each loss term over the epoch that has just ended, or None.
        exemplars: Ranked positions of the exemplars of each class.
    """

    draw_seed: int | None = None

    def __init__(self, host: SupervisedTemplate):
        self.host = host
        self.resumable = hasattr(host, "state_dict")

    def __getattr__(self, name: str) -> Any:
        if name in DEFAULTS and not hasattr(self.host, name):
            return DEFAULTS[name](self.host)
        return getattr(self.host, name)
