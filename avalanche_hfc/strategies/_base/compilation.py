"""The forward pass of a model compiled by torch, where that is possible."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

COMPILER = "inductor"


def compile_model(model: nn.Module) -> None:
    """Compile the forward pass of a model, in place; its parameters and state keep their names.

    Args:
        model: The model. It is compiled when it is first called, and again for inputs of another
            shape.
    """
    model.compile(backend=compiled_or_plain)


def compiled_or_plain(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile: a graph that cannot be compiled is reported and runs as it is."""
    try:
        return torch._dynamo.lookup_backend(COMPILER)(graph, inputs)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(
            f"torch.compile failed ({type(error).__name__}: {reason}). The training continues "
            "uncompiled.",
            stacklevel=2,
        )
        return graph.forward
