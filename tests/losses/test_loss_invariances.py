"""What the losses promise whatever the batch: limits, symmetries, and columns and steps that must
not matter.
"""

import pytest
import torch
import torch.nn.functional as F
from batches import all_losses, batches, draw_batch, six_samples, six_teachers, value_and_gradient
from hypothesis import given
from hypothesis import strategies as st

from avalanche_hfc.losses import (
    compensation_weights,
    forgetting_compensation,
    relation_distillation,
    weights_from_gradient,
)

LOSSES = all_losses()
every_loss = pytest.mark.parametrize("name", LOSSES)
several = batches(min_steps=2)


def shuffled(count, seed):
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=1e-13)


def in_the_first_step(batch):
    """The batch with every seen class in one step, and no unseen column."""
    logits, targets, teacher, steps = batch
    return logits, targets, teacher, torch.zeros_like(steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize(
    "num_samples", [1, 7, 31, 43, 51]
)  # a mean of 31, 43 or 51 equal numbers is not that number
def test_the_first_step_is_cross_entropy_bitwise(dtype, scale, num_samples):
    drawn = draw_batch(
        3, num_steps=3, per_step=4, num_samples=num_samples, scale=scale, dtype=dtype
    )
    logits, targets, _, steps = in_the_first_step(drawn)
    assert torch.equal(
        compensation_weights(logits, targets, steps), torch.ones(num_samples, dtype=dtype)
    )
    expected = F.cross_entropy(logits, targets, reduction="none").mean()
    assert torch.equal(forgetting_compensation(logits, targets, steps), expected)


@given(batches())
def test_l_rd_and_its_gradient_are_zero_in_the_first_step(batch):
    value, gradient = value_and_gradient(relation_distillation, *in_the_first_step(batch))
    assert value == 0 and not gradient.any()


@given(batches())
def test_weights_have_mean_one_in_every_step(batch):
    logits, targets, _, steps = batch
    weights = compensation_weights(logits, targets, steps)
    for step in steps[targets].unique():
        assert weights[steps[targets] == step].mean().item() == pytest.approx(1, rel=1e-12)


@every_loss
@given(batch=several, seed=st.integers(0, 2**32 - 1))
def test_the_order_of_samples_does_not_matter(name, batch, seed):
    logits, targets, teacher, steps = batch
    order = shuffled(len(targets), seed)
    value, gradient = value_and_gradient(LOSSES[name], *batch)
    assert_same(
        value_and_gradient(LOSSES[name], logits[order], targets[order], teacher[order], steps),
        (value, gradient[order]),
    )


@every_loss
@given(batch=several, seed=st.integers(0, 2**32 - 1))
def test_the_ids_of_classes_do_not_matter(name, batch, seed):
    logits, targets, teacher, steps = batch
    order = shuffled(len(steps), seed)
    renamed = order.argsort()[targets]
    teacher = F.pad(teacher, (0, len(steps) - teacher.shape[1]))
    value, gradient = value_and_gradient(LOSSES[name], *batch)
    assert_same(
        value_and_gradient(
            LOSSES[name], logits[:, order], renamed, teacher[:, order], steps[order]
        ),
        (value, gradient[:, order]),
    )


@every_loss
@given(batch=several, gap=st.integers(1, 1000), start=st.integers(0, 5))
def test_only_the_order_of_steps_matters(name, batch, gap, start):
    steps = batch[3]
    renumbered = torch.where(steps < 0, steps, steps * gap + start)
    assert_same(
        value_and_gradient(LOSSES[name], *batch[:3], renumbered),
        value_and_gradient(LOSSES[name], *batch),
    )


@every_loss
@pytest.mark.parametrize("filler", [-1e30, 0.0, 1e30, torch.inf, torch.nan], ids=str)
def test_unseen_columns_never_matter_and_get_no_gradient(name, filler):
    logits, targets, teacher, steps = draw_batch(
        1, num_steps=3, per_step=3, num_samples=8, unseen=3
    )
    expected = value_and_gradient(LOSSES[name], logits, targets, teacher, steps)
    unseen = steps < 0
    assert unseen.sum() == 3 and unseen[: teacher.shape[1]].any()
    logits[:, unseen] = filler
    teacher[:, unseen[: teacher.shape[1]]] = filler
    value, gradient = value_and_gradient(LOSSES[name], logits, targets, teacher, steps)
    assert torch.equal(value, expected[0]) and torch.equal(gradient, expected[1])
    assert not gradient[:, unseen].any() and gradient[:, ~unseen].all()


@pytest.mark.parametrize("name", ["L_RD", "L_RD as printed", "official"])
def test_the_teachers_new_columns_do_not_matter(name):
    logits, targets, steps = six_samples()
    narrow = LOSSES[name](logits, targets, six_teachers(), steps)
    for filler in (-1e30, 50.0, torch.nan):
        wide = F.pad(six_teachers(), (0, 2), value=filler)
        assert torch.equal(LOSSES[name](logits, targets, wide, steps), narrow)


def test_a_saturated_step_keeps_weight_1_and_leaves_the_others_alone():
    targets, steps = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 1])
    gradient = torch.tensor([0.0, 0.0, 0.9, 0.1, 0.5])
    weights = weights_from_gradient(gradient, targets, steps)
    assert weights[:2].tolist() == [1, 1]
    assert torch.equal(weights[2:], weights_from_gradient(gradient[2:], targets[2:], steps))
    assert weights[2] > weights[4] > weights[3]


@every_loss
@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_saturated_logits_give_finite_values_and_weights(name, scale):
    logits, targets, steps = six_samples(scale, torch.float32)
    logits[0, 0] += 3 * scale  # right and sure: |Γ| = 0 in float32
    value, gradient = value_and_gradient(
        LOSSES[name], logits, targets, six_teachers(scale, torch.float32), steps
    )
    assert value.isfinite() and gradient.isfinite().all() and gradient.any()


@given(several)
def test_a_sample_alone_in_its_step_has_weight_1(batch):
    logits, targets, _, steps = batch
    weights = compensation_weights(logits, targets, steps)
    for i, step in enumerate(steps[targets]):
        if (steps[targets] == step).sum() == 1:
            assert weights[i] == 1


@every_loss
@pytest.mark.parametrize("which", ["old", "new"])
def test_a_batch_of_only_old_or_only_new_samples_is_finite_and_leaves_its_weights(name, which):
    logits, targets, teacher, steps = draw_batch(11, num_steps=3, per_step=3, num_samples=12)
    old = steps[targets] < steps.max()
    rows = old if which == "old" else ~old
    assert 1 < rows.sum() < 12
    value, gradient = value_and_gradient(
        LOSSES[name], logits[rows], targets[rows], teacher[rows], steps
    )
    assert value > 0 and gradient.isfinite().all()
    weights = compensation_weights(logits, targets, steps)
    torch.testing.assert_close(
        compensation_weights(logits[rows], targets[rows], steps), weights[rows], rtol=1e-12, atol=0
    )
