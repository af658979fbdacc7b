"""What the optimizer brings into a step: nothing with `reset_optimizer`, its moments without; its
groups in both cases.
"""

from functools import partial

import jaxtyping
import pytest
import torch
from method_runs import build
from strategy_runs import CLASSES, At, benchmark_of, hfc, mlp, train
from torch.optim import SGD, AdamW

from avalanche_hfc import HFCStrategy
from avalanche_hfc.recipes.options import ONE_PASS
from avalanche_hfc.strategies import STRATEGIES

OURS = [name for name in STRATEGIES if not name.startswith("avalanche-")]
BETAS = (0.8, 0.95)


class FirstUpdates:
    """Of the first update of every step and parameter: (gradient, AdamW's state before it, and
    after).
    """

    def __init__(self):
        self.steps = {}
        self.plugins = [At("before_update", self.before), At("after_update", self.after)]

    def before(self, strategy):
        if strategy.clock.train_exp_counter not in self.steps:
            state = strategy.optimizer.state
            self.steps[strategy.clock.train_exp_counter] = {
                name: [parameter.grad.clone(), copied(state.get(parameter, {}))]
                for name, parameter in strategy.model.named_parameters()
                if parameter.grad is not None
                and any(
                    parameter is own for g in strategy.optimizer.param_groups for own in g["params"]
                )
            }

    def after(self, strategy):
        updates = self.steps[strategy.clock.train_exp_counter]
        for name, parameter in strategy.model.named_parameters():
            if name in updates and len(updates[name]) == 2:
                updates[name].append(copied(strategy.optimizer.state[parameter]))


def copied(state):
    return {key: value.clone() for key, value in state.items()}


def first_updates(name, **options):
    met = FirstUpdates()
    options = {
        "optimizer": lambda parameters: AdamW(parameters, lr=1e-3, betas=BETAS),
        "plugins": met.plugins,
        **options,
    }
    if name in ("podnet", "podnet-cscct", "afc", "dytox"):
        options |= {"tune_epochs": 1}
    strategy = build(name, **options)
    train(strategy, benchmark_of().train_stream[:2])
    return met.steps[1]


@pytest.mark.parametrize("name", [name for name in OURS if name not in ONE_PASS])
def test_after_the_first_batch_of_a_step_the_moments_are_those_of_a_fresh_optimizer(name):
    updates = first_updates(name, **({"reset_optimizer": True} if name == "ssil" else {}))
    assert len(updates) == 2 if name == "frozen-replay" else len(updates) > 5
    assert updates.pop("head.scale", (None, {}, {}))[1:] in (
        [{}, {}],
        ({}, {}),
    )  # η has an optimizer of its own here
    for gradient, before, after in updates.values():
        assert before == {} and after["step"] == 1
        torch.testing.assert_close(
            after["exp_avg"], (1 - BETAS[0]) * gradient, rtol=1e-5, atol=1e-12
        )
        torch.testing.assert_close(
            after["exp_avg_sq"], (1 - BETAS[1]) * gradient**2, rtol=1e-5, atol=1e-20
        )


KEPT = {"reset_optimizer": False}


@pytest.mark.parametrize(
    ("name", "options"), [("ssil", {}), ("hfc", KEPT), ("baseline", KEPT), ("dytox", KEPT)]
)
def test_moments_that_are_kept_carry_on(name, options):
    updates = first_updates(name, **options)
    old = {key: update for key, update in updates.items() if update[1]}
    assert "backbone.blocks.0.mlp.fc1.weight" in {key.removeprefix("encoder.") for key in old}
    for gradient, before, after in old.values():
        assert before["step"] > 1 and after["step"] == before["step"] + 1
        torch.testing.assert_close(
            after["exp_avg"],
            BETAS[0] * before["exp_avg"] + (1 - BETAS[0]) * gradient,
            rtol=1e-4,
            atol=1e-10,
        )


@pytest.mark.parametrize("optimizer", [partial(SGD, lr=0.05, momentum=0.9), AdamW])
@pytest.mark.parametrize("name", ["ssil", "hfc", "herding-replay", "icarl"])
def test_a_head_that_grows_keeps_the_moments_of_its_old_rows_and_new_ones_start_at_0(
    name, optimizer
):
    ended, begun = [], []

    def look(met, strategy):
        head = strategy.model.head
        state = [strategy.optimizer.state.get(rows, {}) for rows in (head.weight, head.bias)]
        met.append([copied(moments) for moments in state])

    def at_first(strategy):
        if strategy.clock.train_exp_iterations == 0:
            look(begun, strategy)

    plugins = [At("after_training_exp", partial(look, ended)), At("before_update", at_first)]
    strategy = build(name, optimizer=optimizer, plugins=plugins, reset_optimizer=False)
    train(strategy, benchmark_of().train_stream)
    assert len(ended) == len(begun) == 3 and not any(begun[0])
    for step in (1, 2):
        old = sorted(k for classes in CLASSES[:step] for k in classes)
        for before, after in zip(ended[step - 1], begun[step], strict=True):
            assert before.keys() == after.keys() and before
            for key in before.keys() & {"momentum_buffer", "exp_avg", "exp_avg_sq"}:
                assert before[key][old].any() and after[key][old].equal(before[key][old])
                assert not after[key][CLASSES[step]].any()


def test_momentum_of_sgd_starts_anew_as_well():
    met = []

    def look(strategy):
        met.append(
            (
                strategy.clock.train_exp_counter,
                [dict(own) for own in strategy.optimizer.state.values() if own],
            )
        )

    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(
        hfc(model, optimizer=optimizer, plugins=[At("before_update", look)]),
        benchmark_of().train_stream,
    )
    first = dict(reversed(met))
    assert first == {0: [], 1: [], 2: []} and any(state for _, state in met)


def test_the_groups_keep_their_rates_and_options():
    model = mlp()
    body, head = (list(part.parameters()) for part in model)
    optimizer = AdamW(
        [{"params": body, "lr": 1e-3, "scale": 2.0}, {"params": head, "weight_decay": 0.3}], lr=3e-3
    )
    before = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    strategy = train(hfc(model, optimizer=optimizer), benchmark_of().train_stream[:2])
    assert strategy.optimizer is optimizer
    assert [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ] == before
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]


@pytest.mark.parametrize(("options", "calls"), [({}, [0, 1, 2]), ({"reset_optimizer": False}, [])])
def test_the_moments_are_forgotten_once_before_each_step_and_not_when_a_step_is_resumed(
    options, calls
):
    class Counting(HFCStrategy):
        def clear_moments(self):
            met.append(self.clock.train_exp_counter)
            super().clear_moments()

    def strategy_with(*plugins):
        model = mlp()
        return Counting(
            model=model,
            optimizer=AdamW(model.parameters(), lr=3e-3),
            mem_size=12,
            train_mb_size=8,
            train_epochs=2,
            plugins=[*plugins],
            evaluator=None,
            **options,
        )

    def save(strategy):
        if strategy.clock.train_exp_counter == 1:
            states.append(strategy.state_dict())

    met, states, benchmark = [], [], benchmark_of()
    train(strategy_with(At("after_training_epoch", save)), benchmark.train_stream)
    assert met == calls
    met.clear()
    resumed = strategy_with(At("after_training_epoch", save))
    resumed.load_state_dict(states[0])
    train(resumed, benchmark.train_stream[1:])
    assert met == calls[2:]


def test_joint_training_from_new_weights_starts_with_fresh_moments_whatever_is_asked_for():
    for _, before, after in first_updates("joint", reset_optimizer=False).values():
        assert before == {} and after["step"] == 1
    kept = first_updates("joint", reset_optimizer=False, from_scratch=False)
    assert any(before for _, before, _ in kept.values())


@pytest.fixture
def annotations_unchecked():
    """As for a user, who has no type checker at run time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("option", ["reset_optimizer", "drop_last"])
def test_a_flag_that_is_none_is_refused_and_a_state_of_the_other_one_too(
    option, annotations_unchecked
):
    with pytest.raises(ValueError, match=f"Baseline: {option} must be True or False, got 'no'"):
        build("baseline", **{option: "no"})
    plain = build("baseline")
    now = getattr(plain, option)
    with pytest.raises(
        ValueError, match=f"trained with other options \\({option} {not now}, now {now}\\)"
    ):
        plain.load_state_dict(build("baseline", **{option: not now}).state_dict())


def test_a_state_without_an_option_says_that_an_earlier_version_saved_it():
    strategy = build("baseline")
    state = strategy.state_dict()
    state["settings"] = {
        name: value
        for name, value in state["settings"].items()
        if name not in ("hfc_losses", "gradient")
    }
    with pytest.raises(
        ValueError,
        match="does not say what hfc_losses, gradient was: an earlier version saved it",
    ):
        strategy.load_state_dict(state)
