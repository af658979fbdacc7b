"""What `recipes` says of strategies and models without torch is what the classes say."""

import inspect

import pytest

from avalanche_hfc.benchmarks import TRANSFORMS
from avalanche_hfc.memory.herding import RULES
from avalanche_hfc.models import (
    ConViTEncoder,
    DyToxModel,
    ResNet18,
    ResNet32,
    TSAViT,
    ViT,
    ViTEncoder,
)
from avalanche_hfc.recipes import METHODS, MODELS
from avalanche_hfc.recipes.describe import HFC_FORMS
from avalanche_hfc.recipes.options import (
    CANNOT_RUN,
    LATER_EPOCHS,
    ON_ALL_SEEN,
    TOTAL_ONLY,
    UPPER_BOUNDS,
    WITHOUT_MEMORY,
)
from avalanche_hfc.recipes.schema import CHOICES
from avalanche_hfc.strategies import (
    STRATEGIES,
    IncrementalTemplate,
    dytox,
    hfc,
    icarl,
    podnet_cscct,
    ssil,
)
from avalanche_hfc.strategies._base import proxies, replay
from avalanche_hfc.strategies._base.method import LOSSES

# arguments that are no option of a recipe's method: what every strategy takes, the memory's budget,
# and parts that are no plain values
COMMON = set(
    "self model optimizer criterion train_mb_size train_epochs eval_mb_size device plugins "
    "evaluator eval_every".split()
)
ELSEWHERE = COMMON | set(
    "mem_size per_class memory own_plugins host_options buffer_transform recipe".split()
)


def arguments(kind, stop):
    """Name -> default of what a class, or one of ours that it is made of, takes by name; the
    nearest class speaks.
    """
    found = {}
    for base in kind.__mro__:
        if base.__module__.startswith(stop) and "__init__" in vars(base):
            for name, parameter in inspect.signature(base.__init__).parameters.items():
                if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                    found.setdefault(name, parameter.default)
    return found


def test_the_methods_are_the_strategies():
    assert list(METHODS) == list(STRATEGIES)
    assert set(CANNOT_RUN) == {
        name for name, kind in STRATEGIES.items() if kind.cannot_run is not None
    }


@pytest.mark.parametrize(
    ("names", "property"), [(UPPER_BOUNDS, "upper_bound"), (ON_ALL_SEEN, "trains_on_all_seen")]
)
def test_what_is_told_of_methods_by_name_is_a_property_of_their_classes(names, property):
    assert set(names) == {name for name, kind in STRATEGIES.items() if getattr(kind, property)}


def test_a_method_has_later_phases_if_and_only_if_an_option_counts_their_epochs():
    counted = {name for name, options in METHODS.items() if LATER_EPOCHS.keys() & options.keys()}
    template = IncrementalTemplate.phases
    assert counted == {
        name for name, kind in STRATEGIES.items() if getattr(kind, "phases", template) != template
    }


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_method_has_the_options_of_its_class_with_their_defaults(name):
    taken = arguments(STRATEGIES[name], "avalanche_hfc.strategies")
    if name == "joint":
        taken = {
            key: value for key, value in taken.items() if key not in ("losses", "gradient")
        }  # refused there
    options = {key: value for key, value in taken.items() if key not in ELSEWHERE}
    assert {key: option.default for key, option in METHODS[name].items()} == options
    assert (name in WITHOUT_MEMORY) == ("mem_size" not in taken)
    assert name in (*TOTAL_ONLY, *WITHOUT_MEMORY) or "per_class" in taken
    assert name not in TOTAL_ONLY or "per_class" not in taken


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (METHODS["podnet"]["losses"].choices, LOSSES),
        (METHODS["baseline"]["gradient"].choices, STRATEGIES["baseline"].gradients),
        (METHODS["podnet"]["gradient"].choices, STRATEGIES["podnet"].gradients),
        (METHODS["podnet"]["nca"].choices, proxies.FORMS),
        (METHODS["podnet"]["inference"].choices, replay.INFERENCES),
        (METHODS["podnet"]["rule"].choices, RULES),
        (METHODS["podnet-cscct"]["reduction"].choices, podnet_cscct.REDUCTIONS),
        (METHODS["icarl"]["outputs"].choices, icarl.OUTPUTS),
        (METHODS["icarl"]["divisor"].choices, icarl.DIVISORS),
        (METHODS["icarl"]["form"].choices, icarl.FORMS),
        (METHODS["ssil"]["relation"].choices, ssil.RELATIONS),
        (METHODS["dytox"]["relation"].choices, dytox.RELATIONS),
        (METHODS["hfc"]["form"].choices, hfc.FORMS),
        (tuple(HFC_FORMS), hfc.FORMS),
        (CHOICES["data.transforms"], TRANSFORMS),
    ],
    ids=lambda value: "",
)
def test_the_words_of_an_option_are_those_of_its_registry(words, allowed):
    assert words == tuple(allowed)


def test_what_is_said_of_the_forms_of_hfc_is_what_they_are():
    assert hfc.FORMS["default"] == ("balanced", "balanced", True, "present")
    assert HFC_FORMS["default"]["classification"] == "(1 - z) L_FC"
    assert (
        HFC_FORMS["default"]["relation"]
        == "z L_RD, targets that sum to 1, mean over the classes present"
    )
    assert hfc.FORMS["paper"] == (1, 1, False, "seen")
    assert (
        HFC_FORMS["paper"]["classification"] == "1 L_FC"
        and "mean over the classes seen" in HFC_FORMS["paper"]["relation"]
    )
    assert hfc.FORMS["official"] is None


def defaults(kind):
    return {
        name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()
    }


OF_BACKBONE = {"embed_dim": None, "num_heads": None, "in_channels": 3}  # inside backbone_options


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("tsavit", defaults(TSAViT) | OF_BACKBONE),
        ("vit", defaults(ViT) | OF_BACKBONE),
        (
            "dytox",
            defaults(ViTEncoder) | OF_BACKBONE | {"drop_path": defaults(DyToxModel)["drop_path"]},
        ),
        ("convit", defaults(ConViTEncoder)),
        ("resnet32", defaults(ResNet32)),
        ("resnet18", defaults(ResNet18)),
    ],
)
def test_a_model_has_the_options_of_its_class_with_their_defaults(kind, taken):
    options = {
        name: value
        for name, value in taken.items()
        if name not in ("image_size", "backbone_options")
    }
    assert {name: option.default for name, option in MODELS[kind].items()} == options
