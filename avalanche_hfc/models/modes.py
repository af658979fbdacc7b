"""Ways to run a network: in eval mode for a while, and with activations that are computed again in
the backward pass instead of being kept.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards, or after an exception, every module has its earlier mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training  # not `train(mode)`: that would change the children too


class Recomputed(nn.Module):
    """A network whose blocks keep their input alone, if `recomputes` is True, until the backward
    pass computes them again: the same values, random draws included, for one more forward pass.
    """

    recomputes = False

    def run_block(self, block: nn.Module, *inputs: Any) -> Tensor:
        """Compute a block, keeping its activations or not.

        Args:
            block: One of the network's blocks.
            *inputs: Its arguments.

        Returns:
            What the block returns.
        """
        if not (self.recomputes and torch.is_grad_enabled()):
            return block(*inputs)

        def contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
            return nullcontext(), statistics_kept(block)  # in the forward, in the backward pass

        return checkpoint(block, *inputs, use_reentrant=False, context_fn=contexts)


@contextmanager
def statistics_kept(block: nn.Module) -> Iterator[None]:
    """A context in which the running statistics of batch norm do not move."""
    norms: list[Any] = [m for m in block.modules() if isinstance(m, _BatchNorm)]
    norms = [norm for norm in norms if norm.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    counts = [norm.num_batches_tracked.clone() for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum, count in zip(norms, momenta, counts, strict=True):
            norm.momentum = momentum
            norm.num_batches_tracked.copy_(count)


def recompute_activations(owner: str, model: nn.Module) -> None:
    """Let every network in a model recompute the activations of its blocks.

    Args:
        owner: The strategy, for the message.
        model: The model that is trained.

    Raises:
        ValueError: If it contains none of the networks of this package.
    """
    networks = [module for module in model.modules() if isinstance(module, Recomputed)]
    if not networks:
        raise ValueError(
            f"{owner}: checkpoint_activations=True needs a model of avalanche_hfc.models, whose "
            f"blocks can be computed again; got a {type(model).__name__}."
        )
    for network in networks:
        network.recomputes = True
