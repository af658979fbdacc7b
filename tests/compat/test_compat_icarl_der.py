"""ICaRL and DER with a head that grows.

A test named `shipped_…` fails when Avalanche mends the defect: then the repair can go.
"""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from avalanche.models import IncrementalClassifier
from avalanche.training.supervised import DER, ICaRL
from compat_hosts import STEPS, Recorder, buffers, network, same, strategy_of, train, weights
from torch import nn

from avalanche_hfc import compat

# ICaRL


def test_shipped_icarl_teacher_stays_in_train_mode_and_drifts(benchmark):
    strategy = train(strategy_of(ICaRL, network("fixed", norm=True)), benchmark.train_stream[:1])
    teacher = strategy._criterion.old_model
    before = buffers(teacher)
    teacher(torch.rand(20, 64))
    assert teacher.training and not same(before, buffers(teacher))


@pytest.mark.parametrize("head", ["incremental", "growing"])
def test_icarl_teacher_is_the_frozen_student_of_the_last_step(benchmark, head):
    strategy = strategy_of(compat.RepairedICaRL, network(head, norm=True))
    loss = strategy._criterion
    assert loss in strategy.plugins and isinstance(loss, compat.RepairedICaRLLossPlugin)
    torch.manual_seed(1)
    x = torch.rand(20, 64)
    for step in range(3):
        if step:
            teacher, before = loss.old_model, weights(SimpleNamespace(model=loss.old_model))
        strategy.train(benchmark.train_stream[step])
        if step:
            assert same(before, weights(SimpleNamespace(model=teacher)))
        student = strategy.model
        assert loss.old_model is not student and not any(
            module.training for module in loss.old_model.modules()
        )
        assert not any(parameter.requires_grad for parameter in loss.old_model.parameters())
        student.eval()
        with torch.no_grad():
            assert torch.equal(
                loss.old_model(x), student.train_classifier(student.feature_extractor(x))
            )
            assert not torch.equal(
                loss.old_model(x), student(x)
            )  # that would be distances to class means
        student.train()
    assert loss.old_classes == [1, 3, 0, 5, 2, 4]


def test_icarl_loss_is_binary_cross_entropy_with_the_teachers_old_columns(benchmark):
    def by_hand(strategy):
        logits, teacher = strategy.mb_output.detach().double(), strategy._criterion.old_model
        with torch.no_grad():
            old = teacher(strategy.mb_x).double()
        total = 0.0
        for i, target in enumerate(strategy.mb_y.tolist()):
            for c in range(6):
                wanted = old[i, c].sigmoid().item() if c in (0, 1, 3, 5) else float(c == target)
                p = logits[i, c].sigmoid().item()
                total -= wanted * math.log(p) + (1 - wanted) * math.log(1 - p)
        return strategy.loss.item(), total / logits.numel()

    recorder = Recorder(by_hand)
    train(strategy_of(compat.RepairedICaRL, network(), plugins=[recorder]), benchmark.train_stream)
    assert len(recorder.seen) > 5
    for loss, expected in recorder.seen:
        assert loss == pytest.approx(expected, rel=1e-5)


# DER


def test_shipped_der_compares_masked_logits_with_trained_columns(benchmark):
    losses = {}
    for kind in (DER, compat.RepairedDER):
        recorder = Recorder(lambda strategy: strategy.loss.item())
        model = nn.Sequential(network()[0], IncrementalClassifier(32, initial_out_features=6))
        train(strategy_of(kind, model, plugins=[recorder]), benchmark.train_stream)
        losses[kind] = max(recorder.seen)
    assert losses[DER] > 1e4 and losses[compat.RepairedDER] < 20


def test_known_logits_falls_back_on_the_current_logit():
    nan = float("nan")
    stored = torch.tensor([[1.0, -1000.0, 2.0], [nan, -999.0, nan]])
    current = torch.tensor([[9.0, 8.0, 7.0, 6.0], [5.0, 4.0, 3.0, -1000.0]], requires_grad=True)
    known = compat.known_logits(stored, current)
    assert (
        known.tolist() == [[1.0, 8.0, 2.0, 6.0], [5.0, -999.0, 3.0, -1000.0]]
        and not known.requires_grad
    )
    F.mse_loss(current, known).backward()
    assert current.grad.tolist() == [[2.0, 0.0, 1.25, 0.0], [0.0, 1003 / 4, 0.0, 0.0]]
    narrow = current.detach()[
        :, :2
    ]  # an evaluation had widened the output when the logits were stored
    assert compat.known_logits(stored, narrow).tolist() == [[1.0, 8.0], [5.0, -999.0]]


def test_ragged_logits_are_padded_with_nan():
    samples = [
        (torch.zeros(3), 4, 0, torch.tensor([1.0, 2.0])),
        (torch.ones(3), 5, 0, torch.tensor([3.0, 4.0, 5.0])),
    ]
    x, y, task, logits = compat.collate_ragged_logits(samples)
    assert x.shape == (2, 3) and y.tolist() == [4, 5] and task.tolist() == [0, 0]
    assert (
        logits[:, :2].tolist() == [[1.0, 2.0], [3.0, 4.0]]
        and logits[0, 2].isnan()
        and logits[1, 2] == 5
    )


@pytest.mark.parametrize("head", ["incremental", "growing"])
def test_der_loss_leaves_out_the_columns_that_did_not_exist(benchmark, head):
    arrived = {c: step for step, classes in enumerate(STEPS) for c in classes}

    def by_hand(strategy):
        logits, targets, stored = (
            strategy.mb_output.detach().double(),
            strategy.mb_y.tolist(),
            strategy.batch_logits.double(),
        )
        assert logits.shape == (40, 6)
        rows = range(20)
        square = sum(
            (logits[i, c] - stored[i, c]) ** 2
            for i in rows
            for c in range(6)
            if arrived[c] <= arrived[targets[i]]
        ) / (20 * 6)
        memory = -sum(logits[i].log_softmax(0)[targets[i]] for i in rows) / 20
        new = -sum(logits[i].log_softmax(0)[targets[i]] for i in range(20, 40)) / 20
        return strategy.loss.item(), (new + 0.5 * square + 0.25 * memory).item(), square.item()

    recorder = Recorder(by_hand)
    train(
        strategy_of(compat.RepairedDER, network(head), plugins=[recorder], beta=0.25),
        benchmark.train_stream,
    )
    assert len(recorder.seen) == 6 and all(square > 0 for *_, square in recorder.seen[1:])
    for loss, expected, _ in recorder.seen:
        assert loss == pytest.approx(expected, rel=1e-5)
