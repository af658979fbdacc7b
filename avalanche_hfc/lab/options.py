"""The names of methods and models, without torch, and what a value of a recipe may be.

The names serve `hfc list`, `--help` and completion; a test compares them with the classes. What
each class takes is read from its signature, in `signatures`.
"""

from collections.abc import Mapping
from typing import NamedTuple

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
    """What a value of a recipe may be: its types, and the strings where only some are allowed."""

    default: Value
    types: tuple[type, ...]
    choices: tuple[str, ...] = ()


def check(leaf: str, option: Option, value: object) -> None:
    """Refuse a value of another type than the option's, or a string that is not among its choices.

    Args:
        leaf: the path of the value in the recipe, for the message.
        option: what is allowed.
        value: the value; a whole number passes as a number.

    Raises:
        ValueError: names the leaf, the value and what is allowed.
    """
    as_type = float if type(value) is int and float in option.types else type(value)
    is_choice = not option.choices or not isinstance(value, str) or value in option.choices
    if as_type not in option.types or not is_choice:
        raise ValueError(f"{leaf} must be {describe(option)}, got {value!r}.")


def describe(option: Option) -> str:
    """What an option allows, as a message says it.

    >>> describe(Option(None, (float, str, type(None)), ("balanced",)))
    'a number, balanced or none'
    """
    names = {
        int: ("a whole number",),
        float: ("a number",),
        bool: ("true or false",),
        tuple: ("numbers with commas between",),
        str: option.choices or ("a string",),
        type(None): ("none",),
    }
    allowed = [name for one in option.types for name in names[one]]
    return allowed[0] if len(allowed) == 1 else f"{', '.join(allowed[:-1])} or {allowed[-1]}"
