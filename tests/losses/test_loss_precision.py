"""The losses keep their precision: small numbers in, autocast around, logits far apart."""

import math

import pytest
import torch
from batches import all_losses, draw_batch, six_samples, six_teachers, value_and_gradient
from watches import SeesAutocast

from avalanche_hfc.losses import (
    compensation_weights,
    relation_distillation,
    relation_targets,
    target_gradient,
    weights_from_gradient,
)

LOSSES = all_losses()
every_loss = pytest.mark.parametrize("name", LOSSES)
SMALL = [torch.bfloat16, torch.float16]
DTYPES = [*SMALL, torch.float32, torch.float64]


@every_loss
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4], ids=["flat", "usual", "saturated"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_loss_is_float32_as_exact_as_float64_and_finite(name, scale, dtype):
    logits, targets, steps = six_samples(scale, dtype)
    teacher = six_teachers(scale, dtype)
    value, gradient = value_and_gradient(LOSSES[name], logits, targets, teacher, steps)
    exact, exact_gradient = value_and_gradient(
        LOSSES[name], logits.double(), targets, teacher.double(), steps
    )
    assert value.dtype == torch.float32 and value.isfinite() and gradient.isfinite().all()
    torch.testing.assert_close(value.double(), exact, rtol=3e-6, atol=1e-7)
    assert gradient.dtype == dtype
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(
        gradient.double(),
        exact_gradient,
        rtol=4 * rounding,
        atol=2 * rounding * exact_gradient.abs().max().item(),
    )


@every_loss
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_loss_is_at_least_float32_whichever_of_its_inputs_is_small(name, dtype):
    logits, targets, steps = six_samples()
    expected = torch.promote_types(dtype, torch.float32)
    for teacher_dtype in DTYPES:
        assert (
            LOSSES[name](logits.to(dtype), targets, six_teachers(dtype=teacher_dtype), steps).dtype
            == expected
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_and_targets_are_at_least_float32(dtype):
    logits, targets, steps = six_samples(dtype=dtype)
    expected = torch.promote_types(dtype, torch.float32)
    assert target_gradient(logits, targets).dtype == expected
    assert compensation_weights(logits, targets, steps).dtype == expected
    assert weights_from_gradient(torch.rand(6).to(dtype), targets, steps).dtype == expected
    assert (
        relation_targets(targets, six_teachers(dtype=dtype), steps, normalise=True).dtype
        == expected
    )


@every_loss
def test_autocast_around_a_loss_changes_no_bit_and_reaches_no_operation(name):
    batch = draw_batch(2, num_steps=3, per_step=3, num_samples=9, dtype=torch.float32)
    expected = value_and_gradient(LOSSES[name], *batch)
    with torch.autocast("cpu", dtype=torch.bfloat16), SeesAutocast() as watch:
        leaf = batch[0].clone().requires_grad_()
        watch.inside.clear()
        value = LOSSES[name](leaf, *batch[1:])
        assert not watch.inside
        leaf @ leaf.T
        assert watch.inside  # the watch works, and the caller's autocast is back
    value.backward()
    assert torch.equal(value, expected[0]) and torch.equal(leaf.grad, expected[1])


@pytest.mark.parametrize("margin", [5.0, 17.0, 40.0, 80.0])
def test_target_gradient_is_exact_where_one_minus_p_is_zero(margin):
    logits = torch.tensor([[margin, 0.0], [0.0, margin]])
    found = target_gradient(logits, torch.tensor([0, 1])).tolist()
    assert found == pytest.approx([1 / (1 + math.exp(margin))] * 2, rel=1e-5)


def test_weights_of_tiny_gradients_keep_their_ratio():
    """log(1 + x) would give 0 for both."""
    gradient = torch.tensor([1e-12, 3e-12])
    weights = weights_from_gradient(
        gradient, torch.tensor([0, 0]), torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    )
    high = 3**0.9
    assert weights.tolist() == pytest.approx([2 / (1 + high), 2 * high / (1 + high)], rel=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (-1e4, -1e4, 1e4),
        (-1e4, -200.0, 200 + math.log(2)),
        (-200.0, -1e4, 200 + math.log(2)),
        (-150.0, -150.0, 150.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_prototype_far_below_the_smallest_number_keeps_its_logarithm(
    first, second, expected, dtype
):
    """Both samples of an old class are sure of the new one; the teacher knows only the old: KL =
    -log P̃(old).
    """
    logits = torch.tensor([[first, 0.0], [second, 0.0]], dtype=dtype)
    teacher = torch.zeros(2, 1, dtype=dtype)
    value, gradient = value_and_gradient(
        relation_distillation, logits, torch.tensor([0, 0]), teacher, torch.tensor([0, 1])
    )
    assert value.item() == pytest.approx(expected, rel=1e-6)
    total = gradient.sum(0).tolist()
    assert total == pytest.approx(
        [-1.0, 1.0], rel=1e-5
    )  # the sample that holds the mass is pulled with full strength
