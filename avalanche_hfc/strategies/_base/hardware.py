"""How a training uses its device: precision, compilation, layout of images, recomputed activations.
By default all of it changes nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Conv2d, Module

from avalanche_hfc._compiled import compiled_by
from avalanche_hfc.models.modes import networks_of, recompute_activations
from avalanche_hfc.strategies._base.checks import check_flags
from avalanche_hfc.strategies._base.compilation import compiled
from avalanche_hfc.strategies._base.precision import Precision

Placed = TypeVar("Placed", Module, Tensor)


class Hardware:
    """What a strategy was given for its device; the arguments as in `IncrementalTemplate`."""

    def __init__(
        self,
        owner: str,
        model: Module,
        device: torch.device,
        *,
        checkpoint_activations: bool = False,
        precision: str = "float32",
        compile: bool = False,
        tf32: bool = False,
        channels_last: bool = False,
    ):
        check_flags(
            owner,
            checkpoint_activations=checkpoint_activations,
            compile=compile,
            tf32=tf32,
            channels_last=channels_last,
        )
        self.precision = Precision(owner, precision, device, tf32=tf32)
        self.compile = compile
        self.channels_last = channels_last
        if channels_last:
            check_convolutional(owner, model)
        if checkpoint_activations:
            recompute_activations(owner, model)
        if compile:
            networks_of(owner, "compile", model)
        self.arrange(model)

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """A context for the batches of an epoch, with TF32 and compiled blocks if asked for."""
        with self.precision.products(), compiled_by(compiled if self.compile else None):
            yield

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """A context for an evaluation, which may be inside `epoch`: as without these options."""
        with self.precision.exact(), compiled_by(None):
            yield

    def arrange(self, part: Placed) -> Placed:
        """A model, whose 4-d weights are arranged in place, or a tensor with the same values."""
        if not self.channels_last or (isinstance(part, Tensor) and part.dim() != 4):
            return part
        return part.to(memory_format=torch.channels_last)


def check_convolutional(owner: str, model: Module) -> None:
    """Raise unless convolutions of the model follow each other: a ViT has one, of its patches."""
    number = sum(isinstance(module, Conv2d) for module in model.modules())
    if number < 2:
        raise ValueError(
            f"{owner}: channels_last=True is for convolutional networks such as ResNet32 and "
            f"ResNet18; {type(model).__name__} has {number or 'no'} convolution. Use "
            "channels_last=False."
        )
