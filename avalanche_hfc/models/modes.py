"""Borrowing a model for evaluation without leaving a trace."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every module is in the mode it was in, also after an
    exception.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training  # not `train(mode)`: that would change the children too
