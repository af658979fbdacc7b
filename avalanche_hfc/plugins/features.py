"""Features of a data set in one pass under its eval transform."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from avalanche_hfc._types import HostDataset
from avalanche_hfc.benchmarks.positions import collate, flatten
from avalanche_hfc.losses._common import full_precision
from avalanche_hfc.models.heads import GrowingLinear
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.ranks import in_blocks


def feature_function(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that gives the input of the model's classifier.

    It is `embed`, Avalanche's `get_features`, or else the input of the last linear layer that runs.
    """
    for name in ("embed", "get_features"):
        method = getattr(model, name, None)
        # a layer of that name is one of many
        if callable(method) and not isinstance(method, nn.Module):
            return method
    linear = [module for module in model.modules() if isinstance(module, nn.Linear | GrowingLinear)]
    if not linear:
        raise ValueError(
            f"{type(model).__name__} gives no features: it has neither embed, nor "
            "get_features, nor a linear layer."
        )
    return lambda x: _last_input(linear, model, x)


def _last_input(layers: Sequence[nn.Module], model: nn.Module, x: Tensor) -> Tensor:
    """The input of the layer that runs last, which need not be the last in the list."""
    inputs_met: list[Tensor] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, inputs: inputs_met.append(inputs[0]))
        for layer in layers
    ]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return inputs_met[-1]


@torch.inference_mode()
def features_of(
    model: nn.Module,
    dataset: HostDataset,
    *,
    batch_size: int,
    device: torch.device,
    num_workers: int = 0,
    flip: bool = False,
) -> Float[Tensor, "n D"]:
    """Features of all images of an Avalanche data set, in order, under its eval transform.

    `flip` gives those of the mirrored images. The model's mode and the random state are as before.
    Each rank computes a part, and has all.
    """
    embed = feature_function(model)
    data = dataset.eval()
    flat = flatten(data)
    generator = torch.Generator()  # a loader draws a seed: not from the stream of the training
    loader: DataLoader = DataLoader(
        data if flat is None else flat,
        batch_size=batch_size,
        num_workers=0 if flat is not None and flat.in_memory else num_workers,
        generator=generator,
        collate_fn=getattr(data, "collate_fn", None) if flat is None else collate,
        pin_memory=device.type == "cuda",
    )

    def rows(batch: Sequence[Tensor]) -> Tensor:
        x = batch[0].to(device, non_blocking=True)
        return full_precision(embed(x.flip(-1) if flip else x).flatten(1))

    with evaluation_mode(model):
        return in_blocks(loader, rows)
