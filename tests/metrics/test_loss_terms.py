"""Loss terms as Avalanche metrics: the means of a loop over the batches, phase by phase."""

from types import SimpleNamespace

import pytest
import torch

from avalanche_hfc.metrics import loss_terms_metrics


def batch(total, **terms):
    """A strategy at the end of a batch."""
    tensors = {name: torch.tensor(value) for name, value in terms.items()}
    return SimpleNamespace(
        loss_terms=tensors,
        loss=torch.tensor(total),
        phase="tune",
        clock=SimpleNamespace(train_iterations=7),
    )


def told(values):
    return {value.name: (pytest.approx(value.value), value.x_plot) for value in values}


def test_a_term_is_averaged_over_the_batches_of_the_epoch_that_had_it():
    (metric,) = loss_terms_metrics()
    assert str(metric) == "Loss_Terms" and metric.result() == {}
    for epoch, batches in enumerate(
        ([batch(3.0, a=1.0, b=2.0), batch(5.0, a=4.0)], [batch(1.5, a=1.5)])
    ):
        metric.before_training_epoch(None)
        for one in batches:
            metric.after_training_iteration(one)
        expected = [{"total": 4.0, "a": 2.5, "b": 2.0}, {"total": 1.5, "a": 1.5}][epoch]
        assert metric.result() == pytest.approx(expected)
        assert told(metric.after_training_epoch(batches[-1])) == {
            f"Loss_Term_{name}/train_phase": (value, 7) for name, value in expected.items()
        }


def test_the_total_of_a_later_phase_is_the_sum_of_its_terms():
    (metric,) = loss_terms_metrics()
    metric.after_training_iteration(batch(9.0, a=9.0))
    metric.before_phase_epoch(None)
    for one in (batch(-1.0, a=1.0, b=0.25), batch(-1.0, a=2.0, b=0.75)):
        metric.after_phase_iteration(one)
    expected = {"total": 2.0, "a": 1.5, "b": 0.5}
    assert metric.result() == pytest.approx(expected)
    assert told(metric.after_phase_epoch(one)) == {
        f"Loss_Term_{name}/tune_phase": (value, 7) for name, value in expected.items()
    }


def test_a_strategy_without_terms_has_its_total_and_sums_keep_many_small_numbers():
    (metric,) = loss_terms_metrics()
    strategy = SimpleNamespace(loss=torch.tensor(1e-8, requires_grad=True))
    metric.after_training_iteration(SimpleNamespace(loss=torch.tensor(1.0, requires_grad=True)))
    for _ in range(3):
        metric.after_training_iteration(strategy)
    assert metric.result() == {"total": pytest.approx((1 + 3e-8) / 4, rel=1e-10)}
    assert not metric._sums["total"].requires_grad  # no graph is kept alive
