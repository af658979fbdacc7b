"""Parts of a network compiled by torch, where that is possible."""

import functools
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

COMPILER = "inductor"
MOST_FORMS = 64  # of one function; torch's own limit is 8, and a ResNet has 5 kinds of blocks


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled when it is first called, for batches of any size; one that torch cannot
    compile is reported and runs as it is.

    Compiled anew are other modules, modes and sizes of maps, but not another size of the batch:
    what is computed for an image must not depend on the batches met before, or a run could not be
    resumed bit for bit.
    """
    fixed_size = torch.compile(function, backend=compiled_or_plain, dynamic=False)
    running = traced_or_plain(fixed_size, function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        for arg in args:
            if isinstance(arg, Tensor):
                torch._dynamo.maybe_mark_dynamic(arg, 0)
        with torch._dynamo.config.patch(cache_size_limit=MOST_FORMS):
            return running(*args)

    return call


def traced_or_plain(compiled: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch.compile; one that torch cannot trace is reported and runs as it is."""
    running = compiled

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        try:
            return running(*args, **kwargs)
        except TorchDynamoException as error:
            warn_of(error)
            running = plain
            return plain(*args, **kwargs)

    return call


def compiled_or_plain(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile: a graph that cannot be compiled is reported and runs as it is.

    Most backends compile the backward pass when it first runs, where a failure would end the
    training: before the graph is first used with gradients, it is tried with a backward pass.
    """
    try:
        compiled = torch._dynamo.lookup_backend(COMPILER)(graph, inputs)
    except Exception as error:
        warn_of(error)
        return graph.forward
    running: Callable[..., Any] | None = None

    def call(*args: Any) -> Any:
        nonlocal running
        if running is not None:
            return running(*args)
        if not torch.is_grad_enabled() or not any(map(has_gradient, args)):
            return compiled(*args)
        try:
            try_backward(compiled, args)
            running = compiled
        except Exception as error:
            warn_of(error)
            running = graph.forward
        return running(*args)

    return call


def try_backward(compiled: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """A forward and a backward pass that leave no trace: of copies, without the gradients of the
    originals, and with the random state restored.
    """
    copies = [copied(arg) if isinstance(arg, Tensor) else arg for arg in args]
    # hooks around the call, as those of activation checkpoints, count the tensors that are saved
    with random_state_kept(copies), saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
        outputs = [output for output in tree_leaves(compiled(*copies)) if has_gradient(output)]
        if outputs:
            torch.autograd.grad(
                outputs,
                [copy for copy in copies if has_gradient(copy)],
                [torch.ones_like(output) for output in outputs],
                allow_unused=True,
            )


def copied(tensor: Tensor) -> Tensor:
    """Parameters share their memory with the copy; all else may be changed in place."""
    if not tensor.requires_grad:
        return tensor.clone()
    detached = tensor.detach()
    return (detached if tensor.is_leaf else detached.clone()).requires_grad_()


def has_gradient(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def random_state_kept(values: list[Any]) -> AbstractContextManager[None]:
    """A context that restores the random state of the CPU and of the device of some tensors."""
    devices = {v.device for v in values if isinstance(v, Tensor) and v.device.type != "cpu"}
    kind = next((device.type for device in devices), "cuda")
    return torch.random.fork_rng(list(devices), device_type=kind)


def warn_of(error: Exception) -> None:
    """Warn that something runs uncompiled, with the first line of the reason."""
    reason = str(error).strip().partition("\n")[0]
    warnings.warn(
        f"torch.compile failed ({type(error).__name__}: {reason}). The training continues "
        "uncompiled.",
        stacklevel=3,
    )
