"""A run depends on its seed and its data only: not on evaluations, loggers, or where it was
stopped; and it leaves the caller's alone.
"""

import copy
import csv
import io

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.logging import CSVLogger, InteractiveLogger, TextLogger
from avalanche.training.plugins import EvaluationPlugin, LRSchedulerPlugin
from contract_entries import every
from contract_runs import (
    DECAY,
    EVALUATED,
    LR,
    At,
    benchmark_of,
    build,
    differing,
    left_by,
    read,
    run,
    seed,
    train,
    usual,
    written,
)
from torch import nn
from torch.optim import SGD

from avalanche_hfc.plugins import StepTable

EVENTS = (
    "before_training_epoch",
    "after_training_epoch",
    "before_phase_epoch",
    "after_phase_epoch",
    "after_training_exp",
)


@every
def test_the_same_seed_gives_the_same_weights(case):
    assert differing(usual(case)[-1], left_by(run(case))) == []
    assert any(name.startswith(".model.") for name in differing(usual(case)[-2], usual(case)[-1]))


@every
def test_evaluating_in_between_also_of_future_classes_changes_nothing(case):
    """Before the first step, between steps, after epochs, inside an epoch, after epochs of later
    phases.
    """
    benchmark, met, expected = benchmark_of(), [], usual(case)

    def evaluate(strategy):
        met.append(strategy.clock.train_exp_counter)
        strategy.eval(benchmark.test_stream)

    plugin = At("after_phase_epoch", evaluate)
    plugin.before_backward = lambda s, **kwargs: (
        evaluate(s) if s.clock.train_exp_iterations == 1 else None
    )
    seed()
    strategy = build(case, eval_every=1, plugins=[plugin])
    strategy.eval(benchmark.test_stream)
    for step, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[benchmark.test_stream])
        strategy.eval(benchmark.test_stream)
        assert differing(expected[step], left_by(strategy), but=EVALUATED) == [], (
            f"after step {step}"
        )
    first, later = case.entry.num_phase_epochs
    assert met == [0] * (1 + first) + [1] * (1 + later) + [2] * (1 + later)


@every
def test_the_callers_objects_stay_as_they_were(case):
    benchmark = benchmark_of(transform=None)
    experiences = list(benchmark.train_stream)
    images = [[(x.clone(), y) for x, y, *_ in experience.dataset] for experience in experiences]
    sets = [experience.dataset for experience in experiences]
    model, criterion = case.entry.model(), nn.CrossEntropyLoss()
    optimizer, mine, options = (
        SGD(model.parameters(), lr=LR),
        [At((), None)],
        copy.deepcopy(case.entry.options),
    )
    given, settings, criterion_is = list(mine), dict(optimizer.defaults), dict(vars(criterion))
    extra = {} if case.reason("takes a criterion") else {"criterion": criterion}
    seed()
    strategy = build(case, model=model, optimizer=optimizer, own_plugins=mine, **extra)
    train(strategy, experiences)
    assert mine == given and mine[0] in strategy.plugins
    assert (
        strategy.optimizer is optimizer
        and optimizer.defaults == settings
        and case.entry.options == options
    )
    assert vars(criterion) == criterion_is
    assert all(
        experience.dataset is data for experience, data in zip(experiences, sets, strict=True)
    )
    for experience, before in zip(experiences, images, strict=True):
        now = [(x, y) for x, y, *_ in experience.dataset]
        assert len(now) == len(before) and all(
            torch.equal(a, c) and b == d for (a, b), (c, d) in zip(now, before, strict=True)
        )


@every
def test_avalanches_loggers_see_every_epoch_and_change_nothing(case, tmp_path, capsys):
    metrics = [
        kind(minibatch=True, epoch=True, experience=True, stream=True)
        for kind in (accuracy_metrics, loss_metrics)
    ]
    expected, text, table = usual(case)[1], io.StringIO(), CSVLogger(str(tmp_path))
    evaluator = EvaluationPlugin(*metrics, loggers=[InteractiveLogger(), TextLogger(text), table])
    benchmark = benchmark_of()
    seed()
    strategy = build(case, evaluator=evaluator)
    train(strategy, benchmark.train_stream[:2])
    strategy.eval(benchmark.test_stream)
    table.close()
    assert differing(expected, left_by(strategy), but=EVALUATED) == []
    last = case.entry.num_epochs - 1
    for output in (text.getvalue(), capsys.readouterr().out):
        assert (
            output.count(f"Epoch {last} ended") == 2
            and "Top1_Acc_Epoch/train_phase/train_stream" in output
            and "nan" not in output
        )
    with open(tmp_path / "training_results.csv") as file:
        rows = [(int(row["training_exp"]), int(row["epoch"])) for row in csv.DictReader(file)]
    assert "Top1_Acc_Stream/eval_phase/test_stream" in text.getvalue()
    assert rows == [(step, epoch) for step in range(2) for epoch in range(last + 1)]


@every
def test_the_learning_rate_follows_the_schedule_in_every_step(case):
    """As the optimizer meets it, whatever the method does to it."""
    rates, benchmark = {}, benchmark_of()
    seed()
    strategy = build(case)

    def look(optimizer, *_):
        moment = (strategy.clock.train_exp_counter, strategy.clock.train_exp_epochs)
        rates.setdefault(moment, set()).update(group["lr"] for group in optimizer.param_groups)

    strategy.optimizer.register_step_pre_hook(look)
    train(strategy, benchmark.train_stream)
    assert any(isinstance(plugin, LRSchedulerPlugin) for plugin in strategy.plugins)
    expected = {
        (step, epoch): LR * case.entry.lr_factor(step) * DECAY**epoch
        for step in range(3)
        for epoch in range(2)
    }
    assert all(len(met) == 1 for met in rates.values())
    assert {moment: met.pop() for moment, met in rates.items()} == pytest.approx(expected)


class Camera(At):
    """Keeps a written state of every moment: (event, step, how often the event has come, place)."""

    def __init__(self, place, events=EVENTS):
        self.states, self.place = {}, place
        super().__init__((), None)
        for event in events:
            setattr(self, event, lambda strategy, event=event, **kwargs: self.take(event, strategy))

    def take(self, event, strategy):
        count = sum(event == other for other, *_ in self.states)
        self.states[event, StepTable.of(strategy).current, count, self.place] = written(
            strategy.state_dict()
        )


def with_cameras(case, events=EVENTS):
    """A strategy whose plugins are a camera, a schedule, the method's own, a camera, Avalanche's
    own; and what the cameras keep.
    """
    first, last = Camera("first", events), Camera("last", events)
    strategy = build(case, plugins=[first])
    strategy.plugins.insert(
        next(
            i for i, plugin in enumerate(strategy.plugins) if isinstance(plugin, EvaluationPlugin)
        ),
        last,
    )
    return strategy, first.states, last.states


@every
def test_a_run_goes_on_bit_for_bit_from_every_stop(case):
    """Each stop goes on to the end of its step, one between steps to the end of the next: what a
    state lacks is missed by the step that uses it. In the second step before and after everything,
    in the others after it.
    """
    expected, between = usual(case), {}
    seed()
    strategy, first, last = with_cameras(case)
    for step, experience in enumerate(benchmark_of().train_stream):
        strategy.train(experience)
        assert differing(expected[step], left_by(strategy)) == [], "taking states changed something"
        between["between steps", step + 1, step, ""] = written(strategy.state_dict())
    in_first, in_later = case.entry.num_phase_epochs
    for states in (first, last):
        counts = [sum(event == other for other, *_ in states) for event in EVENTS]
        in_main = 3 * case.entry.num_epochs
        assert counts == [in_main, in_main, in_first + 2 * in_later, in_first + 2 * in_later, 3]
    benchmark, in_second = (
        benchmark_of(),
        {moment: state for moment, state in (first | last).items() if moment[1] == 1},
    )
    later = {
        moment: state
        for moment, state in first.items()
        if moment[1] != 1 and not moment[0].startswith("before")
    }
    everywhere = (
        {} if case.losses == "hfc" else later
    )  # other loss terms, the same stops: the second step will do
    for number, (moment, content) in enumerate({**everywhere, **in_second, **between}.items()):
        state = read(content)
        start = state["clock"]["train_exp_counter"]
        if moment[0] == "after_training_exp" and start == 3:
            continue  # nothing is left to train
        step = min(start, 2)
        seed(100 + number)
        fresh, *_ = with_cameras(case, ())
        fresh.load_state_dict(state)
        train(fresh, benchmark.train_stream[start : step + 1])
        assert differing(expected[step], left_by(fresh)) == [], moment
