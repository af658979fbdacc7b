"""The learning rates of the released code and the quirks of its optimizer."""

import math

import pytest
import torch
from plugin_hosts import HOSTS, Watch, network, train

from avalanche_hfc.plugins.official import WarmUpCosinePlugin

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
