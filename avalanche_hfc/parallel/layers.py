"""Layers whose output for a sample depends on the rest of the batch or on random draws, for a rank
that has a share of the batch only: batch norm, dropout, drop-path.

They act while a share is `taken`; otherwise they are the layers that they replace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from timm import layers as timm_layers
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision import ops

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
    cannot leave one out, so it is not used where a rank has no row. Rows may be several for each
    image, image by image.
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
        rows = len(input) // share.loaded  # of each image
        if share.size * rows * input[0, 0].numel() == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got a global batch of one "
                f"image with input size {tuple(input.shape)}."
            )  # as torch's does on one rank
        output, mean, variance, count = GlobalNorm.apply(
            input, self.weight, self.bias, self.eps, share.own * rows
        )
        self._track(mean, variance * count / (count - 1))
        return output

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


class GlobalNorm(torch.autograd.Function):
    """Batch norm with statistics of all ranks, with the arithmetic of torch's kernel on a CPU: sums
    in float64. The first `own` rows count.

    Returns the output; mean and variance of each channel, and the number of its values.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, own: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dims, shape = channel_dims(x)
        counted = x[:own]
        number = x.new_full((1,), counted.numel() // x.shape[1], dtype=torch.float64)
        sums = torch.cat([counted.sum(dims, dtype=torch.float64), number])
        dist.all_reduce(sums)
        count = sums[-1]
        mean = sums[:-1] / count
        squares = (counted - mean.view(shape)).square().sum(dims)  # in float64
        dist.all_reduce(squares)
        variance = squares / count
        scale = (variance + eps).rsqrt()
        ctx.own = own
        ctx.save_for_backward(x, weight, mean, scale, count)
        kind = torch.promote_types(x.dtype, torch.float32)
        mean, variance = mean.to(kind), variance.to(kind)
        output = F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
        ctx.mark_non_differentiable(mean, variance, count)
        return output, mean, variance, count

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, count = ctx.saved_tensors
        dims, shape = channel_dims(x)
        kind = torch.promote_types(x.dtype, torch.float32)
        centred = x - mean.to(kind).view(shape)
        of_bias = grad.sum(dims, dtype=torch.float64)
        of_weight = (grad * centred).sum(dims, dtype=torch.float64) * scale
        sums = torch.stack([of_bias, of_weight])
        dist.all_reduce(sums)
        pull = sums / count * bool(ctx.own)  # not on an image that is outside the statistics
        grad = grad - pull[0].to(kind).view(shape)
        grad = grad - centred * (pull[1] * scale).to(kind).view(shape)
        if weight is None:
            return (grad * scale.to(kind).view(shape)).to(x.dtype), None, None, None, None
        grad = (grad * (scale.to(kind) * weight).view(shape)).to(x.dtype)
        return grad, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None


def channel_dims(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions that batch norm sums over, and the shape of one number for each channel."""
    return (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))


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
        kept = drawn(input, input.shape[1:], keep)
        return input * (kept / keep if keep > 0 else kept)


def drawn(x: Tensor, shape: tuple[int, ...], keep: float) -> Tensor:
    """What is kept of the rows of x, from draws for the whole batch."""
    share = TAKEN[-1]
    rows = x.shape[0] // share.loaded  # of each image
    return share.of(x.new_empty((share.size, rows, *shape)).bernoulli_(keep)).flatten(0, 1)


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
    check_layers(model)
    for module in model.modules():
        kind = REPLACED.get(type(module))
        if kind is not None:
            module.__class__ = kind  # the same object: optimizers, hooks and references stay


def check_layers(model: nn.Module) -> None:
    """Check that every layer of a model can see the global batch; the model stays as it is.

    Args:
        model: The model.

    Raises:
        ValueError: If it has a layer that depends on the batch or draws, and no such form.
    """
    for name, module in model.named_modules():
        known = type(module) in REPLACED or isinstance(module, tuple(REPLACED.values()))
        if not known and depends_on_batch(module):
            raise ValueError(
                f"{name or 'The model'} ({type(module).__name__}) depends on the whole batch or "
                f"draws at random, which is not exact on {dist.get_world_size()} ranks. Use "
                "BatchNorm, Dropout or DropPath, or train on one rank."
            )


# layers that draw in training, and the attribute that is their probability
DROPPING: dict[type, str] = {
    nn.modules.dropout._DropoutNd: "p",
    DropPath: "drop_prob",
    timm_layers.DropBlock2d: "drop_prob",
    timm_layers.PatchDropout: "prob",
    getattr(timm_layers, "PatchDropoutWithIndices", timm_layers.PatchDropout): "prob",  # newer timm
    ops.StochasticDepth: "p",
    ops.DropBlock2d: "p",
    ops.DropBlock3d: "p",
    nn.RNNBase: "dropout",
}
DRAWING = (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


def depends_on_batch(module: nn.Module) -> bool:
    """Whether a layer couples samples or draws in training."""
    if isinstance(module, (_BatchNorm, *DRAWING)):
        return True
    if isinstance(module, nn.RReLU):
        return module.lower < module.upper
    for kind, probability in DROPPING.items():
        if isinstance(module, kind):
            return bool(getattr(module, probability))
    held = [getattr(module, name, 0.0) for name in ("attn_drop", "dropout")]
    given = [getattr(each, "p", each) for each in held if module is not each]
    attends = hasattr(module, "qkv") or isinstance(module, nn.MultiheadAttention)
    return attends and any(isinstance(p, float) and p > 0 for p in given)
