"""Options of a method, checked at construction: the value met, and what is allowed."""

from collections.abc import Sequence
from typing import Any


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_numbers(owner: str, **numbers: Any) -> None:
    """Weights and factors: 0 or more, finite."""
    for name, number in numbers.items():
        if not is_number(number) or not 0 <= number < float("inf"):
            raise ValueError(f"{owner}: {name} must be a number of 0 or more, got {number!r}.")


def checked_count(owner: str, name: str, value: Any) -> int:
    """A number of epochs, rounds or images."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{owner}: {name} must be a whole number of 1 or more, got {value!r}.")
    return value


def checked_lr(owner: str, name: str, lr: Any, default: float) -> float:
    """A learning rate; None is the default."""
    if lr is None:
        return default
    if not is_number(lr) or not 0 < lr < float("inf"):
        raise ValueError(f"{owner}: {name} must be a number above 0, got {lr!r}.")
    return float(lr)


def checked_fractions(owner: str, name: str, given: Any) -> float | tuple[float, ...]:
    """A number in [0, 1), or a sequence of such numbers, one for each step from the second on."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    numbers = tuple(given) if several else (given,)
    if not numbers or not all(is_number(number) and 0 <= number < 1 for number in numbers):
        raise ValueError(f"{owner}: {name} must be in [0, 1), a number or one for each step from the second on, got {given!r}.")
    return tuple(float(number) for number in numbers) if several else given
