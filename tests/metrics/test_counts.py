"""The confusion matrix as its cells: against dense matrices, and at sizes at which none would fit."""

import pickle

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
from avalanche_hfc.metrics.evaluation import count
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


class Last(StepMetric):
    """Keeps the counts of the step."""

    name = "Last"

    def number(self, counts, steps):
        [self.last] = counts
        return 0.0
