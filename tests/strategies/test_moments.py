"""What the optimizer brings into a step: nothing with `reset_optimizer`, its moments without; its
groups in both cases.
"""

import jaxtyping
import pytest
import torch
from avalanche.training.supervised import Naive
from method_runs import build
from strategy_runs import At, benchmark_of, mlp, train
from torch.optim import SGD, AdamW

from avalanche_hfc import HFCStrategy
from avalanche_hfc.compat import KeptMoments
from avalanche_hfc.lab.options import ONE_PASS
from avalanche_hfc.strategies import STRATEGIES

TRAINED = [n for n in STRATEGIES if not n.startswith("avalanche-") and n not in ONE_PASS]
BETAS = (0.8, 0.95)


class FirstUpdates:
    """Of the first update of every step, by parameter: (gradient, AdamW's state before it, and
    after). `left`: AdamW's state at the end of every step.
    """

    def __init__(self):
        self.steps, self.left = {}, {}
        self.plugins = [
            At("before_update", self.before),
            At("after_update", self.after),
            At("after_training_exp", self.end),
        ]

    def before(self, strategy):
        if strategy.clock.train_exp_counter not in self.steps:
            groups = strategy.optimizer.param_groups
            trained = {id(parameter) for group in groups for parameter in group["params"]}
            self.steps[strategy.clock.train_exp_counter] = {
                name: [parameter.grad.clone(), state_of(strategy, parameter)]
                for name, parameter in strategy.model.named_parameters()
                if parameter.grad is not None and id(parameter) in trained
            }

    def after(self, strategy):
        updates = self.steps[strategy.clock.train_exp_counter]
        for name, parameter in strategy.model.named_parameters():
            if name in updates and len(updates[name]) == 2:
                updates[name].append(state_of(strategy, parameter))

    def end(self, strategy):
        self.left[strategy.clock.train_exp_counter] = {
            name: state_of(strategy, parameter)
            for name, parameter in strategy.model.named_parameters()
        }


def state_of(strategy, parameter):
    return {k: value.clone() for k, value in strategy.optimizer.state.get(parameter, {}).items()}


def first_updates(name, **options):
    met = FirstUpdates()
    options = {
        "optimizer": lambda parameters: AdamW(parameters, lr=1e-3, betas=BETAS),
        "plugins": met.plugins,
        **options,
    }
    if name in ("podnet", "podnet-cscct", "afc", "dytox"):
        options |= {"tune_epochs": 1}
    train(build(name, **options), benchmark_of().train_stream[:2])
    return met


def assert_updated(gradient, before, after):
    """Each moment is the mean of the one before and of the new value, in float32: three roundings,
    each of half an ulp of the larger of the two. Where these cancel, this may be more than the
    moment itself.
    """
    precision = 2 * torch.finfo(torch.float32).eps
    for key, beta, power in (("exp_avg", BETAS[0], 1), ("exp_avg_sq", BETAS[1], 2)):
        value = gradient.double() ** power
        old = before.get(key, torch.zeros_like(value)).double()
        expected = beta * old + (1 - beta) * value
        largest = torch.maximum(old.abs(), value.abs()) + torch.finfo(torch.float32).tiny
        assert ((after[key] - expected).abs() <= precision * largest).all(), key


@pytest.mark.parametrize("name", TRAINED)
def test_after_the_first_batch_of_a_step_the_moments_are_those_of_a_fresh_optimizer(name):
    updates = first_updates(name, reset_optimizer=True).steps[1]
    assert len(updates) == 2 if name == "frozen-replay" else len(updates) > 5
    for name, (gradient, before, after) in updates.items():
        if name == "head.scale":  # η has an optimizer of its own here
            assert before == after == {}
            continue
        assert before == {} and after["step"] == 1
        assert_updated(gradient, before, after)


# parameters that begin anew in each step under the name of those before
ANEW = {
    "podnet": {"head.new_proxies"},
    "podnet-cscct": {"head.new_proxies"},
    "afc": {"head.new_proxies"},
    "foster": {"head.single.weight", "head.single.bias"},
}
GROWING = {
    "bic": {"head.linear.weight", "head.linear.bias"},
    "dytox": set(),  # a head for each step
    **{name: set() for name in ANEW},
}


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "joint"])
def test_moments_that_are_kept_carry_on_those_of_the_old_rows_of_the_head_as_well(name):
    """Classes 1 and 4 come first: the row of class 0 is older than the class."""
    met = first_updates(name, reset_optimizer=False)
    left = {name: state for name, state in met.left[0].items() if state}
    grown, anew = set(), set()
    for parameter in left.keys() & met.steps[1].keys():
        gradient, before, after = met.steps[1][parameter]
        assert_updated(gradient, before, after)
        if not before:
            anew.add(parameter)
            continue
        assert before["step"] == left[parameter]["step"] > 1 and after["step"] == before["step"] + 1
        for key in ("exp_avg", "exp_avg_sq"):
            rows, old = before[key], left[parameter][key]
            assert old.any() and torch.equal(rows[: len(old)], old)
            if len(rows) > len(old):
                grown.add(parameter)
                assert not rows[len(old) :].any()
    assert grown == GROWING.get(name, {"head.weight", "head.bias"})
    assert anew == ANEW.get(name, set())


def test_ssil_keeps_its_moments_unless_told_otherwise():
    assert [STRATEGIES[name] for name in TRAINED if not build(name).reset_optimizer] == [
        STRATEGIES["ssil"]
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_avalanches_strategies_lose_the_momentum_of_their_head_without_the_plugin(kept):
    left, first = {}, {}

    def note(of_steps):
        def momentum(strategy):
            state = state_of(strategy, strategy.model[1].classifier.weight)
            of_steps.setdefault(strategy.clock.train_exp_counter, state.get("momentum_buffer"))

        return momentum

    model = mlp()
    naive = Naive(
        model=model,
        optimizer=SGD(model.parameters(), lr=0.1, momentum=0.9),
        plugins=[
            *([KeptMoments()] if kept else []),
            At("before_update", note(first)),
            At("after_training_exp", note(left)),
        ],
        train_mb_size=18,
        evaluator=None,
    )
    train(naive, benchmark_of().train_stream[:2])
    assert left[0].shape == (5, 16) and left[0].any()
    if kept:
        assert first[1][:5].equal(left[0]) and not first[1][5:].any()
    else:
        assert first[1] is None


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


@pytest.fixture
def annotations_unchecked():
    """As for a user, who has no type checker at run time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
