"""The methods and models by name, and what their options may be.

The names need no torch: they serve `hfc list`, `--help` and completion, and a test compares them
with the classes. The options of a class are read from its signature, which imports torch. A method
that a user wrote is named `module:Class`: a subclass of Avalanche's SupervisedTemplate that takes
keyword arguments. What it takes beyond the common arguments are its options.
"""

import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from avalanche_hfc._names import lookup
from avalanche_hfc.strategies import STRATEGIES

Value = str | int | float | bool | None | tuple

METHODS = tuple(STRATEGIES)
"""The names of all methods: the keys of `STRATEGIES`, known without importing torch."""
OF_AVALANCHE = tuple(name for name in METHODS if name.startswith("avalanche-"))
CANNOT_RUN = ("avalanche-der", "avalanche-bic")  # `cannot_run` of the classes says why
WITHOUT_MEMORY = (
    "finetune",
    "joint",
    "ncm",
    "ranpac",
    "avalanche-naive",
    "avalanche-lwf",
    "avalanche-lwf-fixed",
    "avalanche-ewc",
    "avalanche-cumulative",
    "avalanche-joint",
)
ONE_PASS = ("ncm", "ranpac")  # `OnePass`: nothing is trained by gradients
WITHOUT_LOSSES = ("hfc", "joint", *ONE_PASS, *OF_AVALANCHE)  # the others take `losses`
UPPER_BOUNDS = ("joint", "avalanche-joint")  # `upper_bound` of the classes
ON_ALL_SEEN = ("joint", "avalanche-cumulative")  # `trains_on_all_seen` of the classes
# Options that count the epochs of a phase after the main one, and what an epoch of it goes over:
# the exemplars, or all that the main epochs do. None is as many as those.
LATER_EPOCHS = {"tune_epochs": "exemplars", "compress_epochs": "all"}
CORRECTION_ROUNDS = ("bias_rounds", "stage_2_epochs")  # over a few images that were held out
HARDWARE: Mapping[str, Value] = {
    "train.checkpoint_activations": False,
    "train.precision": "float32",
    "train.compile": False,
    "train.tf32": False,
    "train.channels_last": False,
}
"""How a run uses the hardware, by leaf: the values with which a method need not know of it."""
MODELS = ("tsavit", "vit", "dytox", "convit", "resnet32", "resnet18")
"""The names of all models that a recipe can use."""


class Option(NamedTuple):
    """What a value of a recipe may be: its types, and the strings where only some are allowed.

    Example:
        >>> str(Option(None, (float, str, type(None)), ("balanced",)))
        'a number, balanced or none'
    """

    default: Value
    types: tuple[type, ...]
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = {
            int: ("a whole number",),
            float: ("a number",),
            bool: ("true or false",),
            tuple: ("numbers with commas between",),
            str: self.choices or ("a string",),
            NoneType: ("none",),
        }
        allowed = [name for kind in self.types for name in names[kind]]
        return " or ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))


def check(leaf: str, option: Option, value: object) -> None:
    """Refuse a value of another type than the option's, or a string that is not among its choices.

    Args:
        leaf: The path of the value in the recipe, for the message.
        option: What is allowed.
        value: The value; a whole number passes as a number.

    Raises:
        ValueError: The value is not allowed; with what is.
    """
    kind = float if type(value) is int and float in option.types else type(value)
    is_choice = not option.choices or not isinstance(value, str) or value in option.choices
    if kind not in option.types or not is_choice:
        raise ValueError(f"{leaf} must be {option}, got {value!r}.")


# Options from annotations and signatures

COMMON = (
    "model",
    "optimizer",
    "train_mb_size",
    "train_epochs",
    "eval_mb_size",
    "device",
    "evaluator",
    "plugins",
)  # passed to every method
NO_OPTIONS = (
    *COMMON,
    "criterion",
    "eval_every",
    "mem_size",
    "per_class",
    "buffer_transform",
    "image_size",
    *(leaf.removeprefix("train.") for leaf in HARDWARE),
)  # passed by the engine, or elsewhere in the recipe
PLAIN = (bool, int, float, str, NoneType)
OF_TIMM = {
    "embed_dim": Option(None, (int, NoneType)),  # None: the backbone's
    "num_heads": Option(None, (int, NoneType)),
    "in_channels": Option(3, (int,)),
}  # what a ViT passes on to timm by its `backbone_options`


def allowed_by(annotation: object) -> tuple[list[type], tuple[str, ...]]:
    """The plain types in an annotation, and the strings of its Literal."""
    is_union = get_origin(annotation) in (Union, UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    choices = tuple(word for one in members if get_origin(one) is Literal for word in get_args(one))
    types: list[type] = [one for one in PLAIN if one in members or (one is str and choices)]
    if float in types:
        types = [one for one in types if one is not int]  # 0 for 0.0
    if any(one is tuple or get_origin(one) is Sequence for one in members):
        types.append(tuple)
    return types, choices


def option_of(parameter: inspect.Parameter) -> Option | None:
    """What a parameter may be: by its annotation, else by its default; None for other objects."""
    default: Value = parameter.default
    types, choices = allowed_by(parameter.annotation)
    if type(default) not in PLAIN or types == [NoneType]:
        return None
    if type(default) not in (*types, *([int] if float in types else [])):
        types = [float, str, NoneType] if default is None else [type(default)]
    return Option(default, tuple(types), choices)


def initialisers(cls: type) -> Iterator[type]:
    """The classes whose `__init__` gets the arguments: the class, then its bases while **kwargs
    passes them on.
    """
    for base in (base for base in cls.__mro__ if "__init__" in vars(base)):
        yield base
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in arguments(base)):
            return


def arguments(base: type) -> list[inspect.Parameter]:
    return list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The arguments of a class by name, those of its bases included as far as **kwargs leads."""
    return {
        parameter.name: parameter
        for base in reversed(list(initialisers(cls)))
        for parameter in arguments(base)
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def class_options(cls: type) -> dict[str, Option]:
    """The arguments with a plain default of a class and of its bases outside of Avalanche."""
    options = {
        parameter.name: option_of(parameter)
        for base in reversed(list(initialisers(cls)))
        if base.__module__.split(".")[0] != "avalanche"
        for parameter in arguments(base)
        if parameter.name not in NO_OPTIONS
    }
    return {name: option for name, option in options.items() if option is not None}


# Methods


def is_user_method(name: str) -> bool:
    """Whether a name is `module:Class`."""
    return ":" in name


def method_class(name: str) -> Any:
    """The class of a method: that of a key of `STRATEGIES`, or of `module:Class`."""
    return load_class(name) if is_user_method(name) else lookup(STRATEGIES, name, "method")


def load_class(name: str) -> type:
    """The class behind `module:Class`, from sys.path or the current folder; a ValueError that says
    what is wrong with it.
    """
    from avalanche.training.templates import SupervisedTemplate

    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        cls: Any = resolve_name(name)
    except Exception as error:  # whatever a module raises when it is imported
        raise ValueError(
            f"Method {name!r} cannot be imported (module:Class, from sys.path or {here}): "
            f"{type(error).__name__}: {error}."
        ) from error
    if not inspect.isclass(cls) or not issubclass(cls, SupervisedTemplate):
        raise ValueError(
            f"Method {name!r} must be a subclass of "
            f"avalanche.training.templates.SupervisedTemplate, got {cls!r}."
        )
    accepted = parameters(cls)
    lacking = [word for word in COMMON if word not in accepted]
    if lacking:
        raise ValueError(
            f"Method {name!r}: __init__ must take {', '.join(lacking)} by keyword, or pass "
            "**kwargs on to its base class."
        )
    needed = [
        parameter.name
        for parameter in arguments(next(initialisers(cls)))
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in COMMON
    ]
    if needed:
        raise ValueError(
            f"Method {name!r}: __init__ needs {', '.join(needed)}. Give each a default; it can "
            "then be changed like any option."
        )
    return cls


def method_options(name: str) -> dict[str, Option]:
    """What a method takes beyond the arguments that all methods share.

    Args:
        name: A key of `STRATEGIES`, or `module:Class`.

    Returns:
        The options by name, those of the base classes first. An argument is an option if its
        default is a plain value; what Avalanche's own classes take keeps its default.

    Example:
        >>> method_options("joint")["drop_last"]
        Option(default=False, types=(<class 'bool'>,), choices=())
    """
    return options_of_method(method_class(name))


@cache
def options_of_method(cls: Any) -> dict[str, Option]:
    choices = method_choices(cls)
    return {
        word: option._replace(choices=choices.get(word, option.choices))
        for word, option in class_options(cls).items()
        if word not in getattr(cls, "refused_options", ())
    }


def method_choices(cls: Any) -> dict[str, tuple[str, ...]]:
    """The values of those options that a class looks up in a registry when it is constructed."""
    from avalanche_hfc.memory.herding import RULES
    from avalanche_hfc.strategies import afc, dytox, foster, hfc, icarl, podnet_cscct, ssil
    from avalanche_hfc.strategies._base import method, proxies, replay

    registries = {
        "losses": method.LOSSES,
        "gradient": getattr(cls, "gradients", method.GRADIENTS),
        "rule": RULES,
        "inference": replay.INFERENCES,
        "nca": proxies.FORMS,
        "tune_mode": proxies.TUNE_MODES,
        "tune_order": dytox.TUNE_ORDERS,
        "importance_pass": afc.IMPORTANCE_PASSES,
        "outputs": icarl.OUTPUTS,
        "divisor": icarl.DIVISORS,
        "columns": icarl.COLUMNS,
        "form": hfc.FORMS,
        "reduction": podnet_cscct.REDUCTIONS,
        "network": foster.NETWORKS,
        "replay_draws": ssil.DRAWS,
    }
    ours = {
        parameter.name
        for base in initialisers(cls)
        if base.__module__.startswith("avalanche_hfc.")
        for parameter in arguments(base)
    }
    return {word: tuple(registry) for word, registry in registries.items() if word in ours}


def without_memory(name: str) -> bool:
    """Whether a method takes neither `mem_size` nor `per_class`."""
    return not {"mem_size", "per_class"} & parameters(method_class(name)).keys()


def total_only(name: str) -> bool:
    """Whether a method does not take `per_class`."""
    return "per_class" not in parameters(method_class(name))


# Models


@cache
def model_options(name: str) -> dict[str, Option]:
    """What a model takes beyond the size of its images.

    Args:
        name: One of `MODELS`.

    Returns:
        The options by name.

    Example:
        >>> model_options("convit")["num_blocks"].default
        5
    """
    from avalanche_hfc import models

    classes: dict[str, tuple[type, ...]] = {
        "tsavit": (models.TSAViT,),
        "vit": (models.ViT,),
        "dytox": (models.ViTEncoder, models.DyToxModel),
        "convit": (models.ConViTEncoder,),
        "resnet32": (models.ResNet32,),
        "resnet18": (models.ResNet18,),
    }
    options: dict[str, Option] = {}
    for cls in lookup(classes, name, "model"):
        options |= class_options(cls)
        if "backbone_options" in parameters(cls):
            options |= OF_TIMM
    return options
