"""|Γ| of the softmax over the columns seen, and the objective by which BiC fits its pair: loops
from their definitions.
"""

import math

import pytest
import torch
from batches import draw_batch

from avalanche_hfc.losses.classification import corrected_objective, cross_entropy, softmax_gradient

BATCH = draw_batch(5, num_steps=3, per_step=3, num_samples=12)


def probability(row, label, steps):
    """softmax_S(z)_y, one exponential at a time."""
    total = sum(math.exp(value) for value, step in zip(row, steps, strict=True) if step >= 0)
    return math.exp(row[label]) / total


def by_sample(logits, targets, steps):
    return [
        probability(row, label, steps.tolist())
        for row, label in zip(logits.tolist(), targets.tolist(), strict=True)
    ]


def test_the_softmax_gradient_is_one_less_the_probability_among_the_columns_seen():
    logits, targets, _, steps = BATCH
    assert (steps < 0).any()
    found = softmax_gradient(logits.requires_grad_(), targets, steps)
    assert (
        found.tolist()
        == pytest.approx([1 - p for p in by_sample(logits, targets, steps)], rel=1e-10)
        and not found.requires_grad
    )


@pytest.mark.parametrize("beta", [0.0, 0.7, -3.0])
def test_bics_objective_is_the_mean_cross_entropy_and_a_twentieth_of_the_square_of_beta(beta):
    logits, targets, _, steps = BATCH
    logits, pair = (
        logits.detach().clone().requires_grad_(),
        torch.tensor(beta, dtype=torch.float64, requires_grad=True),
    )
    each = [-math.log(p) for p in by_sample(logits, targets, steps)]
    assert cross_entropy(logits, targets, steps).tolist() == pytest.approx(each, rel=1e-10)
    objective = corrected_objective(logits, targets, steps, pair)
    assert objective.item() == pytest.approx(sum(each) / len(each) + beta * beta / 20, rel=1e-10)
    objective.backward()
    assert pair.grad.item() == pytest.approx(beta / 10) and logits.grad.abs().sum() > 0
