"""Options of a method, checked at construction: the value met, and what is allowed. And its first
step, its optimizer, its batches.
"""

from collections.abc import Sequence
from typing import Any, TypeGuard

from torch import nn
from torch.optim import Optimizer

from avalanche_hfc._types import Strategy
from avalanche_hfc.plugins.steps import StepTable


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_numbers(owner: str, **numbers: object) -> None:
    """Weights and factors: 0 or more, finite."""
    for name, number in numbers.items():
        if not is_number(number) or not 0 <= number < float("inf"):
            raise ValueError(f"{owner}: {name} must be a number of 0 or more, got {number!r}.")


def check_flags(owner: str, **flags: object) -> None:
    """Options that are on or off."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{owner}: {name} must be True or False, got {flag!r}.")


def checked_count(owner: str, name: str, value: object) -> int:
    """A number of epochs, rounds or images."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{owner}: {name} must be a whole number of 1 or more, got {value!r}.")
    return value


def checked_lr(owner: str, name: str, lr: object, default: float | None = None) -> float:
    """A learning rate; None is the default, where there is one."""
    if lr is None and default is not None:
        return default
    if not is_number(lr) or not 0 < lr < float("inf"):
        raise ValueError(f"{owner}: {name} must be a number above 0, got {lr!r}.")
    return float(lr)


def check_first_step(table: StepTable) -> None:
    """A first step with one class: every softmax loss is 0, nothing would be learned."""
    if table.current == 0 and table.num_seen < 2:
        only = min(table.step_of)
        raise ValueError(
            f"The first step has one class only ({only}): there is nothing to tell it from. "
            "Begin with two or more."
        )


def check_optimizer(owner: str, model: nn.Module, optimizer: Optimizer) -> None:
    """Raise unless the optimizer has every parameter that requires gradients."""
    present = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in present
    ]
    if missing:
        raise ValueError(
            f"{owner}: the optimizer lacks {len(missing)} parameters of the model that require "
            f"gradients, such as {missing[0]}. Add them, or freeze them with "
            "requires_grad_(False)."
        )


def raise_for_labels(strategy: Strategy) -> None:
    """Raise for labels of a batch that are no class ids."""
    raise ValueError(
        f"{type(strategy).__name__}: the labels of a batch must be class ids of dtype "
        f"torch.int64, got {strategy.mb_y.dtype}."
    )


def raise_for_dtype(strategy: Strategy, error: RuntimeError) -> None:
    """If a forward pass has failed on images of another dtype than the weights, name both."""
    images = strategy.mb_x.dtype
    weights = (p.dtype for p in strategy.model.parameters() if p.is_floating_point())
    expected = next(weights, images)
    if images != expected:
        raise ValueError(
            f"{type(strategy).__name__}: the images are {images}, the weights of the model "
            f"{expected}. Convert the images in the transform, or the model with "
            f"model.to({images})."
        ) from error


def checked_fractions(owner: str, name: str, given: Any) -> float | tuple[float, ...]:
    """A number in [0, 1), or a sequence of such numbers, one for each step from the second on."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    numbers = tuple(given) if several else (given,)
    if not numbers or not all(is_number(number) and 0 <= number < 1 for number in numbers):
        raise ValueError(
            f"{owner}: {name} must be in [0, 1), a number or one for each step from the "
            f"second on, got {given!r}."
        )
    return tuple(float(number) for number in numbers) if several else given
