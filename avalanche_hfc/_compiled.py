"""Parts of networks that torch compiles while a training asks for it."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
_COMPILER: ContextVar[Compiler | None] = ContextVar("compiler", default=None)


def compilable(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run a function compiled inside `compiled_by`.

    Args:
        function: A function of modules and tensors.

    Returns:
        The same function, as it is outside of `compiled_by`.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        compiler = None if torch.compiler.is_compiling() else _COMPILER.get()
        return (function if compiler is None else compiler(function))(*args, **kwargs)

    return call


@contextmanager
def compiled_by(compiler: Compiler | None) -> Iterator[None]:
    """A context in which `compilable` functions run as a compiler returns them.

    Args:
        compiler: Maps a function to one that gives the same; None leaves it as it is.
    """
    before = _COMPILER.set(compiler)
    try:
        yield
    finally:
        _COMPILER.reset(before)
