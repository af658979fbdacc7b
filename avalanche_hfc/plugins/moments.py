"""Moments of parameters that grow: the rows that were there before keep theirs."""

from collections.abc import Iterable, Mapping
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

    A parameter has grown if the rows that have moments are as they were in the one that had its
    name. A row without moments may differ: a head starts the row of a class when the class comes,
    which may be after one with a larger class id.

    Args:
        model: The model, after it has grown.
        optimizer: Its optimizer, which knows the new parameters.
        before: What `moments_of` returned before the optimizer was given the new parameters.
    """
    for name, parameter in model.named_parameters():
        old, moments = before.get(name, (parameter, {}))
        if old is parameter or optimizer.state.get(parameter):
            continue
        by_row = {
            key: value
            for key, value in moments.items()
            if isinstance(value, Tensor) and value.shape == old.shape  # not the count of updates
        }
        if has_grown(parameter, old, by_row.values()):
            rows = {key: widened(value, parameter) for key, value in by_row.items()}
            optimizer.state[parameter] = moments | rows


def has_grown(parameter: Tensor, old: Tensor, moments: Iterable[Tensor]) -> bool:
    if not parameter.dim() or parameter.shape[1:] != old.shape[1:] or len(parameter) < len(old):
        return False
    changed = parameter[: len(old)] != old
    return not any(moment[changed].any() for moment in moments)


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
