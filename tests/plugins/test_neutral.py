"""A plugin that weighs every sample by 1 is not there: the host's final weights bit for bit, in
every host.
"""

from functools import cache

import pytest
import torch
from plugin_hosts import HOSTS, digits_benchmark, same, weights

from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, steps


def weights_after_steps(name, *plugins):
    strategy, result = HOSTS[name](plugins, epochs=1), []
    torch.manual_seed(1)
    for experience in digits_benchmark().train_stream:
        strategy.train(experience)
        result.append(weights(strategy.model))
    return result


alone = cache(weights_after_steps)


def constant_weight(monkeypatch, value):
    monkeypatch.setattr(
        steps,
        "compensation_weights",
        lambda logits, targets, steps: torch.full((len(targets),), value),
    )


@pytest.mark.parametrize("name", HOSTS)
def test_gfc_that_weighs_every_sample_by_one_gives_the_hosts_weights_bitwise(name, monkeypatch):
    constant_weight(monkeypatch, 1.0)
    assert same(weights_after_steps(name, GFCPlugin())[-1], alone(name)[-1])


@pytest.mark.parametrize("name", HOSTS)
def test_gfc_that_weighs_every_sample_by_a_thousandth_more_does_not(name, monkeypatch):
    constant_weight(monkeypatch, 1.001)
    assert not same(weights_after_steps(name, GFCPlugin())[-1], alone(name)[-1])


@pytest.mark.parametrize(
    "plugins", [[GFCPlugin], [GRDPlugin], [GFCPlugin, GRDPlugin]], ids=["gfc", "grd", "both"]
)
@pytest.mark.parametrize("name", HOSTS)
def test_the_losses_leave_the_first_step_bitwise_alone_and_act_from_the_second_on(name, plugins):
    with_losses = weights_after_steps(name, *(plugin() for plugin in plugins))
    assert [same(*pair) for pair in zip(with_losses, alone(name), strict=True)] == [
        True,
        False,
        False,
    ]


def test_a_number_times_the_weights_is_neutral_when_the_product_is_one(monkeypatch):
    constant_weight(monkeypatch, 0.5)
    assert same(weights_after_steps("replay", GFCPlugin(weight=2))[-1], alone("replay")[-1])
