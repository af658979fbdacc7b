"""The frozen teacher: the model at the end of the step before, in eval mode, asked once per
batch.
"""

import pytest
import torch
from avalanche.models import TrainEvalModel
from avalanche.training.plugins import SupervisedPlugin
from plugin_hosts import HOSTS, STEPS, Watch, network, same, snapshot, train, weights
from torch import nn

from avalanche_hfc.losses import official_hfc
from avalanche_hfc.plugins import FrozenTeacher, GFCPlugin, GRDPlugin, StepTable
from avalanche_hfc.plugins.official import OfficialLossPlugin
from avalanche_hfc.plugins.teacher import teacher_logits

PLAIN = [name for name in HOSTS if name not in ("icarl", "er_ace", "er_ace-shipped")]


def never(model, x):
    raise AssertionError("the answer is there already")


def body_with_state():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5))


class AsksToo(SupervisedPlugin):
    """A third plugin that wants the teacher's logits, as a method author's would."""

    def before_backward(self, strategy, **kwargs):
        if StepTable.of(strategy).num_old:
            teacher_logits(strategy, strategy.mb_x)


class CountsTeacher(SupervisedPlugin):
    """Forward calls of the teacher in each iteration, and what is left in the caches after it.
    Stands last.
    """

    def __init__(self):
        super().__init__()
        self.calls, self.in_iteration, self.left = 0, [], []

    def before_training_exp(self, strategy, **kwargs):
        if FrozenTeacher.of(strategy).model is not None:
            FrozenTeacher.of(strategy).model.register_forward_hook(
                lambda *_: setattr(self, "calls", self.calls + 1)
            )

    def before_training_iteration(self, strategy, **kwargs):
        self.calls = 0

    def after_training_iteration(self, strategy, **kwargs):
        self.in_iteration.append((strategy.clock.train_exp_counter, self.calls))
        self.left += [FrozenTeacher.of(strategy)._batch, StepTable.of(strategy)._weights]


@pytest.mark.parametrize("name", HOSTS)
def test_the_teacher_is_the_model_at_the_end_of_the_step_before_and_cannot_learn(name, benchmark):
    ends = Watch("after_training_exp", lambda strategy: weights(strategy.model))
    inside = Watch(
        "before_training_epoch",
        lambda strategy: (
            (weights(strategy.frozen_teacher.model), strategy.frozen_teacher.model)
            if hasattr(strategy, "frozen_teacher") and strategy.frozen_teacher.model is not None
            else None
        ),
    )
    strategy = train(HOSTS[name]([ends, GRDPlugin(), inside], epochs=1), benchmark.train_stream)
    assert inside.seen[0] is None
    for end, (at_start, teacher) in zip(ends.seen, inside.seen[1:], strict=False):
        assert same(at_start, end) and same(
            weights(teacher), end
        )  # at the start of the step, and still at its end
        # a TrainEvalModel chooses the trained classifier by its own mode
        modules = [each for each in teacher.modules() if not isinstance(each, TrainEvalModel)]
        assert not any(module.training for module in modules)
        assert not any(parameter.requires_grad for parameter in teacher.parameters())
        assert all(
            parameter.grad is None or not parameter.grad.any() for parameter in teacher.parameters()
        )
    assert strategy.frozen_teacher.model is not strategy.model and not same(
        ends.seen[0], ends.seen[1]
    )


@pytest.mark.parametrize("name", ["naive", "replay", "ours"])
def test_batch_norm_of_the_teacher_does_not_drift_and_its_dropout_is_off(name, benchmark):
    ends = Watch("after_training_exp", lambda strategy: snapshot(strategy.model))
    asked = Watch(
        "before_backward",
        lambda strategy: (strategy.mb_x, FrozenTeacher.of(strategy).output(strategy.mb_x, never)),
        step=1,
    )
    model = network(body=body_with_state())
    strategy = HOSTS[name]([ends, GRDPlugin(), asked], epochs=2, model=model)
    train(strategy, benchmark.train_stream[:2], seed=3)
    first = ends.seen[0]
    moved = strategy.model[0][1].running_mean - first[0][1].running_mean
    assert moved.abs().max() > 0.01
    for x, logits in asked.seen:
        torch.testing.assert_close(logits, first(x), rtol=0, atol=0)
    assert len(asked.seen) == 4


@pytest.mark.parametrize("name", PLAIN)
def test_however_many_ask_the_teacher_runs_once_a_batch_and_nothing_is_kept(name, benchmark):
    counts = CountsTeacher()
    strategy = HOSTS[name]([GFCPlugin(), GRDPlugin(), AsksToo(), counts], epochs=1)
    strategy.plugins.remove(counts)
    strategy.plugins.append(counts)
    train(strategy, benchmark.train_stream)
    assert {step for step, _ in counts.in_iteration} == {0, 1, 2}
    assert all(calls == (step > 0) for step, calls in counts.in_iteration)
    assert all(cached is None for cached in counts.left)


def test_the_released_loss_and_another_that_asks_share_one_forward(benchmark):
    counts = CountsTeacher()
    official = OfficialLossPlugin(eval_criterion=nn.CrossEntropyLoss())
    strategy = HOSTS["ours"]([AsksToo()], epochs=1, criterion=official)
    strategy.plugins.append(counts)
    train(strategy, benchmark.train_stream)
    assert [calls for _, calls in counts.in_iteration] == [
        step > 0 for step, _ in counts.in_iteration
    ]
    assert all(cached is None for cached in counts.left)


def test_a_batch_that_only_looks_like_the_one_before_is_asked_anew():
    teacher = FrozenTeacher()
    teacher.hold(nn.Linear(2, 3), 0)
    calls = []

    def forward(model, x):
        calls.append(x)
        return model(x)

    x = torch.randn(4, 2)
    first = teacher.output(x, forward)
    assert teacher.output(x, forward) is first and not first.requires_grad
    torch.testing.assert_close(teacher.output(x.clone(), forward), first)
    teacher.forget_batch()
    teacher.output(x, forward)
    assert len(calls) == 3


def test_the_teacher_of_icarl_gives_logits_not_distances_to_class_means(benchmark):
    grd = GRDPlugin()
    asked = Watch(
        "before_backward",
        lambda strategy: (strategy.mb_x, teacher_logits(strategy, strategy.mb_x)),
        step=1,
    )
    ends = Watch("after_training_exp", lambda strategy: snapshot(strategy.model))
    train(HOSTS["icarl"]([ends, asked, grd], epochs=1), benchmark.train_stream[:2])
    first = ends.seen[0]
    assert asked.seen
    for x, logits in asked.seen:
        torch.testing.assert_close(
            logits, first.train_classifier(first.feature_extractor(x)), rtol=0, atol=0
        )


@pytest.mark.parametrize("name", ["er_ace", "er_ace-shipped"])
def test_in_er_ace_the_teacher_sees_the_new_rows_and_then_the_memory_rows(name, benchmark):
    grd = GRDPlugin()

    def look(strategy):
        return [*grd.host.batch()], [
            torch.cat([strategy.mb_x, strategy.mb_buffer_x]),
            torch.cat([strategy.mb_output, strategy.mb_buffer_out]),
            torch.cat([strategy.mb_y, strategy.mb_buffer_y]),
        ]

    watch = Watch("before_backward", look, step=1)
    train(HOSTS[name]([watch, grd], epochs=1), benchmark.train_stream[:2])
    for batch, expected in watch.seen:
        assert all(torch.equal(*pair) for pair in zip(batch, expected, strict=True))


def test_the_released_loss_is_the_criterion_in_training_and_the_given_one_in_evaluation(benchmark):
    official = OfficialLossPlugin(eval_criterion=nn.CrossEntropyLoss())
    ends = Watch("after_training_exp", lambda strategy: snapshot(strategy.model))

    def look(strategy):
        step = strategy.clock.train_exp_counter
        logits = strategy.mb_output.detach()
        teacher = ends.seen[-1](strategy.mb_x) if step else None
        expected = official_hfc(logits, strategy.mb_y, teacher, torch.tensor(STEPS[step]))
        return strategy.loss.item(), expected.item()

    def look_in_evaluation(strategy):
        expected = nn.functional.cross_entropy(strategy.mb_output, strategy.mb_y)
        return strategy.loss.item(), expected.item()

    training, evaluation = (
        Watch("before_backward", look),
        Watch("after_eval_iteration", look_in_evaluation),
    )
    strategy = HOSTS["ours"]([training, evaluation, ends], epochs=1, criterion=official)
    strategy.eval(benchmark.test_stream[:1])  # before any training, too
    train(strategy, benchmark.train_stream)
    strategy.eval(benchmark.test_stream)
    assert len(training.seen) == 6 and len(evaluation.seen) == 4
    for value, expected in training.seen + evaluation.seen:
        assert value == pytest.approx(expected, rel=1e-6)


def test_the_released_loss_refuses_a_criterion_whose_settings_would_have_no_effect(benchmark):
    official = OfficialLossPlugin(eval_criterion=nn.CrossEntropyLoss(label_smoothing=0.2))
    strategy = HOSTS["ours"]([], epochs=1, criterion=official)
    before = weights(strategy.model)
    with pytest.raises(
        ValueError,
        match=r"Form 'official' cannot act .* a CrossEntropyLoss with label_smoothing=0\.2; a plain",
    ):
        train(strategy, benchmark.train_stream)
    assert same(before, weights(strategy.model))
