"""Which precision fits a given memory, and whether activations must be checkpointed: an estimate
from two small forward passes on the CPU. Nothing is written, and no data is read.
"""

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from avalanche.models.utils import avalanche_model_adaptation
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.build import (
    build_model,
    build_strategy,
    for_any_device,
    without_weights,
)
from avalanche_hfc.lab.describe import sizes_of
from avalanche_hfc.lab.run import WITH_TEACHER
from avalanche_hfc.models import Features
from avalanche_hfc.models.modes import Recomputed
from avalanche_hfc.strategies._base.precision import PRECISIONS
from avalanche_hfc.strategies._base.template import IncrementalTemplate

UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
FEW = (2, 4)  # images of the two passes: what does not grow with them is not an activation
CLASSES = 100  # of data whose classes have not been counted


class Fit(NamedTuple):
    """What a precision needs: bytes that do not depend on the batch, and bytes of each image.

    Attributes:
        precision: A key of `PRECISIONS`.
        fixed: Weights, gradients and moments, also of a student, teacher, the images of a batch
            and the feature maps that the method keeps of all of them.
        per_image: Activations of one image.
        checkpointed: What is left of `per_image` with ``checkpoint_activations``; the same number
            where this is not possible.
        batch_size: Images of a batch.
    """

    precision: str
    fixed: int
    per_image: int
    checkpointed: int
    batch_size: int

    @property
    def whole(self) -> int:
        """Bytes of a batch."""
        return self.fixed + self.batch_size * self.per_image

    @property
    def least(self) -> int:
        """Bytes of a batch with checkpointed activations."""
        return self.fixed + self.batch_size * self.checkpointed


def num_bytes(text: str) -> int:
    """A size as it is written on a card.

    Args:
        text: A number with kB, MB, GB or TB, each a thousand times the one before.

    Returns:
        The number of bytes.

    Raises:
        ValueError: If it is not a size.

    Example:
        >>> num_bytes("8GB")
        8000000000
    """
    fitting = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]B)", text.strip())
    if fitting is None:
        raise ValueError(f"--memory must be a size such as 8GB or 512MB, got {text!r}.")
    return int(float(fitting[1]) * UNITS[fitting[2].replace("K", "k")])


def fits(recipe: Recipe) -> list[Fit]:
    """What a recipe needs in each precision, roughly.

    Counted are weights, gradients, moments of the optimizer, teacher, student, the images of a
    batch, their feature maps in methods that keep these, and activations; not counted are the
    libraries of the device and the copies that single operations make.

    Args:
        recipe: What is to be trained.

    Returns:
        An entry for each precision that the method has.

    Raises:
        ValueError: If the recipe cannot be built.
    """
    plain = for_any_device(without_weights(recipe))
    model = build_model(plain)
    strategy = build_strategy(plain, model)
    ours = isinstance(strategy, IncrementalTemplate)
    classes = sum(count for count, _ in sizes_of(recipe) or [(CLASSES, 0)])
    avalanche_model_adaptation(
        model, SimpleNamespace(classes_in_this_experience=list(range(classes)))
    )
    channels: Any = dict(recipe.model.options)["in_channels"]
    images = torch.zeros(max(FEW), channels, recipe.data.image_size, recipe.data.image_size)
    forward = features_and_logits(model) if keeps_features(strategy) else model
    batch, fixed = recipe.train.batch_size, fixed_bytes(recipe, strategy)
    fixed += batch * images[0].nbytes
    found = []
    for name, dtype in PRECISIONS.items():
        if dtype is not None and not ours:
            continue
        trains = not ours or strategy.trains_model
        per_image, checkpointed = image_bytes(model, images, dtype, forward) if trains else (0, 0)
        own = fixed + (sum(p.nbytes for p in model.parameters()) // 2 if dtype else 0)
        if keeps_features(strategy):
            own += batch * map_bytes(model, images, dtype)
        found.append(Fit(name, own, per_image, checkpointed if ours else per_image, batch))
    return found


def fixed_bytes(recipe: Recipe, strategy: object) -> int:
    """Weights, gradients and moments of the model and of a student beside it, and a teacher."""
    model, plugins = strategy.model, strategy.plugins  # type: ignore[attr-defined]
    weights = sum(value.nbytes for value in (*model.parameters(), *model.buffers()))
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    moments = 2 if recipe.train.optimizer == "adamw" else int(bool(recipe.train.momentum))
    teacher = any(isinstance(plugin, WITH_TEACHER) for plugin in plugins)
    networks = 1 + (isinstance(strategy, IncrementalTemplate) and strategy.trains_student)
    return weights * (networks + teacher) + trained * networks * (1 + moments)


def keeps_features(strategy: object) -> bool:
    """Whether the method keeps the features of each image of a batch, to compare them with those of
    the teacher.
    """
    return getattr(strategy, "keeps_features", False)


def features_and_logits(model: Any) -> Callable[[Tensor], tuple[Features, Tensor]]:
    """The forward pass of a method that keeps features."""

    def forward(images: Tensor) -> tuple[Features, Tensor]:
        features = model.features(images)
        return features, model.classify(features.embedding)

    return forward


def map_bytes(model: Any, images: Tensor, dtype: torch.dtype | None) -> int:
    """Features of one image that stay until the loss of the whole batch is differentiated: those of
    the model, of the teacher, and the gradients of what is compared.
    """
    with torch.no_grad(), autocast_on_cpu(dtype):
        embedding, stages, tokens = model.train().features(images)
    compared = sum(rows[0].nbytes for rows in (embedding, *stages))
    return 3 * compared + (0 if tokens is None else 2 * tokens[0].nbytes)


def autocast_on_cpu(dtype: torch.dtype | None) -> torch.autocast:
    """float16 as bfloat16, which is as large and known to every CPU."""
    known = torch.bfloat16 if dtype is torch.float16 else dtype
    return torch.autocast("cpu", known, enabled=known is not None)


def image_bytes(
    model: nn.Module,
    images: Tensor,
    dtype: torch.dtype | None,
    forward: Callable[[Tensor], Any] | None = None,
) -> tuple[int, int]:
    """Activations that one image adds to what a backward pass needs, kept and checkpointed. The
    forward pass is by default the call of the model.
    """
    few, more = (kept_bytes(model, images[:count], dtype, forward or model) for count in FEW)
    kept, checkpointed = ((b - a) // (FEW[1] - FEW[0]) for a, b in zip(few, more, strict=True))
    return kept, checkpointed


def kept_bytes(
    model: nn.Module,
    images: Tensor,
    dtype: torch.dtype | None,
    forward: Callable[[Tensor], Any],
) -> tuple[int, int]:
    """Bytes that a forward pass keeps for the backward pass, weights not counted; and what is left
    of them if of each block only its input is kept, and one block is computed again at a time.
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    of_blocks, inputs = [], []

    def count(block: nn.Module, *arguments: Tensor) -> Tensor:
        before = sum(kept.values())
        output = block(*arguments)
        of_blocks.append(sum(kept.values()) - before)
        inputs.append(arguments[0].nbytes)
        return output

    model.train()
    networks = [module for module in model.modules() if isinstance(module, Recomputed)]
    for network in networks:
        network.__dict__["run_block"] = count
    with saved_tensors_hooks(keep, lambda value: value), autocast_on_cpu(dtype):
        output = forward(images)  # held until all is counted: a place in memory is used once
    assert output is not None
    for network in networks:
        del network.__dict__["run_block"]
    total = sum(kept.values())
    return total, total - sum(of_blocks) + sum(inputs) + max(of_blocks, default=0)


def advice(found: Sequence[Fit], memory: int) -> str:
    """The options that train in the memory, in the words of `hfc run`; empty if none do."""
    for fit in found:  # from the most exact precision on
        if fit.least <= memory:
            options = [] if fit.precision == "float32" else [f"--precision {fit.precision}"]
            if fit.whole > memory:
                options.append("--checkpoint-activations true")
            return " ".join(options) or "as it is"
    return ""
