"""The confusion matrix as its cells: against dense matrices, and at sizes at which none would fit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from room import at_most_more

from avalanche_hfc.metrics import (
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
