"""A method that the user wrote, named `module:Class`: a subclass of Avalanche's SupervisedTemplate
with keyword arguments.

What it takes beyond the common arguments are its options; each needs a default, so that a recipe
can name the value. Nothing is imported before such a name is met.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

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


def is_user_method(name: str) -> bool:
    """Whether a name is `module:Class`."""
    return ":" in name


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
    cls = getattr(module, word)
    if word not in methods:
        raise ValueError(
            f"Method {name!r}: {word} must be a subclass of "
            f"avalanche.training.templates.SupervisedTemplate, it is {cls!r}."
        )
    check_arguments(name, cls)
    return cls


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


def arguments(base: type) -> list[inspect.Parameter]:
    """The parameters of a class's own `__init__`."""
    return list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]


def initialisers(cls: type) -> Iterator[type]:
    """The classes whose `__init__` gets the arguments: the class, then bases while **kwargs leads
    there.
    """
    for base in (base for base in cls.__mro__ if "__init__" in vars(base)):
        yield base
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in arguments(base)):
            return


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The arguments of a class by name, those of its bases included as far as **kwargs leads."""
    return {
        parameter.name: parameter
        for base in reversed(list(initialisers(cls)))
        for parameter in arguments(base)
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def check_arguments(name: str, cls: type) -> None:
    """A ValueError unless the class takes what every method is given, by keyword, and has a default
    for the rest.
    """
    taken = parameters(cls)
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
    unknown = [
        parameter.name
        for parameter in arguments(next(initialisers(cls)))
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in COMMON
    ]
    if unknown:
        raise ValueError(
            f"Method {name!r}: __init__ needs {', '.join(unknown)}. Give a default: it can "
            "then be changed as any option."
        )
