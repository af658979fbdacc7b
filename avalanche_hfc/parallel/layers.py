"""Layers whose output for a sample depends on the rest of the batch or on random draws, for a rank
that has a share of the batch only: batch norm, dropout, drop-path.

They act while a share is `taken`; otherwise they are the layers that they replace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from timm.layers import DropPath
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm

from avalanche_hfc.parallel.shares import Share

TAKEN: list[Share] = []  # the share of the forward pass that is running; empty outside


@contextmanager
def taken(share: Share) -> Iterator[None]:
    """A context in which the layers below see the global batch of this share."""
    TAKEN.append(share)
    try:
        yield
    finally:
        TAKEN.pop()


class GlobalBatchNorm(nn.SyncBatchNorm):
    """Batch norm over the global batch: torch's own on CUDA, and one that gloo can carry elsewhere.

    An image that counts for nothing is normalised, and is not part of the statistics. torch's
    cannot leave one out, so it is not used where a rank has no row.
    """

    process_group = None  # the default one; the layer that this one replaces does not have it

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions, as the layer that it replaces has checked."""

    def _check_non_zero_input_channels(self, input: Tensor) -> None:
        """As above."""

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training and TAKEN):
            return _BatchNorm.forward(self, input)
        share = TAKEN[-1]
        if input.is_cuda and all(share.counts):
            return super().forward(input)
        mean, variance, count = self._statistics(input, input[: share.own])
        self._track(mean.detach(), variance.detach() * count / (count - 1))
        shape = (1, -1, *(1,) * (input.ndim - 2))
        scale = (variance + self.eps).rsqrt()
        if self.affine:
            scale = scale * self.weight
        output = (input - mean.view(shape)) * scale.view(shape)
        return output + self.bias.view(shape) if self.affine else output

    def _statistics(self, input: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, variance and number of values of each channel over all ranks. The mean comes
        first: squares of differences do not cancel.
        """
        others = (0, *range(2, input.ndim))
        count = input.new_tensor([counted.numel() / input.shape[1]])
        sums = all_reduce(torch.cat([counted.sum(others), count]))
        mean, count = sums[:-1] / sums[-1], sums[-1].detach()
        shape = (1, -1, *(1,) * (input.ndim - 2))
        squares = all_reduce((counted - mean.view(shape)).square().sum(others))
        return mean, squares / count, count

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        factor: Any = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, factor)
        self.running_var.lerp_(variance, factor)


class GlobalDropPath(DropPath):
    """timm's drop-path with the draws of the global batch: each rank draws all, and uses its own.

    Rows may be several for each image, image by image.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.drop_prob and TAKEN):
            return super().forward(x)
        keep = 1 - self.drop_prob
        kept = drawn(x, (1,) * (x.ndim - 1), keep)
        return x * (kept / keep if keep > 0 and self.scale_by_keep else kept)


class GlobalDropout(nn.Dropout):
    """torch's dropout with the draws of the global batch: each rank draws all, and uses its own."""

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training and self.p and TAKEN):
            return super().forward(input)
        keep = 1 - self.p
        return input * (drawn(input, input.shape[1:], keep) / keep)


def drawn(x: Tensor, shape: tuple[int, ...], keep: float) -> Tensor:
    """What is kept of the rows of x, from draws for the whole batch."""
    share = TAKEN[-1]
    rows = x.shape[0] // share.loaded  # of each image
    return share.of(
        x.new_empty((share.size, rows, *shape)).bernoulli_(keep)
    ).flatten(0, 1)


REPLACED: dict[type, type] = {
    nn.BatchNorm1d: GlobalBatchNorm,
    nn.BatchNorm2d: GlobalBatchNorm,
    nn.BatchNorm3d: GlobalBatchNorm,
    DropPath: GlobalDropPath,
    nn.Dropout: GlobalDropout,
}


def use_global_layers(model: nn.Module) -> None:
    """Let the layers of a model see the global batch. Names, parameters and state stay.

    Args:
        model: The model, changed in place.

    Raises:
        ValueError: If it has a layer that depends on the batch or draws, and no such form.
    """
    for name, module in model.named_modules():
        kind = REPLACED.get(type(module))
        if kind is not None:
            module.__class__ = kind  # the same object: optimizers, hooks and references stay
        elif not isinstance(module, tuple(REPLACED.values())) and depends_on_batch(module):
            raise ValueError(
                f"{name or 'The model'} ({type(module).__name__}) depends on the whole batch or "
                f"draws at random, which is not exact on {dist.get_world_size()} ranks. Use "
                "BatchNorm, Dropout or DropPath, or train on one rank."
            )


def depends_on_batch(module: nn.Module) -> bool:
    """Whether a layer couples samples or draws in training."""
    if isinstance(module, _BatchNorm):
        return True
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    held = [getattr(module, name, 0.0) for name in ("attn_drop", "dropout")]
    given = [getattr(each, "p", each) for each in held if module is not each]
    attends = hasattr(module, "qkv") or isinstance(module, nn.MultiheadAttention)
    return attends and any(isinstance(p, float) and p > 0 for p in given)
