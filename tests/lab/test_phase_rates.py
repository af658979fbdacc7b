"""Rates of the phases after the main epochs, in every recipe: those of the authors relative to the
main phase, the published number, or the tuned one at the scales that were tuned.
"""

import copy
from contextlib import contextmanager, nullcontext
from functools import cache
from types import SimpleNamespace

import pytest
from avalanche.training.plugins import SupervisedPlugin

from avalanche_hfc.lab import all_names, override, recipe
from avalanche_hfc.lab.build import build, build_model, build_strategy
from avalanche_hfc.lab.names import MEM_SIZES
from avalanche_hfc.lab.published import TUNED
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.phases import optimizer_like

RATIOS = {
    "podnet": 1 / 2,
    "podnet-cscct": 1 / 2,
    "afc": 1 / 2,
    "dytox": 1 / 10,
    "foster": 1,
}  # to the main rate of what trains
PUBLISHED = {  # numbers, with the ResNets they were published for
    ("podnet", "cifar100"): 0.05,
    ("podnet", "imagenet100"): 0.01,
    ("podnet-cscct", "cifar100"): 0.05,
    ("podnet-cscct", "imagenet100"): 0.01,
    ("afc", "cifar100"): 0.05,
    ("afc", "imagenet100"): 0.02,
}
AT_HEADS_RATE = ("head", "tsa", "shared_embedding")
NAMES = [name for name in all_names() if recipe(name).method.name in RATIOS]


@cache
def meta_model(model, image_size):
    own = next(
        recipe(name)
        for name in NAMES
        if (recipe(name).model, recipe(name).data.image_size) == (model, image_size)
    )
    return build_model(own, device="meta")


def expected_rate(own, parameter):
    """Of a parameter by its name."""
    main = own.train.lr * (
        own.train.head_lr_factor if parameter.split(".")[0] in AT_HEADS_RATE else 1
    )
    published = (
        PUBLISHED.get((own.method.name, own.data.dataset))
        if own.scale == "paper" and own.train.optimizer == "sgd"
        else None
    )
    if own.scale in MEM_SIZES:
        published = TUNED[own.method.name].get("method.tune_lr")
    return main * RATIOS[own.method.name] if published is None else published


def rates_by_name(module, optimizer):
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {
        names[id(parameter)]: group["lr"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@contextmanager
def phase_groups(strategy):
    """The phase of a second step, its module with what trains in it, and its groups."""
    for step, classes in enumerate(([0, 1], [2, 3])):
        StepTable.of(strategy).learn(SimpleNamespace(classes_in_this_experience=classes), step)
    (phase,) = strategy.phases()
    if phase.name == "compress":
        strategy.student = copy.deepcopy(strategy.model)
    with nullcontext() if phase.name == "compress" else phase.entered():
        module = phase.module()
        yield (
            phase,
            module,
            phase.first_groups.mirrored(strategy, module, phase.lr, **phase.overrides),
        )


def test_the_phase_of_every_recipe_has_the_authors_rate():
    met = {}
    for name in NAMES:
        own = recipe(name)
        configuration = (
            own.model,
            own.data.image_size,
            own.train,
            own.memory,
            own.method,
            own.scale,
        )
        if configuration in met:
            continue
        strategy = build_strategy(own, copy.deepcopy(meta_model(own.model, own.data.image_size)))
        for group in strategy.optimizer.param_groups:
            group["lr"] = 0.123  # of a schedule, at the end of the main phase
        with phase_groups(strategy) as (phase, module, groups):
            met[configuration] = rates_by_name(module, optimizer_like(strategy.optimizer, groups))
            assert (
                {key for key, parameter in module.named_parameters() if parameter.requires_grad}
                == set(met[configuration])
                != set()
            )
        assert phase.name == "compress" or {key.split(".")[0] for key in met[configuration]} == {
            "head"
        }
        assert met[configuration] == pytest.approx(
            {key: expected_rate(own, key) for key in met[configuration]}, rel=1e-12
        ), name
        decay = 0.0 if phase.name == "compress" else own.train.weight_decay
        assert {group["weight_decay"] for group in groups} == {
            decay,
            *([] if own.train.decay_all else [0.0]),
        }, name
    factors = {(own[4].name, own[2].head_lr_factor) for own in met}
    assert {(name, 5.0) for name in RATIOS} <= factors and {
        (name, 1.0) for name in RATIOS
    } <= factors


class Look(SupervisedPlugin):
    def __init__(self):
        super().__init__()
        self.rates = []

    def before_phase_epoch(self, strategy, **kwargs):
        pass

    def after_phase_epoch(self, strategy, **kwargs):
        phase = strategy.phase_running
        self.rates.append(
            (
                rates_by_name(phase.module(), phase.optimizer),
                {g["weight_decay"] for g in phase.optimizer.param_groups},
            )
        )


SHORT = {
    "epochs": "2",
    "batch_size": "256",
    "schedule": "cosine",
    "lowest_lr": "1e-5",
    "warm_up_epochs": "1",
    "head_lr_factor": "5",
}


@pytest.mark.parametrize(
    ("name", "given", "ratio"),
    [
        ("podnet", {"tune_epochs": "2"}, 1 / 2),
        ("afc", {"tune_epochs": "2"}, 1 / 2),
        ("dytox", {"tune_epochs": "2"}, 1 / 10),
        ("foster", {"compress_epochs": "2"}, 1),
    ],
)
def test_a_run_has_these_rates_whatever_the_schedule_has_left_of_the_main_ones(name, given, ratio):
    """With heads that have grown, and a head at five times the rate of the rest."""
    own = override(recipe(f"digits-b0-t5-{name}@demo"), {**SHORT, **given})
    look = Look()
    built = build(own, 0, plugins=(look,))
    for experience in built.benchmark.train_stream[:2]:
        built.strategy.train(experience)
    factors = (1, 1 / 2) if name == "foster" else (1, 1)
    assert len(look.rates) == 2
    for (rates, decay), factor in zip(look.rates, factors, strict=True):
        main = {
            key: own.train.lr * (5 if key.split(".")[0] in AT_HEADS_RATE else 1) for key in rates
        }
        assert rates == pytest.approx(
            {key: rate * ratio * factor for key, rate in main.items()}, rel=1e-12
        )
        assert len(set(main.values())) == (2 if name == "foster" else 1) and decay == {
            0.0 if name == "foster" else 0.01
        }
