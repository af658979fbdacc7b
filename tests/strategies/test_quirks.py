"""The quirks of the released loop as an option: which groups move in which epoch of a step, and
where the moments start.
"""

from itertools import pairwise

import pytest
import torch
from avalanche.training.plugins import LRSchedulerPlugin
from strategy_runs import At, benchmark_of, hfc, mlp, train
from torch.optim import AdamW
from torch.optim.lr_scheduler import StepLR

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.build import build, build_model, build_strategy
from avalanche_hfc.plugins.official import OptimizerQuirksPlugin

OF_HEAD = ("head", "tsa", "shared_embedding")


def weights(strategy):
    parts = {"backbone": [], "head": []}
    for name, parameter in strategy.model.named_parameters():
        parts["head" if name.split(".")[0] in OF_HEAD else "backbone"].append(
            parameter.detach().clone().flatten()
        )
    return {part: torch.cat(values) for part, values in parts.items()}


@pytest.mark.parametrize("quirks", [True, False])
def test_in_a_recipe_head_and_tsa_move_in_epochs_0_and_3_of_6_and_moments_start_anew_in_every_epoch(
    quirks,
):
    given = {
        "epochs": "6",
        "head_lr_factor": "5",
        "batch_size": "64",
        "schedule": "cosine",
        "lowest_lr": "1e-4",
        "warm_up_epochs": "1",
    }
    own = override(
        recipe("digits-b0-t5-hfc-official@demo"), given | {"method.optimizer-quirks": str(quirks)}
    )
    seen, steps = {0: [], 1: []}, {0: [], 1: []}

    def end_of_epoch(strategy):
        step = strategy.clock.train_exp_counter
        seen[step].append(weights(strategy))
        steps[step].append(
            {int(state["step"]) for state in strategy.optimizer.state.values() if state}
        )

    plugins = [
        At(
            "before_training_epoch",
            lambda s: (
                seen[s.clock.train_exp_counter]
                or seen[s.clock.train_exp_counter].append(weights(s))
            ),
        )
    ]
    built = build(own, 0, plugins=[*plugins, At("after_training_epoch", end_of_epoch)])
    for experience in built.benchmark.train_stream[:2]:
        built.strategy.train(experience)
    for step in (0, 1):
        moved = {
            part: [not old[part].equal(new[part]) for old, new in pairwise(seen[step])]
            for part in ("backbone", "head")
        }
        assert moved["backbone"] == [True] * 6
        assert moved["head"] == ([True, False, False, True, False, False] if quirks else [True] * 6)
        batches = max(steps[step][0])  # of an epoch
        assert batches > 1 and steps[step] == [
            {batches if quirks else batches * (epoch + 1)} for epoch in range(6)
        ]


def test_the_recipe_of_the_paper_can_switch_them_on_and_they_act_behind_the_schedule():
    own = recipe("cifar100-b0-t10-hfc-official@paper")
    assert dict(own.method.options)["optimizer_quirks"] is False
    own = override(own, {"method.optimizer-quirks": "true"})
    strategy = build_strategy(own, build_model(own, device="meta"))
    kinds = [type(plugin).__name__ for plugin in strategy.plugins]
    assert kinds.index("SchedulePlugin") < kinds.index("OptimizerQuirksPlugin")
    assert [trained(strategy, epoch) for epoch in range(6)] == [
        [True, epoch % 3 == 0] for epoch in range(6)
    ]


def trained(strategy, epoch):
    """Which groups have a gradient left for the update of an epoch."""
    strategy.clock.train_exp_epochs = epoch
    for group in strategy.optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    for plugin in strategy.plugins:
        if isinstance(plugin, OptimizerQuirksPlugin):
            plugin.before_update(strategy)
    return [
        all(parameter.grad is not None for parameter in group["params"])
        for group in strategy.optimizer.param_groups
    ]


@pytest.mark.parametrize("scheduled", [False, True])
def test_the_rates_are_left_alone(scheduled):
    model, met = mlp(), []
    optimizer = AdamW(
        [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.02}], lr=0.01
    )
    schedule = [LRSchedulerPlugin(StepLR(optimizer, step_size=1, gamma=0.5))] if scheduled else []
    look = At(
        "after_update", lambda s: met.append([group["lr"] for group in s.optimizer.param_groups])
    )
    strategy = hfc(
        model,
        form="official",
        optimizer_quirks=True,
        optimizer=optimizer,
        plugins=[*schedule, look],
        train_epochs=4,
    )
    train(strategy, benchmark_of().train_stream[:1])
    per_epoch = len(met) // 4
    expected = [
        [0.01 * 0.5**epoch * scheduled or 0.01, 0.02 * 0.5**epoch * scheduled or 0.02]
        for epoch in range(4)
    ]
    assert met[::per_epoch] == [pytest.approx(rates) for rates in expected]


def test_they_are_refused_where_they_cannot_act():
    model = mlp()
    with pytest.raises(
        ValueError,
        match="optimizer_quirks=True acts only with form='official', got form='default'",
    ):
        hfc(model, optimizer_quirks=True)
    with pytest.raises(
        ValueError,
        match="needs TSA, token and head in a second parameter group of the optimizer; this one "
        "has a single",
    ):
        hfc(model, form="official", optimizer_quirks=True)
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]
    with pytest.raises(ValueError, match="and an OptimizerQuirksPlugin among the plugins"):
        hfc(
            model,
            form="official",
            optimizer_quirks=True,
            optimizer=AdamW(groups),
            plugins=[OptimizerQuirksPlugin()],
        )
    with pytest.raises(
        ValueError, match="trained with other options \\(optimizer_quirks True, now False"
    ):
        state = hfc(
            model, form="official", optimizer_quirks=True, optimizer=AdamW(groups)
        ).state_dict()
        hfc(mlp(), form="official").load_state_dict(state)


def test_norms_and_biases_in_groups_of_their_own_belong_to_their_part():
    given = {"head_lr_factor": "5", "decay_all": "false", "method.optimizer_quirks": "true"}
    strategy = build(override(recipe("digits-b0-t5-hfc-official@demo"), given), 0).strategy
    scales = [group["scale"] for group in strategy.optimizer.param_groups]
    assert list(zip(scales, trained(strategy, 1), strict=True)) == [
        (1, True),
        (1, True),
        (5, False),
        (5, False),
    ]
