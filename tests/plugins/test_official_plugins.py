"""The learning rates of the released code and the quirks of its optimizer."""

import math
from itertools import pairwise

import pytest
import torch
from plugin_hosts import HOSTS, Watch, network, train
from torch import nn

from avalanche_hfc.plugins.official import OptimizerQuirksPlugin, WarmUpCosinePlugin

LR, LOWEST = 6.25e-5, 1e-5


def released():
    return WarmUpCosinePlugin(lr=LR, lowest_lr=LOWEST, warm_up=3)


def grouped_adamw(model, lr):
    """Body, and head at five times the rate."""
    return torch.optim.AdamW(
        [{"params": model[0].parameters()}, {"params": model[1].parameters(), "scale": 5.0}], lr=lr
    )


def test_thirty_epochs_have_the_rates_of_the_released_code():
    rates = [released().rate(epoch, 30) for epoch in range(30)]
    assert [f"{rate:.2e}" for rate in rates[:3]] == [
        "1.56e-05",
        "3.13e-05",
        "4.69e-05",
    ]  # 1/4, 2/4, 3/4
    assert rates[1] == LR / 2
    assert f"{rates[3]:.2e}" == "6.12e-05" and f"{rates[29]:.2e}" == "1.01e-05"
    for epoch in range(3, 30):
        assert rates[epoch] == pytest.approx(
            LOWEST + 0.5 * (LR - LOWEST) * (1 + math.cos(math.pi * epoch / 30)), rel=1e-12
        )
    assert rates[15] == pytest.approx((LR + LOWEST) / 2, rel=1e-12)


def test_the_rates_start_anew_in_every_step_and_a_group_keeps_its_scale(benchmark):
    model = network("fixed")
    rates = Watch(
        "before_training_iteration",
        lambda strategy: [group["lr"] for group in strategy.optimizer.param_groups],
    )
    strategy = HOSTS["ours"](
        [released(), rates],
        epochs=5,
        model=model,
        optimizer=grouped_adamw(model, 1.0),
        train_mb_size=64,
    )
    train(strategy, benchmark.train_stream[:2])
    step = [[rate, 5 * rate] for rate in (released().rate(epoch, 5) for epoch in range(5))]
    assert [len(rate) for rate in rates.seen] == [2] * 10
    assert torch.tensor(rates.seen).allclose(torch.tensor(step * 2), rtol=1e-6, atol=0)
    assert step[3][0] < step[2][0] != step[4][0]


@pytest.mark.parametrize("quirks", [True, False])
def test_with_the_quirks_the_head_moves_in_every_third_epoch_only_and_moments_start_anew(
    quirks, benchmark
):
    model = network("fixed")

    def look(strategy):
        state = strategy.optimizer.state
        return (
            model[0][0].weight.detach().clone(),
            model[1].weight.detach().clone(),
            {int(own["step"]) for own in state.values()},
        )

    epochs = Watch("after_training_epoch", look)
    start = Watch("before_training_exp", look)
    plugins = [released(), *([OptimizerQuirksPlugin()] if quirks else []), start, epochs]
    strategy = HOSTS["ours"](
        plugins, epochs=7, model=model, optimizer=grouped_adamw(model, LR), train_mb_size=24
    )  # two batches an epoch
    train(strategy, benchmark.train_stream[:1])
    seen = [start.seen[0], *epochs.seen]
    moved = [
        [not torch.equal(old[part], new[part]) for old, new in pairwise(seen)] for part in (0, 1)
    ]
    assert moved[0] == [True] * 7
    assert moved[1] == ([True, False, False, True, False, False, True] if quirks else [True] * 7)
    assert (
        [entry[2] for entry in epochs.seen] == [{2}] * 7
        if quirks
        else [{2 * epoch} for epoch in range(1, 8)]
    )


def test_the_first_update_of_each_epoch_is_a_sign_step_under_the_quirks(benchmark):
    model = nn.Sequential(nn.Linear(64, 32), network("fixed")[1])
    bias = Watch("before_update", lambda strategy: model[0].bias.detach().clone())
    after = Watch(
        "after_update",
        lambda strategy: (model[0].bias.detach().clone(), strategy.optimizer.param_groups[0]["lr"]),
    )
    strategy = HOSTS["ours"](
        [
            WarmUpCosinePlugin(lr=0.01, lowest_lr=0.001, warm_up=1),
            OptimizerQuirksPlugin(),
            bias,
            after,
        ],
        epochs=3,
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.0),
        train_mb_size=24,
    )
    train(strategy, benchmark.train_stream[:1])
    for index in (0, 2, 4):  # of two batches an epoch
        new, rate = after.seen[index]
        torch.testing.assert_close(
            (new - bias.seen[index]).abs(), torch.full((32,), rate), rtol=1e-3, atol=0
        )
