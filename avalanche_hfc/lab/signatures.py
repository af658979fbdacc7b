"""The options of methods and models, read from the signatures of their classes.

torch and Avalanche are imported when a function is first called, not with the module.
"""

import inspect
from collections.abc import Sequence
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from avalanche_hfc._names import lookup
from avalanche_hfc.lab.options import MODELS, Option, Value
from avalanche_hfc.lab.user_methods import (
    arguments,
    initialisers,
    is_user_method,
    load_class,
    parameters,
)

GIVEN = (
    "model",
    "optimizer",
    "criterion",
    "train_mb_size",
    "train_epochs",
    "eval_mb_size",
    "device",
    "evaluator",
    "plugins",
    "eval_every",
    "mem_size",
    "per_class",
    "buffer_transform",
    "image_size",
    "checkpoint_activations",
    "precision",
    "compile",
    "tf32",
    "channels_last",
)  # arguments that no option sets: the engine passes them, or the recipe has them elsewhere
PLAIN = (bool, int, float, str, NoneType)
OF_TIMM = {
    "embed_dim": Option(None, (int, NoneType)),  # None: the backbone's own
    "num_heads": Option(None, (int, NoneType)),
    "in_channels": Option(3, (int,)),
}  # what a ViT passes on to timm by its `backbone_options`


def method_class(name: str) -> Any:
    """The class of a method: that of a key of `STRATEGIES`, or of `module:Class`."""
    from avalanche_hfc.strategies import STRATEGIES

    return load_class(name) if is_user_method(name) else lookup(STRATEGIES, name, "method")


def method_options(name: str) -> dict[str, Option]:
    """What a method takes beyond the arguments that all methods share.

    Args:
        name: a key of `STRATEGIES`, or `module:Class`.

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


@cache
def model_options(name: str) -> dict[str, Option]:
    """What a model takes beyond the size of its images.

    Args:
        name: one of `MODELS`.

    Returns:
        The options by name.

    Example:
        >>> model_options("convit")["num_blocks"].default
        5
    """
    from avalanche_hfc import models

    lookup(dict.fromkeys(MODELS), name, "model")
    classes: dict[str, tuple[type, ...]] = {
        "tsavit": (models.TSAViT,),
        "vit": (models.ViT,),
        "dytox": (models.ViTEncoder, models.DyToxModel),
        "convit": (models.ConViTEncoder,),
        "resnet32": (models.ResNet32,),
        "resnet18": (models.ResNet18,),
    }
    options: dict[str, Option] = {}
    for cls in classes[name]:
        options |= class_options(cls)
        if "backbone_options" in parameters(cls):
            options |= OF_TIMM
    return options


def accepts(name: str, argument: str) -> bool:
    """Whether the class of a method has this argument."""
    return argument in parameters(method_class(name))


def without_memory(name: str) -> bool:
    """Whether a method takes neither `mem_size` nor `per_class`."""
    return not {"mem_size", "per_class"} & parameters(method_class(name)).keys()


def total_only(name: str) -> bool:
    """Whether a method does not take `per_class`."""
    return "per_class" not in parameters(method_class(name))


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
        word
        for base in initialisers(cls)
        if base.__module__.startswith("avalanche_hfc.")
        for word in (parameter.name for parameter in arguments(base))
    }
    return {word: tuple(registry) for word, registry in registries.items() if word in ours}


def class_options(cls: type) -> dict[str, Option]:
    """The arguments with a plain default of a class and of its bases outside of Avalanche."""
    options: dict[str, Option] = {}
    for base in reversed(list(initialisers(cls))):
        if base.__module__.split(".")[0] != "avalanche":
            for parameter in arguments(base):
                option = option_of(parameter)
                if parameter.name not in GIVEN and option is not None:
                    options[parameter.name] = option
    return options


def option_of(parameter: inspect.Parameter) -> Option | None:
    """What a parameter may be: by its annotation, else by its default; None for other objects."""
    default: Value = parameter.default
    if type(default) not in PLAIN:
        return None
    members = get_args(parameter.annotation) or (parameter.annotation,)
    choices = tuple(word for one in members if get_origin(one) is Literal for word in get_args(one))
    types: list[type] = [one for one in PLAIN if one in members or (one is str and choices)]
    if float in types:
        types = [one for one in types if one is not int]  # 0 for 0.0
    if any(get_origin(one) is Sequence for one in members):
        types.append(tuple)
    if types == [NoneType]:
        return None
    if type(default) not in (*types, *([int] if float in types else [])):
        types = [float, str, NoneType] if default is None else [type(default)]
    return Option(default, tuple(types), choices)
