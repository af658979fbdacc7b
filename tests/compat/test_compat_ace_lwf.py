"""ER_ACE's criterion and LwF's teacher.

A test named `shipped_…` fails when Avalanche mends the defect: then the repair can go.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from avalanche.training import ACECriterion
from avalanche.training.supervised import LwF
from compat_hosts import Recorder, buffers, network, same, strategy_of, train

from avalanche_hfc import compat

# ER_ACE


def test_shipped_er_ace_criterion_is_nan_on_saturated_logits():
    logits, targets = torch.tensor([[0.0, 200.0, 0.0]]), torch.tensor([1])
    both = logits.repeat(2, 1), torch.tensor([0, 1])
    assert ACECriterion()(*both, logits, targets).isnan()


@pytest.mark.parametrize("scale", [1.0, 1e4], ids=["usual", "saturated"])
def test_ace_criterion_is_half_ce_on_the_batch_columns_and_half_ce_on_memory(scale):
    torch.manual_seed(0)
    logits, memory = (
        scale * torch.randn(6, 7, dtype=torch.double),
        scale * torch.randn(4, 7, dtype=torch.double),
    )
    targets, memory_targets = torch.tensor([5, 2, 2, 5, 6, 2]), torch.tensor([0, 6, 1, 3])
    logits.requires_grad_()

    def mean_ce(rows, labels, columns):
        total = 0.0
        for row, label in zip(rows, labels, strict=True):
            top = max(row[c] for c in columns)
            total += top + math.log(sum(math.exp(row[c] - top) for c in columns)) - row[label]
        return total / len(rows)

    expected = (
        mean_ce(logits.tolist(), targets.tolist(), {2, 5, 6})
        + mean_ce(memory.tolist(), memory_targets.tolist(), range(7))
    ) / 2
    value = compat.RepairedACECriterion()(logits, targets, memory, memory_targets)
    value.backward()
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert (
        logits.grad.isfinite().all()
        and (logits.grad[:, [0, 1, 3, 4]] == 0).all()
        and (logits.grad[:, [2, 5, 6]] != 0).any()
    )
    if scale == 1:
        assert ACECriterion()(logits, targets, memory, memory_targets).item() == pytest.approx(
            expected, rel=1e-12
        )


def test_er_ace_trains_with_the_repaired_criterion(benchmark):
    expected = []

    def look(strategy):
        assert strategy.mb_buffer_out.shape == (20, 6)
        parts = strategy.mb_output, strategy.mb_y, strategy.mb_buffer_out, strategy.mb_buffer_y
        expected.append(ACECriterion()(*parts).item())
        saturated = 1e4 * parts[0], parts[1], 1e4 * parts[2], parts[3]
        assert ACECriterion()(*saturated).isnan() and strategy.ace_criterion(*saturated).isfinite()
        return strategy.loss.item()

    recorder = Recorder(look)
    train(strategy_of(compat.RepairedER_ACE, network(), plugins=[recorder]), benchmark.train_stream)
    assert len(recorder.seen) == 6 and recorder.seen == pytest.approx(expected, rel=1e-5)


# LwF


@pytest.mark.parametrize(
    ("kind", "drifts"), [(LwF, True), (compat.RepairedLwF, False)], ids=["shipped", "repaired"]
)
def test_only_the_shipped_lwf_teacher_drifts_in_train_mode(benchmark, kind, drifts):
    strategy = train(strategy_of(kind, network(norm=True)), benchmark.train_stream[:1])
    (lwf,) = [plugin.lwf for plugin in strategy.plugins if hasattr(plugin, "lwf")]
    teacher, before = lwf.prev_model, buffers(lwf.prev_model)
    assert all(module.training is drifts for module in teacher.modules())
    assert all(parameter.requires_grad is drifts for parameter in teacher.parameters())
    strategy.train(benchmark.train_stream[1])
    assert same(before, buffers(teacher)) is not drifts and lwf.prev_model is not teacher


def test_lwf_adds_the_divergence_from_the_teacher_in_eval_mode(benchmark):
    strategy = strategy_of(compat.RepairedLwF, network(norm=True))
    (plugin,) = [
        plugin for plugin in strategy.plugins if isinstance(plugin, compat.RepairedLwFPlugin)
    ]

    def by_hand(strategy):
        with torch.no_grad():
            old = (plugin.lwf.prev_model(strategy.mb_x)[:, [0, 1, 3, 5]] / 2).log_softmax(1)
        new = (strategy.mb_output.detach()[:, [0, 1, 3, 5]] / 2).log_softmax(1)
        classification = F.cross_entropy(strategy.mb_output.detach(), strategy.mb_y)
        return strategy.loss.item(), (
            classification + (old.exp() * (old - new)).sum(1).mean()
        ).item()

    recorder = Recorder(by_hand)
    strategy.plugins.insert(strategy.plugins.index(plugin) + 1, recorder)
    train(strategy, benchmark.train_stream)
    assert len(recorder.seen) == 6
    for loss, expected in recorder.seen:
        assert loss == pytest.approx(expected, rel=1e-5)
