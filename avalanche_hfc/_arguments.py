"""The order of the arguments of a strategy, for callers who pass them by position."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Init = TypeVar("Init", bound=Callable[..., None])
LEADING = ("model", "optimizer", "criterion")


def leading(*names: str, **defaults: Any) -> Callable[[Init], Init]:
    """Let the signature of an `__init__` begin with these names, which its ``**kwargs`` may hold.

    Avalanche binds arguments given by position to the keyword-only arguments of a strategy in the
    order of its signature.

    Args:
        names: The arguments in order.
        defaults: The default of those that have one.

    Returns:
        A decorator; the function itself is not changed.
    """

    def decorate(init: Init) -> Init:
        parameters = inspect.signature(init).parameters
        first, *rest = parameters.values()
        taken = {
            name: inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name, inspect._empty)
            )
            for name in names
        } | {name: parameters[name] for name in names if name in parameters}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in rest):
            taken = {name: parameter for name, parameter in taken.items() if name in parameters}
        others = (parameter for parameter in rest if parameter.name not in taken)
        init.__signature__ = inspect.Signature([first, *taken.values(), *others])  # type: ignore[attr-defined]
        return init

    return decorate
