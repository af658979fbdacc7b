"""The learning rate of every epoch of every recipe of the paper, against the loops of the released
codes written out here.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from timm.scheduler import CosineLRScheduler
from torch import nn

from avalanche_hfc.lab import all_names, recipe
from avalanche_hfc.lab.build import SchedulePlugin
from avalanche_hfc.lab.options import ONE_PASS

NAMES = all_names("paper")


# The authors' loops: the rates of the epochs of one step


def hfc():
    """HFC, train.py: the optimizer is made with the rate of the epoch; ten rounds of three epochs,
    the first of them warm-up.
    """
    rates = []
    for number in range(10):
        for epoch in range(3):
            step = epoch + number * 3
            rate = max(1e-5, 1e-5 + (math.cos(step / 30 * math.pi) + 1) * 0.5 * (6.25e-5 - 1e-5))
            rates.append(6.25e-5 * (epoch + 1) / 4 if number == 0 else rate)
    return rates


def dytox():
    """DyTox, main.py: timm's schedule, stepped after an epoch with the number of that epoch."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=5e-4 * 128 / 512)
    schedule = CosineLRScheduler(
        optimizer, t_initial=500, lr_min=1e-5, warmup_lr_init=1e-6, warmup_t=5, cycle_limit=1
    )
    rates = []
    for epoch in range(500):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step(epoch)
    return rates


def podnet(lr, epochs):
    """PODNet's icarl.py, which AFC shares: a cosine to 0, stepped after an epoch with the number of
    that epoch.
    """
    rates, rate = [], lr
    for epoch in range(epochs):
        rates.append(rate)
        rate = lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
    return rates


def foster(epochs):
    """FOSTER, foster.py: a cosine to 0 over the epochs of the phase, stepped after each."""
    return [0.1 * (1 + math.cos(math.pi * epoch / epochs)) / 2 for epoch in range(epochs)]


def icarl_cifar():
    """iCaRL, main_cifar_100_theano.py: after the 49th and the 63rd epoch."""
    rates, rate = [], 2.0
    for epoch in range(70):
        rates.append(rate)
        if epoch + 1 in (49, 63):
            rate /= 5
    return rates


def icarl_imagenet():
    """iCaRL, main_resnet_tf.py: after the epochs that it numbers 20, 30, 40, 50 from 0: the
    21st, …
    """
    rates, rate = [], 2.0
    for epoch in range(60):
        rates.append(rate)
        if epoch in (20, 30, 40, 50):
            rate /= 5
    return rates


def drops(lr, epochs, at):
    """SS-IL's update_lr before an epoch, BiC's boundaries, torch's MultiStepLR: lower from the
    epoch of that number on.
    """
    rates, rate = [], lr
    for epoch in range(epochs):
        rate *= 0.1 if epoch in at else 1
        rates.append(rate)
    return rates


CIFAR, IMAGENET = (
    {
        "icarl": icarl_cifar(),
        "bic": drops(0.1, 250, (100, 150, 200)),
        "podnet": podnet(0.1, 160),
        "podnet-cscct": podnet(0.1, 160),
        "ssil": drops(0.1, 200, (80, 120, 160)),
        "foster": foster(170),
        "afc": podnet(0.1, 160),
        "joint": drops(0.1, 200, (60, 120, 170)),
    },
    {
        "icarl": icarl_imagenet(),
        "bic": drops(0.1, 100, (30, 60, 80, 90)),
        "podnet": podnet(0.05, 90),
        "podnet-cscct": podnet(0.05, 90),
        "ssil": drops(0.1, 100, (40, 80)),
        "foster": foster(170),
        "afc": podnet(0.1, 90),
        "joint": drops(0.1, 200, (60, 120, 170)),
    },
)


def expected(own, step):
    """The rates of the epochs of a step, by what trains."""
    if own.model.kind == "convit":
        return dytox()
    if not own.model.kind.startswith("resnet"):
        return hfc()
    if own.method.name == "foster" and step == 0:
        return foster(200)
    return (CIFAR if own.data.dataset == "cifar100" else IMAGENET)[own.method.name]


def rates_of(own, step):
    """The rates that the schedule sets in a step: [of the backbone, of the head]."""
    groups = [{"scale": 1.0}, {"scale": own.train.head_lr_factor}]
    clock = SimpleNamespace(train_exp_counter=step, train_exp_epochs=0)
    strategy = SimpleNamespace(
        clock=clock, train_epochs=None, optimizer=SimpleNamespace(param_groups=groups)
    )
    plugin = SchedulePlugin(own.train, total_steps=own.data.total_steps)
    plugin.before_training_exp(strategy)
    rates = []
    for clock.train_exp_epochs in range(strategy.train_epochs):
        plugin.before_training_epoch(strategy)
        rates.append([group["lr"] for group in groups])
    return rates


def test_every_epoch_of_every_recipe_of_the_paper_has_the_rate_of_the_authors_loop():
    met, methods = set(), set()
    for name in NAMES:
        own = recipe(name)
        if own.method.name in ONE_PASS:  # nothing is trained by gradients
            continue
        kind = (own.train, own.method.name, own.model.kind, own.data.dataset)
        if kind in met:
            continue
        met.add(kind)
        methods.add((own.method.name, own.model.kind))
        factor = 1 if own.model.kind == "convit" or own.model.kind.startswith("resnet") else 5
        for step in range(min(own.data.total_steps, 3)):
            rates, wanted = rates_of(own, step), expected(own, step)
            assert [rate for rate, _ in rates] == pytest.approx(wanted, rel=1e-9), (name, step)
            assert [rate for _, rate in rates] == pytest.approx(
                [factor * rate for rate in wanted], rel=1e-9
            ), (name, step)
    assert len(NAMES) > 600 and len(met) > 60 and len(methods) > 30


def test_only_ssil_divides_the_rate_by_the_number_of_the_step():
    for name in NAMES:
        assert dict(recipe(name).method.options).get("lr_by_step", False) == (
            recipe(name).method.name == "ssil"
        )
