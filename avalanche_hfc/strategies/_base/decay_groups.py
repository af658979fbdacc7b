"""Parameter groups of an optimizer in which norms and biases have no weight decay: those with the
entry `decays` False.
"""

from collections.abc import Mapping

from torch import nn
from torch.optim import Optimizer


def decays(parameter: nn.Parameter) -> bool:
    """Whether a parameter has weight decay where norms and biases have none: those are the ones of
    at most one dimension.
    """
    return parameter.ndim > 1


def fits(group: Mapping[str, object], parameter: nn.Parameter) -> bool:
    """Whether the weight decay of a group is meant for the parameter."""
    return group.get("decays", True) == decays(parameter)


def place_parameters(
    optimizer: Optimizer, model: nn.Module, known: Mapping[str, nn.Parameter]
) -> None:
    """Add parameters with a new name to the group that has their weight decay, of the nearest
    module with such a group.

    Avalanche adds them itself where all parameters near them are in one group; where norms and
    biases have groups of their own it cannot tell. `known` are the parameters as Avalanche saw them
    last: what was made anew under an old name is left to it.
    """
    groups = optimizer.param_groups
    if all(group.get("decays", True) for group in groups):
        return
    places = {
        id(parameter): index for index, group in enumerate(groups) for parameter in group["params"]
    }
    named = dict(model.named_parameters())
    placed = {
        name: places[id(parameter)]
        for name, parameter in {**named, **known}.items()
        if id(parameter) in places
    }
    for name, parameter in named.items():
        if name not in placed:
            fitting = {
                other: index for other, index in placed.items() if fits(groups[index], parameter)
            }
            near = nearest(name, fitting)
            if len(near) == 1:
                groups[near.pop()]["params"].append(parameter)


def nearest(name: str, placed: Mapping[str, int]) -> set[int]:
    """The groups of the smallest module around a name that has any."""
    parts = name.split(".")
    for depth in range(len(parts) - 1, -1, -1):
        around = "".join(f"{part}." for part in parts[:depth])
        groups = {index for other, index in placed.items() if other.startswith(around)}
        if groups:
            return groups
    return set()
