"""A method of the user's own, named `module:Class`: a subclass of Avalanche's SupervisedTemplate
with keyword arguments.

What it takes beyond the common arguments are its options; each needs a default, so that a recipe
can name the value. Nothing is imported before such a name is met.
"""

import importlib
import inspect
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, get_args

from avalanche_hfc._names import lookup
from avalanche_hfc.recipes.options import METHODS, TOTAL_ONLY, WITHOUT_MEMORY, Option, Value

COMMON = (
    "model",
    "optimizer",
    "train_mb_size",
    "train_epochs",
    "eval_mb_size",
    "device",
    "evaluator",
    "plugins",
)  # given to every method
OF_HOST = (*COMMON, "criterion", "eval_every", "mem_size", "per_class")
PLAIN = (bool, int, float, str, NoneType)


def is_own(name: str) -> bool:
    return ":" in name


def method_options(name: str) -> dict[str, Option]:
    """What a method takes, a key of METHODS or `module:Class`."""
    return own_options(name) if is_own(name) else lookup(METHODS, name, "method")


def without_memory(name: str) -> bool:
    if not is_own(name):
        return name in WITHOUT_MEMORY
    return not {"mem_size", "per_class"} & set(parameters(load_class(name)))


def total_only(name: str) -> bool:
    return (
        name in TOTAL_ONLY if not is_own(name) else "per_class" not in parameters(load_class(name))
    )


def load_class(name: str) -> type:
    """The class behind `module:Class`, from sys.path or the current folder; a ValueError that says
    what is wrong with it.
    """
    from avalanche.training.templates import SupervisedTemplate

    module = load_module(name)
    word = name.partition(":")[2]
    methods = [
        key
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, SupervisedTemplate)
    ]
    if not hasattr(module, word):
        near = get_close_matches(word, methods, n=1) or methods
        hint = f"Did you mean {near[0]!r}?" if near else "It has no subclass of SupervisedTemplate."
        raise ValueError(f"Method {name!r}: {module.__file__} has no class {word!r}. {hint}")
    kind = getattr(module, word)
    if word not in methods:
        raise ValueError(
            f"Method {name!r}: {word} must be a subclass of "
            f"avalanche.training.templates.SupervisedTemplate, it is {kind!r}."
        )
    check_arguments(name, kind)
    return kind


def load_module(name: str) -> ModuleType:
    path, _, word = name.partition(":")
    if not all(part.isidentifier() for part in path.split(".")) or not word.isidentifier():
        raise ValueError(
            f"Method {name!r}: say module:Class, as in mymethods:Mine for the class Mine of "
            "mymethods.py."
        )
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not (path == error.name or path.startswith(f"{error.name}.")):
            raise ValueError(f"Method {name!r}: the module cannot be imported: {error}.") from error
        near = get_close_matches(path, [file.stem for file in Path(here).glob("*.py")], n=1)
        hint = f" Did you mean {near[0]}:{word}?" if near else ""
        raise ValueError(
            f"Method {name!r}: no module {path!r} on sys.path or in {here}.{hint}"
        ) from error
    except Exception as error:
        raise ValueError(
            f"Method {name!r}: the module cannot be imported: {type(error).__name__}: {error}."
        ) from error


def parameters(kind: type) -> dict[str, inspect.Parameter]:
    """The arguments of a class by name: its own, and those of its bases as long as they are passed
    on by **kwargs.
    """
    found: dict[str, inspect.Parameter] = {}
    for base in (base for base in kind.__mro__ if "__init__" in vars(base)):
        own = inspect.signature(vars(base)["__init__"]).parameters
        for name, parameter in own.items():
            if name != "self" and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                found.setdefault(name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values()):
            break
    return found


def check_arguments(name: str, kind: Any) -> None:
    """A ValueError unless the class takes what every method is given, by keyword, and has a default
    for the rest.
    """
    taken = parameters(kind)
    lacking = [
        word
        for word in COMMON
        if word not in taken or taken[word].kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    if lacking:
        raise ValueError(
            f"Method {name!r}: __init__ must take {', '.join(lacking)} by keyword; pass them "
            "on to its base by **kwargs."
        )
    first = inspect.signature(kind.__init__).parameters.values()
    needed = [
        p.name
        for p in first
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    unknown = [word for word in needed if word not in (*COMMON, "self")]
    if unknown:
        raise ValueError(
            f"Method {name!r}: __init__ needs {', '.join(unknown)}. Give a default: it can "
            "then be changed as any option."
        )


def own_options(name: str) -> dict[str, Option]:
    """The arguments that are not common to all, with a plain default: those of the user's classes,
    and those of the method they stand on.

    What Avalanche's own classes take beside keeps the value that the class gives.
    """
    from avalanche_hfc.strategies import STRATEGIES

    kind = load_class(name)
    taken = parameters(kind)
    written = [
        base
        for base in kind.__mro__
        if base.__module__.split(".")[0] not in ("avalanche", "avalanche_hfc")
    ]
    own = {
        word
        for base in written
        if "__init__" in vars(base)
        for word in inspect.signature(vars(base)["__init__"]).parameters
    }
    found = {
        word: Option(parameter.default, kinds_of(parameter.annotation, parameter.default))
        for word, parameter in taken.items()
        if word in own and word not in OF_HOST and type(parameter.default) in PLAIN
    }
    known = {base: key for key, base in STRATEGIES.items()}
    host = next((METHODS[known[base]] for base in kind.__mro__ if base in known), {})
    return {
        **{word: option for word, option in host.items() if word in taken and word not in own},
        **found,
    }


def kinds_of(annotation: object, default: Value) -> tuple[type, ...]:
    """The types that an option may have: as annotated; else that of the default, and of None a
    number or a text.
    """
    named = get_args(annotation) or (annotation,)
    kinds: tuple[type, ...] = tuple(kind for kind in PLAIN if kind in named)
    if len(kinds) < len(named) or type(default) not in (*kinds, *([int] if float in kinds else [])):
        kinds = (float, str, NoneType) if default is None else (type(default),)
    return tuple(kind for kind in kinds if kind is not int) if float in kinds else kinds
