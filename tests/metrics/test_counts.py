"""The confusion matrix as its cells: against dense matrices, and at sizes at which none would fit."""

import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from room import at_most_more

from avalanche_hfc.metrics import (
    StepCounts,
    accuracy,
    class_accuracies,
    forgetting,
    forgetting_heterogeneity,
)
from avalanche_hfc.metrics.counts import count
from avalanche_hfc.metrics.plugin_metrics import StepMetric

MANY = 50_000  # classes: a dense matrix needs 20 GB


def dense(targets, predicted, num_columns):
    cells = torch.bincount(targets * num_columns + predicted, minlength=num_columns**2)
    return cells.view(num_columns, num_columns)


def judged(num_images, num_columns, seed=0):
    """Classes, predicted classes and |Γ| of some images; half of the predictions are right."""
    generator = torch.Generator().manual_seed(seed)
    targets, guesses = torch.randint(num_columns, (2, num_images), generator=generator)
    right = torch.rand(num_images, generator=generator) < 0.5
    return targets, guesses.where(~right, targets), torch.rand(num_images, generator=generator)


def as_counts(confusion):
    zeros = torch.zeros(len(confusion), dtype=torch.float64)
    return StepCounts(confusion, None, confusion.sum(1), zeros, zeros)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 10**6))
def test_the_cells_are_those_of_the_dense_matrix(num_images, num_columns, seed):
    targets, predicted, gradient = judged(num_images, num_columns, seed)
    counts, matrix = (
        count(targets, predicted, gradient, num_columns),
        dense(targets, predicted, num_columns),
    )
    assert torch.equal(counts.confusion, matrix) and counts.confusion.dtype == torch.int64
    assert torch.equal(counts.correct, matrix.diagonal())
    assert counts.cells.indices().T.tolist() == matrix.nonzero().tolist()  # in this order
    assert counts.cells.values().tolist() == matrix[matrix > 0].tolist()


@pytest.mark.parametrize(("target", "predicted"), [(0, 3), (3, 0), (0, -1), (-1, 0)])
def test_a_class_that_has_no_column_is_refused(target, predicted):
    with pytest.raises(RuntimeError, match="index"):
        count(torch.tensor([target]), torch.tensor([predicted]), torch.ones(1), 3)


def test_counts_can_be_made_of_a_dense_matrix_and_of_cells_in_any_order_some_of_them_twice():
    matrix = torch.tensor([[4, 0, 1], [0, 0, 0], [2, 0, 3]])
    places = torch.tensor([[2, 0, 2, 0, 0], [2, 2, 0, 0, 0]])
    cells = torch.sparse_coo_tensor(
        places, torch.tensor([3, 1, 2, 1, 3]), (3, 3), check_invariants=True
    )
    total, zeros = torch.tensor([5, 0, 5]), torch.zeros(3, dtype=torch.float64)
    nme = torch.tensor([1, 0, 2])
    for confusion in (matrix, cells, matrix.to_sparse()):
        by_place = StepCounts(confusion, nme, total, zeros, zeros + 1)
        by_name = StepCounts(
            gradient_square_sum=zeros + 1, gradient_sum=zeros, total=total, correct_nme=nme,
            confusion=confusion,
        )  # fmt: skip
        for counts in (by_place, by_name, pickle.loads(pickle.dumps(by_place))):
            assert counts.confusion.tolist() == matrix.tolist()
            assert counts.cells.indices().T.tolist() == [[0, 0], [0, 2], [2, 0], [2, 2]]
            assert counts.correct.tolist() == [4, 0, 3]
            assert counts.correct_nme.tolist() == [1, 0, 2] and counts.total.tolist() == [5, 0, 5]
            assert counts.gradient_sum.tolist() == [0, 0, 0]
            assert counts.gradient_square_sum.tolist() == [1, 1, 1]


def test_a_matrix_can_be_replaced_and_a_count_not_be_assigned():
    counts = as_counts(torch.tensor([[1, 2], [3, 4]]))
    other = replace(counts, confusion=torch.tensor([[0, 3], [7, 0]]))
    assert other.confusion.tolist() == [[0, 3], [7, 0]] and other.correct.tolist() == [0, 0]
    assert other.total.tolist() == counts.total.tolist() == [3, 7]
    for name in ("cells", "confusion", "total"):
        with pytest.raises(AttributeError):
            setattr(counts, name, counts.total)
    counts.confusion[0, 0] = 9  # of a copy
    assert counts.confusion.tolist() == [[1, 2], [3, 4]]


def test_no_matrix_is_made_of_many_classes():
    targets, predicted, gradient = judged(3 * MANY, MANY)
    steps = torch.arange(MANY) % 2
    with at_most_more(2**29):
        counts = count(targets, predicted, gradient, MANY)
        share, fh = accuracy(counts), forgetting_heterogeneity(counts, steps)
        shares, forgotten = class_accuracies(counts), forgetting([counts, counts], steps)
        assert "sparse_coo" in repr(counts)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            _ = counts.confusion  # the bound is one that a dense matrix breaks
    right, total = targets == predicted, torch.bincount(targets, minlength=MANY)
    correct = torch.bincount(targets[right], minlength=MANY)
    assert counts.correct.tolist() == correct.tolist()
    assert counts.cells.values().sum() == 3 * MANY
    assert share == pytest.approx(right.double().mean().item()) and forgotten == 0
    torch.testing.assert_close(shares, correct.double() / total, equal_nan=True)
    deviations = [
        (gradient.double()[of_step] - gradient.double()[of_step].mean()) ** 2
        for of_step in (targets % 2 == 0, targets % 2 == 1)
    ]
    assert fh == pytest.approx(torch.cat(deviations).mean().item())


class Clock:
    train_iterations = 0


class Stream:
    name = "test"


class Strategy:
    """What a metric asks of a strategy."""

    device, clock = torch.device("cpu"), Clock

    def __init__(self, num_classes):
        class Experience:
            current_experience, origin_stream = 0, Stream
            classes_in_this_experience = range(num_classes)

        self.experience = Experience


class Last(StepMetric):
    """Keeps the counts of the step."""

    name = "Last"

    def number(self, counts, steps):
        [self.last] = counts
        return 0.0


def evaluated(metric, strategy, targets, predicted):
    """One evaluation of images with these predictions."""
    metric.before_eval(strategy)
    for targets_now, predicted_now in zip(targets.split(2), predicted.split(2), strict=True):
        width = len(metric._steps)
        strategy.mb_y = targets_now
        strategy.mb_output = torch.zeros(len(targets_now), width)
        strategy.mb_output[torch.arange(len(targets_now)), predicted_now] = 1.0
        metric.after_eval_iteration(strategy)
    metric.after_eval(strategy)
    return metric.last


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_a_later_evaluation_replaces_the_rows_of_its_classes_in_the_matrix(seed, num_columns):
    older, newer = (judged(7, num_columns, seed + k)[:2] for k in (0, 1))
    metric, strategy = Last(), Strategy(num_columns)
    metric.before_training_exp(strategy)
    first = evaluated(metric, strategy, *older)
    assert torch.equal(first.confusion, dense(*older, num_columns))
    both = evaluated(metric, strategy, *newer)
    again = torch.isin(torch.arange(num_columns), newer[0])
    expected = dense(*newer, num_columns)
    expected[~again] = dense(*older, num_columns)[~again]
    assert torch.equal(both.confusion, expected)
    assert torch.equal(both.correct, expected.diagonal())
    assert torch.equal(both.total, expected.sum(1))


def test_no_matrix_is_made_by_the_metrics_of_many_classes():
    metric, strategy = Last(), Strategy(MANY)
    metric.before_training_exp(strategy)
    with at_most_more(2**29):
        evaluated(metric, strategy, torch.tensor([7, 9, 9]), torch.tensor([7, 8, 49_999]))
        counts = evaluated(metric, strategy, torch.tensor([9]), torch.tensor([9]))
    assert counts.cells.indices().T.tolist() == [[7, 7], [9, 9]]
    assert counts.correct.nonzero().flatten().tolist() == [7, 9]
