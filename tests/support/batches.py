"""Batches for the tests of the losses: the six samples of the reference vector, and any batch at
all.
"""

import numpy as np
import torch
from hypothesis import strategies as st

TEACHER_ROWS = [
    [3, 0, 0.5, 0],
    [0, 2, 0, 0],
    [0, 4, 1, 0],
    [0.5, 0, 2, 0],
    [1, 0, 0, 0],
    [0, 0, 0, 0],
]
STUDENT_ROWS = [
    [2, 0.5, 0, 1, -1, 0],
    [0, 1.5, 0.5, 0, 2, 0],
    [-0.5, 3, 0, 0, 0.5, 0.5],
    [0, 0, 1, 0, 1, 0],
    [0.5, 0, -1, 0, 2.5, 0],
    [1, 0, 0, 0, 0, 0.5],
]


def six_samples(scale=1.0, dtype=torch.float64):
    """(logits, targets, steps): steps {0,1}, {2,3}, {4,5}, the third is current."""
    return (
        torch.tensor(STUDENT_ROWS, dtype=dtype) * scale,
        torch.tensor([0, 1, 1, 2, 4, 4]),
        torch.tensor([0, 0, 1, 1, 2, 2]),
    )


def six_teachers(scale=1.0, dtype=torch.float64):
    return torch.tensor(TEACHER_ROWS, dtype=dtype) * scale


def draw_batch(seed, *, num_steps, per_step, num_samples, unseen=2, scale=3.0, dtype=torch.float64):
    """(logits, targets, teacher_logits, steps): unequal steps, ids in any order, unseen columns
    with large logits in between.
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(1, per_step + 1, num_steps)
    seen = int(sizes.sum())
    ids = random.permutation(seen + unseen)
    steps = np.full(seen + unseen, -1)
    steps[ids[:seen]] = (
        np.repeat(np.arange(num_steps), sizes) * 3 + 1
    )  # any int ≥ 0, not only consecutive
    targets = random.choice(ids[:seen], num_samples)
    logits = random.normal(size=(num_samples, seen + unseen)) * scale
    logits[:, steps < 0] += 50.0
    old = np.flatnonzero((steps >= 0) & (steps < steps.max()))
    width = int(old.max()) + 1 if len(old) else 0
    teacher = random.normal(size=(num_samples, width)) * scale
    teacher[:, steps[:width] < 0] += 50.0
    return (
        torch.tensor(logits, dtype=dtype),
        torch.tensor(targets),
        torch.tensor(teacher, dtype=dtype),
        torch.tensor(steps),
    )


@st.composite
def batches(draw, dtype=torch.float64, min_steps=1):
    return draw_batch(
        draw(st.integers(0, 2**32 - 1)),
        num_steps=draw(st.integers(min_steps, 4)),
        per_step=draw(st.integers(1, 4)),
        num_samples=draw(st.integers(1, 9)),
        unseen=draw(st.integers(0, 3)),
        scale=draw(st.sampled_from([0.1, 3.0, 10.0])),
        dtype=dtype,
    )


def all_losses():
    """name -> loss(logits, targets, teacher_logits, steps), in every variant."""
    from avalanche_hfc.losses import forgetting_compensation, official_hfc, relation_distillation

    return {
        "L_FC": lambda logits, targets, _, steps: forgetting_compensation(logits, targets, steps),
        "L_RD": relation_distillation,
        "L_RD as printed": lambda *batch: relation_distillation(
            *batch, normalise=False, average="seen"
        ),
        "L_RD without prototypes": lambda *batch: relation_distillation(*batch, prototypes=False),
        "official": official_hfc,
        "official, first step": lambda logits, targets, _, steps: official_hfc(
            logits, targets, None, steps
        ),
    }


def value_and_gradient(loss, logits, *others, **options):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, *others, **options)
    value.backward()
    return value.detach(), leaf.grad
