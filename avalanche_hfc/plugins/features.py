"""Features of a data set: one pass, eval transform, model mode and random state as before."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from avalanche_hfc.benchmarks.positions import collate, flatten
from avalanche_hfc.models.modes import evaluation_mode


def feature_function(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """How this model gives the input of its classifier: `embed`, Avalanche's `get_features`, or what enters its last linear layer."""
    for name in ("embed", "get_features"):
        if callable(getattr(model, name, None)):
            return getattr(model, name)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError(f"{type(model).__name__} gives no features: it has neither embed, nor get_features, nor a linear layer.")
    return lambda x: _input_of(linear[-1], model, x)


def _input_of(layer: nn.Module, model: nn.Module, x: Tensor) -> Tensor:
    met: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: met.append(inputs[0]))
    try:
        model(x)
    finally:
        handle.remove()
    return met[-1].flatten(1)


@torch.inference_mode()
def features_of(model: nn.Module, dataset: Any, *, batch_size: int, device: torch.device, num_workers: int = 0) -> Float[Tensor, "n D"]:
    """Features of all images of an Avalanche data set, in order, under its eval transform."""
    embed = feature_function(model)
    data = dataset.eval()
    flat = flatten(data)
    generator = torch.Generator()  # a loader draws a seed: not from the stream of the training
    loader: DataLoader = DataLoader(
        data if flat is None else flat,
        batch_size=batch_size,
        num_workers=num_workers,
        generator=generator,
        collate_fn=getattr(data, "collate_fn", None) if flat is None else collate,
    )
    with evaluation_mode(model):
        return torch.cat([embed(batch[0].to(device)).flatten(1).float() for batch in loader])
