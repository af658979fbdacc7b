"""A model and its losses compiled by torch, where that is possible."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

COMPILER = "inductor"


def compile_model(model: nn.Module) -> None:
    """Compile the forward pass of a model, in place; its parameters and state keep their names.

    What was compiled before is forgotten, also by others: torch compiles a function a few times
    only, then leaves it as it is, and a head that grows is compiled anew in every step.

    Args:
        model: The model. It is compiled when it is first called, and again for inputs of another
            shape.
    """
    torch.compiler.reset()
    compiled_loss.cache_clear()
    model.compile(backend=compiled_or_plain)


@functools.cache
def compiled_loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loss that is compiled when it is first called; one that torch cannot compile is reported
    and runs as it is.
    """
    running = torch.compile(function, backend=compiled_or_plain)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        try:
            return running(*args, **kwargs)
        except TorchDynamoException as error:
            warn_of(error)
            running = function
            return function(*args, **kwargs)

    return call


def compiled_or_plain(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile: a graph that cannot be compiled is reported and runs as it is."""
    try:
        return torch._dynamo.lookup_backend(COMPILER)(graph, inputs)
    except Exception as error:
        warn_of(error)
        return graph.forward


def warn_of(error: Exception) -> None:
    """Warn that something runs uncompiled, with the first line of the reason."""
    reason = str(error).strip().partition("\n")[0]
    warnings.warn(
        f"torch.compile failed ({type(error).__name__}: {reason}). The training continues "
        "uncompiled.",
        stacklevel=3,
    )
