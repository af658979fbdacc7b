"""Moments of parameters that grow: the rows that were there before keep theirs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from avalanche_hfc._types import Strategy
from avalanche_hfc.plugins.ranked import RankedPlugin

Known = Mapping[str, tuple[nn.Parameter, dict[str, Any]]]


def moments_of(parameters: Mapping[str, nn.Parameter], optimizer: Optimizer) -> Known:
    """Those of the named parameters that have moments, with their moments."""
    return {
        name: (parameter, optimizer.state[parameter])
        for name, parameter in parameters.items()
        if optimizer.state.get(parameter)
    }


@torch.no_grad()
def carry_moments(model: nn.Module, optimizer: Optimizer, before: Known) -> None:
    """Give a parameter that has grown the moments of the one it replaced; new rows start at 0.

    A parameter has grown if it still has the rows of the one that had its name, those apart that
    were 0: the rows of classes that had not come yet.

    Args:
        model: The model, after it has grown.
        optimizer: Its optimizer, which knows the new parameters.
        before: What `moments_of` returned before the optimizer was given the new parameters.
    """
    for name, parameter in model.named_parameters():
        old, moments = before.get(name, (parameter, {}))
        if old is parameter or optimizer.state.get(parameter) or not has_rows_of(old, parameter):
            continue
        optimizer.state[parameter] = {
            key: widened(value, parameter)
            if isinstance(value, Tensor) and value.shape == old.shape
            else value
            for key, value in moments.items()
        }


def has_rows_of(old: Tensor, parameter: Tensor) -> bool:
    if parameter.shape[1:] != old.shape[1:] or not len(parameter) >= len(old) > 0:
        return False
    before, now = (tensor[: len(old)].reshape(len(old), -1) for tensor in (old, parameter))
    return bool(((before == now) | (before == 0)).all())


def widened(moment: Tensor, parameter: Tensor) -> Tensor:
    """The moment with rows of 0 for those that the parameter has more."""
    missing = parameter.new_zeros(len(parameter) - len(moment), *moment.shape[1:])
    return torch.cat([moment, missing.to(moment)])


class KeptMoments(RankedPlugin):
    """Keeps the moments of a head's old rows when it grows, in Avalanche's own strategies.

    `update_optimizer` (models/dynamic_optimizers.py) clears the state of a parameter that was
    replaced, such as that of an `IncrementalClassifier`: with SGD the momentum of the whole head is
    lost at each step. Strategies of this package keep it without this plugin.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: Known = {}

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        self._before = moments_of(dict(strategy.model.named_parameters()), strategy.optimizer)

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        carry_moments(strategy.model, strategy.optimizer, self._before)
        self._before = {}
