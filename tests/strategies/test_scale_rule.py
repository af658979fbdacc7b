"""The scale η of the cosine head: its course under any optimizer is that of the authors' SGD."""

import io

import pytest
import torch
from avalanche.training.plugins import LRSchedulerPlugin
from method_runs import build, moved, steps_of, weights
from strategy_runs import At, benchmark_of, jitter, train, vit
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR

METHODS = ("podnet", "podnet-cscct", "afc")
LARGEST = 5.0


def authors_course(gradients, rates, *, start=1.0, momentum=0.9, decay=5e-4):
    """v ← 0.9 v + clamp(g) + 5e-4 η, η ← η - rate · v; v begins at 0 in every step. A list of steps
    gives a list of values.
    """
    scale, course = start, []
    for own_gradients, own_rates in zip(gradients, rates, strict=True):
        velocity = 0.0
        for gradient, rate in zip(own_gradients, own_rates, strict=True):
            velocity = momentum * velocity + max(-LARGEST, min(LARGEST, gradient)) + decay * scale
            scale -= rate * velocity
            course.append(scale)
    return course


class Watch(At):
    """Gradients of η before they are clamped, and its values, step by step; the head's rate is
    halved from epoch to epoch.
    """

    def __init__(self, lr, blow_up=1.0):
        super().__init__((), None)
        self.lr, self.blow_up = lr, blow_up
        self.gradients, self.factors, self.values = [], [], []

    def before_training_exp(self, strategy, **kwargs):
        self.gradients.append([])
        self.factors.append([])

    def before_training_epoch(self, strategy, **kwargs):
        strategy.optimizer.param_groups[-1]["lr"] = self.lr * 0.5**strategy.clock.train_exp_epochs

    def before_backward(self, strategy, **kwargs):
        strategy.loss = strategy.loss * self.blow_up

    def after_backward(self, strategy, **kwargs):
        self.gradients[-1].append(strategy.model.head.scale.grad.item())
        self.factors[-1].append(0.5**strategy.clock.train_exp_epochs)

    def after_update(self, strategy, **kwargs):
        self.values.append(strategy.model.head.scale.item())


def watched(name, kind, lr, *, blow_up=1.0, **options):
    """A run of two steps; the head has a group and a rate of its own, and η starts each step
    without momentum.
    """
    own = {SGD: dict(momentum=0.9, weight_decay=5e-4), AdamW: dict(weight_decay=0.5)}.get(kind, {})
    watch = Watch(lr, blow_up)

    def optimizer(parameters):
        parameters = list(parameters)
        head = [parameter for parameter in parameters if not parameter.numel()]
        rest = [parameter for parameter in parameters if parameter.numel()]
        return kind([{"params": rest, "lr": 1e-4}, {"params": head}], lr=lr, **own)

    strategy = build(name, optimizer=optimizer, plugins=[watch], tune_epochs=1, **options)
    for experience in benchmark_of().train_stream[:2]:
        strategy.clear_moments()
        strategy.train(experience)
    return strategy, watch


@pytest.mark.parametrize("blow_up", [1.0, 100.0])
@pytest.mark.parametrize(
    ("name", "kind", "lr"),
    [*((n, k, 1e-3) for n in METHODS for k in (AdamW,)), ("podnet", SGD, 0.1)],
)
def test_the_scale_follows_the_authors_update_and_the_heads_schedule(name, kind, lr, blow_up):
    _, watch = watched(name, kind, lr, blow_up=blow_up)
    rates = [[0.1 * factor for factor in own] for own in watch.factors]
    assert len(watch.values) == 6 and {factor for own in watch.factors for factor in own} == {
        1.0,
        0.5,
    }
    assert (max(abs(g) for own in watch.gradients for g in own) > LARGEST) == (blow_up > 1)
    assert watch.values == pytest.approx(authors_course(watch.gradients, rates), rel=1e-5)


def test_sgd_trains_the_scale_itself_whatever_the_rate_of_the_rule():
    first, _ = watched("podnet", SGD, 0.1)
    other, _ = watched("podnet", SGD, 0.1, scale_lr=7.0)
    assert first.scale_rule is None and not moved(weights(first), weights(other))
    assert (
        "momentum_buffer" in first.optimizer.state[first.model.head.scale]
        and "scale" not in first.method_state()
    )
    adaptive = [watched("podnet", AdamW, 1e-3, scale_lr=rate)[0] for rate in (0.1, 0.2)]
    assert "head.scale" in moved(*map(weights, adaptive))


@pytest.mark.parametrize("name", ["podnet", "afc"])
def test_nearest_means_keep_the_scale_at_one(name):
    strategy = steps_of(
        build(
            name,
            inference="nme",
            tune_epochs=1,
            optimizer=lambda parameters: AdamW(parameters, lr=1e-3),
        ),
        2,
    )
    assert strategy.scale_rule is None and strategy.model.head.scale.item() == 1.0


# State


def written(state):
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


@pytest.mark.parametrize("name", ["podnet", "afc"])
def test_a_run_under_adamw_goes_on_bit_for_bit_with_the_momentum_of_the_scale(name):
    events = ("before_training_epoch", "after_training_epoch", "before_phase_epoch")

    def fresh(act):
        def adamw(parameters):
            return AdamW(parameters, lr=1e-3)

        return build(
            name, optimizer=adamw, tune_epochs=1, train_mb_size=5, plugins=[At(events, act)]
        )

    states = []
    benchmark = benchmark_of(train_transform=jitter)
    unbroken = train(
        fresh(lambda s: states.append((s.clock.train_exp_counter, written(s.state_dict())))),
        benchmark.train_stream,
    )
    assert any(state["method"]["scale"]["state"] for _, state in states) and len(states) == 14
    for number, (step, state) in enumerate(states[5:10]):
        resumed = fresh(lambda s: None)
        resumed.load_state_dict(state)
        torch.manual_seed(number)
        train(resumed, benchmark_of(train_transform=jitter).train_stream[step:])
        assert not moved(weights(unbroken), weights(resumed))
        buffers = [
            s.scale_rule.optimizer.state[s.model.head.scale]["momentum_buffer"]
            for s in (unbroken, resumed)
        ]
        assert buffers[0].equal(buffers[1]) and buffers[0] != 0


def test_a_schedule_that_starts_low_does_not_raise_the_rate_of_the_scale():
    rates = []
    model = vit()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    plugin = LRSchedulerPlugin(
        OneCycleLR(optimizer, max_lr=1e-3, total_steps=40),
        step_granularity="iteration",
        reset_scheduler=False,
    )
    look = At("after_update", lambda s: rates.append(s.scale_rule.optimizer.param_groups[0]["lr"]))
    steps_of(build("podnet", model=model, optimizer=lambda _: optimizer, plugins=[plugin, look]), 1)
    assert rates and max(rates) == pytest.approx(0.1)
