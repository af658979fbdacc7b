"""Put the head that a method needs into the caller's model, and into the optimizer's group of the
old one.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.strategies._base.decay_groups import fits

GIVEN_BY = {"features": "features (its `stages` are the maps to distil)"}
Head = TypeVar("Head", bound=nn.Module)


def check_model(owner: str, model: nn.Module, *needed: str) -> None:
    """A ValueError that names what the model lacks."""
    methods = {name: getattr(model, name, None) for name in needed}
    lacking = [
        name
        for name, method in methods.items()
        if not callable(method) or isinstance(method, nn.Module)
    ]  # a layer is no method
    if lacking:
        described = [GIVEN_BY.get(name, name) for name in lacking]
        raise ValueError(
            f"{owner} needs a model with {', '.join(needed)}; {type(model).__name__} lacks "
            f"{', '.join(described)}. "
            "The backbones of avalanche_hfc.models have them: TSAViT, ViT, ResNet32, ResNet18."
        )


def put_head(
    owner: str,
    model: Any,
    optimizer: Optimizer,
    head_class: type[Head],
    build: Callable[[GrowingLinear], Head],
) -> Head:
    """`model.head` as a `head_class`, made by `build` from the linear head that is there; one of
    that class is taken as it is. A head that has learned classes is refused.
    """
    head: Any = getattr(model, "head", None)
    if not issubclass(type(head), GrowingLinear | head_class):
        raise ValueError(
            f"{owner} needs a model whose head is a GrowingLinear or a {head_class.__name__}, got "
            f"a head of {type(head).__name__}."
        )
    if head.out_features:
        raise ValueError(
            f"{owner} needs a model whose head has learned nothing; this {type(head).__name__} has "
            f"learned {int(torch.as_tensor(head.seen).sum())} classes. To "
            "resume a training, use load_state_dict."
        )
    if issubclass(type(head), head_class):
        return head
    assert isinstance(head, GrowingLinear)  # the other kind that is allowed
    new = build(head)
    model.head = new.to(head.weight)
    exchange_parameters(optimizer, list(head.parameters()), list(new.parameters()))
    return new


def start_rows(model: nn.Module, start: str | None) -> None:
    """New rows of the model's linear head are drawn as the method's authors do
    (`GrowingLinear.start`); None leaves it as it is.
    """
    if start is not None:
        for module in model.modules():
            if isinstance(module, GrowingLinear):
                module.start = start


def exchange_parameters(
    optimizer: Optimizer, old: list[nn.Parameter], new: list[nn.Parameter]
) -> None:
    """New parameters in the group of the old ones, the one with their weight decay if there are
    several.

    The last group, where the heads usually stand, if the old ones are in none.
    """
    kept, gone = {id(parameter) for parameter in new}, {id(parameter) for parameter in old}
    groups = [
        group
        for group in optimizer.param_groups
        if any(id(parameter) in gone for parameter in group["params"])
    ]
    groups = groups or optimizer.param_groups[-1:]
    for group in groups:
        group["params"] = [p for p in group["params"] if id(p) not in gone - kept]
    present = {id(parameter) for group in groups for parameter in group["params"]}
    for parameter in new:
        if id(parameter) not in present:
            group = next(
                (group for group in reversed(groups) if fits(group, parameter)), groups[-1]
            )
            group["params"] = [*group["params"], parameter]
