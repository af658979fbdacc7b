"""The names that `recipes` has without torch are those of the classes; options come from their
signatures.
"""

import inspect

import pytest

from avalanche_hfc.benchmarks import TRANSFORMS
from avalanche_hfc.lab import METHODS, MODELS, method_options, model_options
from avalanche_hfc.lab.build import KINDS
from avalanche_hfc.lab.describe import HFC_FORMS
from avalanche_hfc.lab.options import (
    CANNOT_RUN,
    LATER_EPOCHS,
    ON_ALL_SEEN,
    UPPER_BOUNDS,
    WITHOUT_LOSSES,
    WITHOUT_MEMORY,
    check,
    option_of,
    total_only,
    without_memory,
)
from avalanche_hfc.lab.schema import fixed_options
from avalanche_hfc.memory.herding import RULES
from avalanche_hfc.models import DyToxModel, ViTEncoder
from avalanche_hfc.strategies import (
    STRATEGIES,
    afc,
    dytox,
    foster,
    hfc,
    icarl,
    podnet_cscct,
    ssil,
)
from avalanche_hfc.strategies._base import proxies, replay
from avalanche_hfc.strategies._base.method import LOSSES

pytestmark = pytest.mark.quick


def test_the_names_without_torch_are_those_of_the_classes():
    assert tuple(STRATEGIES) == METHODS and tuple(KINDS) == MODELS
    assert set(CANNOT_RUN) == {
        name for name, cls in STRATEGIES.items() if cls.cannot_run is not None
    }
    assert set(WITHOUT_MEMORY) == {name for name in METHODS if without_memory(name)}
    assert set(WITHOUT_LOSSES) == {name for name in METHODS if "losses" not in method_options(name)}
    assert {name for name in METHODS if total_only(name)} == {
        name for name in METHODS if name.startswith("avalanche-") or name in WITHOUT_MEMORY
    }


@pytest.mark.parametrize(
    ("names", "property"), [(UPPER_BOUNDS, "upper_bound"), (ON_ALL_SEEN, "trains_on_all_seen")]
)
def test_what_is_told_of_methods_by_name_is_a_property_of_their_classes(names, property):
    assert set(names) == {name for name, kind in STRATEGIES.items() if getattr(kind, property)}


def test_a_method_has_later_phases_if_and_only_if_an_option_counts_their_epochs():
    counted = {name for name in METHODS if LATER_EPOCHS.keys() & method_options(name).keys()}
    assert counted == {name for name, kind in STRATEGIES.items() if hasattr(kind, "phases")}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_takes_every_option_and_no_common_argument_is_one(name):
    """Every option is an argument of the class or a base; what the engine passes is none."""
    arguments = {
        word
        for base in STRATEGIES[name].__mro__
        if "__init__" in vars(base)
        for word in inspect.signature(base.__init__).parameters
    }
    options = method_options(name)
    assert options.keys() <= arguments
    assert not {"model", "optimizer", "mem_size", "memory", "own_plugins", "host_options"} & (
        options.keys()
    )
    for word, option in options.items():
        check(word, option, option.default)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("joint", {"reset_optimizer": True, "drop_last": False}),
        ("avalanche-replay", {}),
        ("avalanche-lwf", {"alpha": 1.0}),
        (
            "ssil",
            {
                "reset_optimizer": False,  # the class's own, not that of the template
                "drop_last": True,
                "losses": "host",
                "gradient": "host",
                "rule": None,
                "replay_mb_size": None,
                "replay_draws": "in-turn",
                "lr_by_step": True,
            },
        ),
    ],
)
def test_the_options_of_a_method_and_their_defaults(name, expected):
    assert {word: option.default for word, option in method_options(name).items()} == expected


def test_a_vit_has_the_options_that_go_to_timm_and_dytox_those_of_both_classes():
    for name in ("tsavit", "vit", "dytox"):
        options = model_options(name)
        assert [options[word].default for word in ("embed_dim", "num_heads", "in_channels")] == [
            None,
            None,
            3,
        ]
        assert "backbone_options" not in options and "image_size" not in options
    taken = inspect.signature(ViTEncoder).parameters.keys() | {"drop_path"}
    assert model_options("dytox").keys() - {"embed_dim", "num_heads", "in_channels"} == taken - {
        "image_size",
        "backbone_options",
    }
    default = inspect.signature(DyToxModel).parameters["drop_path"].default
    assert model_options("dytox")["drop_path"].default is default
    assert "embed_dim" not in model_options("resnet18") and "stem" not in model_options("resnet32")


def parameter(annotation, default):
    return inspect.Parameter(
        "value", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


@pytest.mark.parametrize(
    ("annotation", "default", "types"),
    [
        (int, 3, (int,)),
        (float | int, 0.5, (float,)),
        (float | int | None, None, (float, type(None))),
        (int | tuple[int, int] | None, None, (int, type(None))),
        (inspect.Parameter.empty, None, (float, str, type(None))),
        (inspect.Parameter.empty, "word", (str,)),
        ("float", 1.0, (float,)),
        (int, 0.5, (float,)),
        (DyToxModel | None, None, None),
        (inspect.Parameter.empty, (), None),
        (inspect.Parameter.empty, inspect.Parameter.empty, None),
    ],
)
def test_the_types_of_an_option_are_those_of_its_annotation_else_of_its_default(
    annotation, default, types
):
    option = option_of(parameter(annotation, default))
    assert (None if option is None else option.types) == types


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (method_options("podnet")["losses"].choices, LOSSES),
        (method_options("baseline")["gradient"].choices, STRATEGIES["baseline"].gradients),
        (method_options("podnet")["gradient"].choices, STRATEGIES["podnet"].gradients),
        (method_options("podnet")["nca"].choices, proxies.FORMS),
        (method_options("podnet")["inference"].choices, replay.INFERENCES),
        (method_options("podnet")["rule"].choices, RULES),
        (method_options("podnet-cscct")["reduction"].choices, podnet_cscct.REDUCTIONS),
        (method_options("icarl")["outputs"].choices, icarl.OUTPUTS),
        (method_options("icarl")["divisor"].choices, icarl.DIVISORS),
        (method_options("icarl")["columns"].choices, icarl.COLUMNS),
        (method_options("podnet")["tune_mode"].choices, proxies.TUNE_MODES),
        (method_options("afc")["importance_pass"].choices, afc.IMPORTANCE_PASSES),
        (method_options("dytox")["tune_order"].choices, dytox.TUNE_ORDERS),
        (method_options("ssil")["replay_draws"].choices, ssil.DRAWS),
        (method_options("foster")["network"].choices, foster.NETWORKS),
        (method_options("hfc")["form"].choices, hfc.FORMS),
        (method_options("hfc")["relation_weight"].choices, ("balanced",)),
        (tuple(HFC_FORMS), hfc.FORMS),
        (fixed_options()["data.transforms"].choices, TRANSFORMS),
    ],
    ids=lambda value: "",
)
def test_the_words_of_an_option_are_those_of_its_registry(words, allowed):
    assert words == tuple(allowed)


def test_what_is_said_of_the_forms_of_hfc_is_what_they_are():
    assert hfc.FORMS["default"][:4] == ("balanced", "balanced", True, "present")
    assert HFC_FORMS["default"]["classification"] == "(1 - z) L_FC"
    assert (
        HFC_FORMS["default"]["relation"]
        == "z L_RD, targets that sum to 1, mean over the classes present"
    )
    assert hfc.FORMS["paper"][:4] == (1, 1, False, "seen")
    assert (
        HFC_FORMS["paper"]["classification"] == "1 L_FC"
        and "mean over the classes seen" in HFC_FORMS["paper"]["relation"]
    )
    assert hfc.FORMS["official"] is None
