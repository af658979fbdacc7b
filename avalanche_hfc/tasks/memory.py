"""Which precision and which micro-batch fit a given memory: an estimate from two small forward
passes on the CPU. Nothing is written, and no data is read.
"""

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from avalanche.models.utils import avalanche_model_adaptation
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from avalanche_hfc.engine.build import (
    build_model,
    build_strategy,
    for_any_device,
    without_weights,
)
from avalanche_hfc.engine.run import WITH_TEACHER
from avalanche_hfc.models import Features
from avalanche_hfc.parallel.pieces import check_divisible
from avalanche_hfc.recipes import Recipe
from avalanche_hfc.recipes.describe import sizes_of
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
        batch_size: Images of a batch.
        micro_batch: The largest number of images whose activations fit; 0 if none does.
    """

    precision: str
    fixed: int
    per_image: int
    batch_size: int
    micro_batch: int

    @property
    def whole(self) -> int:
        """Bytes of the whole batch at once."""
        return self.fixed + self.batch_size * self.per_image


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


def fits(recipe: Recipe, memory: int) -> list[Fit]:
    """Which precision and micro-batch of a recipe fit a memory, roughly.

    Counted are weights, gradients, moments of the optimizer, teacher, student, the images of a
    batch, their feature maps in methods that keep these, and activations; not counted are the
    libraries of the device and the copies that single operations make.

    Args:
        recipe: What is to be trained.
        memory: Bytes that are free on the device.

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
    fitting = []
    for name, dtype in PRECISIONS.items():
        if dtype is not None and not ours:
            continue
        trains = not ours or strategy.trains_model
        per_image = image_bytes(model, images, dtype, forward) if trains else 0
        kept_bytes_of_all = fixed + (sum(p.nbytes for p in model.parameters()) // 2 if dtype else 0)
        if keeps_features(strategy):
            kept_bytes_of_all += batch * map_bytes(model, images, dtype)
        most = min(batch, max(memory - kept_bytes_of_all, 0) // max(per_image, 1))
        if most < batch and not (ours and is_divisible(model)):
            most = 0
        fitting.append(Fit(name, kept_bytes_of_all, per_image, batch, most))
    return fitting


def is_divisible(model: nn.Module) -> bool:
    try:
        check_divisible("", model)
    except ValueError:
        return False
    return True


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
    return isinstance(strategy, IncrementalTemplate) and "mb_features" in strategy.rows_set


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
) -> int:
    """Activations that one image adds to what a backward pass needs. The forward pass is by default
    the call of the model.
    """
    few, more = (kept_bytes(model, images[:count], dtype, forward or model) for count in FEW)
    return (more - few) // (FEW[1] - FEW[0])


def kept_bytes(
    model: nn.Module,
    images: Tensor,
    dtype: torch.dtype | None,
    forward: Callable[[Tensor], Any],
) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights not counted."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    model.train()
    with saved_tensors_hooks(keep, lambda value: value), autocast_on_cpu(dtype):
        output = forward(images)  # held until all is counted: a place in memory is used once
    assert output is not None
    return sum(kept.values())


def advice(fitting: Sequence[Fit]) -> str:
    """The options that train in the memory, in the words of `hfc run`; empty if none do."""
    for fit in fitting:  # from the most exact precision on
        if fit.micro_batch:
            options = [] if fit.precision == "float32" else [f"--precision {fit.precision}"]
            if fit.micro_batch < fit.batch_size:
                options.append(f"--micro-batch {fit.micro_batch}")
            return " ".join(options) or "as it is"
    return ""
