"""Checks of what the public functions are given, with messages that name the argument.

Shapes and types are known on the host and always checked; values are read only on request, since
that waits for the device.
"""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar, get_args

import torch
from jaxtyping import Int
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Expected(NamedTuple):
    """A tensor as an annotation has it: the name of each dimension, the kinds of its numbers, and
    the other types that will do.
    """

    dims: tuple[str, ...]
    kinds: frozenset[str]
    others: tuple[type, ...]


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Hold the tensors that a function is given to its annotations, by a ValueError.

    A dimension has the same size in all tensors that name it.
    """
    parameters = inspect.signature(function).parameters
    expected = {
        name: found
        for name, parameter in parameters.items()
        if (found := expected_of(parameter.annotation)) is not None
    }
    names, caller = tuple(parameters), function.__name__

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        check_tensors(caller, expected, dict(zip(names, args, strict=False)) | kwargs)
        return function(*args, **kwargs)

    return call


def expected_of(annotation: object) -> Expected | None:
    """What an annotation of jaxtyping says; None for one of something else."""
    members = get_args(annotation) or (annotation,)
    tensors = [one for one in members if hasattr(one, "dim_str")]
    if not tensors:
        return None
    kinds = {"whole" if one.dtype is Int else "floating-point" for one in tensors}
    others = [one for one in members if isinstance(one, type) and one not in tensors]
    if float in others:
        others.append(int)
    return Expected(tuple(tensors[0].dim_str.split()), frozenset(kinds), tuple(others))


def check_tensors(caller: str, expected: dict[str, Expected], given: dict[str, object]) -> None:
    """Raise for a value that is no tensor, or has other dimensions or other numbers."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, (dims, kinds, others) in expected.items():
        value = given.get(name)
        if name not in given or isinstance(value, others):
            continue
        if not isinstance(value, Tensor):
            raise ValueError(f"{caller}: {name} must be a tensor, got {type(value).__name__}.")
        whole = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
        kind = "floating-point" if value.is_floating_point() else "whole" if whole else "other"
        if kind not in kinds:
            raise ValueError(
                f"{caller}: {name} must hold {' or '.join(sorted(kinds))} numbers, got "
                f"{value.dtype}."
            )
        if len(value.shape) != len(dims):
            raise ValueError(
                f"{caller}: {name} must have shape ({', '.join(dims)}), got {tuple(value.shape)}."
            )
        for dim, size in zip(dims, value.shape, strict=True):
            known, where = sizes.setdefault(dim, (size, name))
            if known != size:
                raise ValueError(
                    f"{caller}: {name} has shape {tuple(value.shape)}, but {where} has "
                    f"{dim} = {known}; {name} must have shape ({', '.join(dims)})."
                )


def check_labels(caller: str, targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> None:
    """Raise for a label that is no column, or of a class not seen yet. Reads both tensors."""
    wrong = targets[(targets < 0) | (targets >= len(steps))]
    if len(wrong):
        raise ValueError(
            f"{caller}: targets has class id {int(wrong[0])}, allowed are 0…{len(steps) - 1}."
        )
    unseen = targets[steps[targets] < 0]
    if len(unseen):
        raise ValueError(
            f"{caller}: targets has class id {int(unseen[0])}, which no step has introduced: its "
            f"entry in steps is {int(steps[unseen[0]])}."
        )
