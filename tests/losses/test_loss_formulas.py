"""Every loss against loops written from the equations, in value and gradient, and against numbers
worked out apart from the code.
"""

import inspect
import math

import loops
import pytest
import torch
from batches import all_losses, batches, draw_batch, six_samples, six_teachers, value_and_gradient
from hypothesis import example, given
from hypothesis import strategies as st

from avalanche_hfc.losses import (
    compensation_weights,
    forgetting_compensation,
    official_hfc,
    relation_distillation,
    relation_targets,
    target_gradient,
    weights_from_gradient,
)

LITERAL = {"normalise": False, "average": "seen"}  # L_RD as printed
VARIANTS = [
    {"normalise": normalise, "average": average}
    for normalise in (True, False)
    for average in ("present", "seen")
]
# a single sample, a single class, one sample in many classes, a first step, equal and unequal steps
CASES = {
    "one sample": {"num_steps": 3, "per_step": 2, "num_samples": 1},
    "one class a step": {"num_steps": 4, "per_step": 1, "num_samples": 9},
    "one class in all": {"num_steps": 1, "per_step": 1, "num_samples": 3, "unseen": 0},
    "first step": {"num_steps": 1, "per_step": 4, "num_samples": 6},
    "many classes": {"num_steps": 4, "per_step": 30, "num_samples": 5},
    "many samples": {"num_steps": 2, "per_step": 2, "num_samples": 40},
    "five steps": {"num_steps": 5, "per_step": 5, "num_samples": 30},
}


def lists(*tensors):
    return [t.tolist() for t in tensors]


def assert_agrees(found, expected, rel=1e-12, abs=1e-14):
    assert found[0].item() == pytest.approx(expected[0], rel=rel, abs=abs)
    torch.testing.assert_close(
        found[1].double(),
        torch.tensor(expected[1], dtype=torch.float64),
        rtol=rel * 100,
        atol=max(abs, rel),
    )


def rounded(values):
    """To the six decimals of the reference vector."""
    return [round(v, 6) for v in values.tolist()]


@given(batches())
def test_weights_are_equation_9(batch):
    logits, targets, _, steps = batch
    assert compensation_weights(logits, targets, steps).tolist() == pytest.approx(
        loops.weights(*lists(logits, targets, steps)), rel=1e-11
    )


@given(batches())
def test_target_gradient_is_equation_6_over_the_columns_given(batch):
    logits, targets, _, _ = batch
    expected = [
        1 - loops.softmax(row, range(len(row)))[y]
        for row, y in zip(logits.tolist(), targets.tolist(), strict=True)
    ]
    assert target_gradient(logits, targets).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(batches(), st.integers(0, 2**32 - 1))
def test_weights_follow_from_any_gradient(batch, seed):
    _, targets, _, steps = batch
    gradient = torch.rand(
        len(targets), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    seen, old, _ = loops.split(steps.tolist())
    z, labels = len(old) / len(seen), steps[targets].tolist()
    sharpened = [math.log1p(g**z) for g in gradient.tolist()]
    own = [
        [s for s, label in zip(sharpened, labels, strict=True) if label == mine] for mine in labels
    ]
    expected = [s / (sum(group) / len(group)) for s, group in zip(sharpened, own, strict=True)]
    assert weights_from_gradient(gradient, targets, steps).tolist() == pytest.approx(
        expected, rel=1e-12
    )


@given(batches())
def test_l_fc_is_equation_9_in_value_and_gradient(batch):
    logits, targets, _, steps = batch
    expected = loops.forgetting_compensation(*lists(logits, targets, steps))
    assert_agrees(value_and_gradient(forgetting_compensation, logits, targets, steps), expected)


@given(batches(), st.booleans())
def test_relation_targets_are_the_teachers_softmax_and_the_new_label(batch, normalise):
    _, targets, teacher, steps = batch
    rows = zip(teacher.tolist(), targets.tolist(), strict=True)
    expected = [loops.relation_target(row, y, steps.tolist(), normalise) for row, y in rows]
    found = relation_targets(targets, teacher, steps, normalise=normalise)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@given(batch=batches())
def test_l_rd_is_equation_13_in_value_and_gradient(options, batch):
    expected = loops.relation_distillation(*lists(*batch), **options)
    assert_agrees(value_and_gradient(relation_distillation, *batch, **options), expected)


@given(batches(min_steps=2), st.integers(0, 2**32 - 1))
def test_l_rd_takes_the_class_mean_of_weights_given(batch, seed):
    weights = (
        torch.rand(
            len(batch[1]), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        * 2
    )
    expected = loops.relation_distillation(*lists(*batch), True, "present", w=weights.tolist())
    assert_agrees(value_and_gradient(relation_distillation, *batch, weights=weights), expected)


@given(batches(min_steps=2))
def test_l_rd_without_prototypes_is_the_class_mean_of_the_samples_divergences(batch):
    logits, targets, _, steps = batch
    relation = relation_targets(*batch[1:], normalise=True)
    log_p = logits.masked_fill(steps == -1, -torch.inf).log_softmax(1)
    divergence = [
        sum(y * (math.log(y) - p) for y, p in zip(*rows, strict=True) if y > 0)
        for rows in zip(relation.tolist(), log_p.tolist(), strict=True)
    ]
    weighted = compensation_weights(logits, targets, steps) * torch.tensor(divergence).double()
    expected = sum(weighted[targets == k].mean() for k in targets.unique()) / len(targets.unique())
    found = relation_distillation(*batch, prototypes=False)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@given(batches())
@example(draw_batch(0, num_steps=2, per_step=1, num_samples=1))
def test_official_hfc_is_the_released_loss_in_value_and_gradient(batch):
    teacher = batch[2] if batch[2].shape[1] else None
    expected = loops.official_hfc(
        *[b if b is None else b.tolist() for b in (*batch[:2], teacher, batch[3])]
    )
    assert_agrees(value_and_gradient(official_hfc, *batch[:2], teacher, batch[3]), expected)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_loss_equals_its_loop_at_every_size(case, dtype):
    logits, targets, teacher, steps = draw_batch(7, **CASES[case], dtype=dtype)
    tolerance = {"rel": 1e-12} if dtype == torch.float64 else {"rel": 2e-6, "abs": 1e-6}
    plain = lists(logits, targets, teacher, steps)
    assert_agrees(
        value_and_gradient(forgetting_compensation, logits, targets, steps),
        loops.forgetting_compensation(*plain[:2], plain[3]),
        **tolerance,
    )
    for options in VARIANTS:
        found = value_and_gradient(
            relation_distillation, logits, targets, teacher, steps, **options
        )
        assert_agrees(found, loops.relation_distillation(*plain, **options), **tolerance)
    first = CASES[case]["num_steps"] == 1
    found = value_and_gradient(official_hfc, logits, targets, None if first else teacher, steps)
    assert_agrees(
        found, loops.official_hfc(*plain[:2], None if first else plain[2], plain[3]), **tolerance
    )


def test_golden_gradients_and_weights():
    logits, targets, steps = six_samples()
    assert rounded(target_gradient(logits, targets)) == [
        0.476842,
        0.728703,
        0.227168,
        0.711942,
        0.291678,
        0.880483,
    ]
    assert rounded(compensation_weights(logits, targets, steps)) == [
        1.031175,
        1.283854,
        0.684971,
        1.0,
        0.717454,
        1.282546,
    ]


def test_golden_l_fc():
    value, gradient = value_and_gradient(forgetting_compensation, *six_samples())
    assert round(value.item(), 6) == 1.122656
    assert rounded(gradient[0]) == [-0.081951, 0.020062, 0.012168, 0.033077, 0.004476, 0.012168]


def test_golden_weights_of_four_samples():
    probability = torch.tensor(
        [0.9, 0.5, 0.8, 0.2], dtype=torch.float64
    )  # two of the old step, two of the new; z = 1/2
    weights = weights_from_gradient(
        1 - probability, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])
    )
    assert [round(w, 5) for w in weights.tolist()] == [0.67880, 1.32120, 0.73301, 1.26699]
    logits = torch.stack([probability.log(), (1 - probability).log()], 1)
    logits[2:] = logits[2:].flip(1)
    assert (
        round(
            forgetting_compensation(
                logits, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])
            ).item(),
            5,
        )
        == 0.79750
    )


@pytest.mark.parametrize(
    ("normalise", "average", "expected"),
    [
        (False, "seen", 0.494086),
        (False, "present", 0.741128),
        (True, "seen", 0.238181),
        (True, "present", 0.357272),
    ],
)
def test_golden_l_rd(normalise, average, expected):
    logits, targets, steps = six_samples()
    found = relation_distillation(
        logits, targets, six_teachers(), steps, normalise=normalise, average=average
    )
    assert round(found.item(), 6) == expected


def test_golden_gradient_of_l_rd():
    logits, targets, steps = six_samples()
    _, gradient = value_and_gradient(
        relation_distillation, logits, targets, six_teachers(), steps, **LITERAL
    )
    assert rounded(gradient[1]) == [-0.003334, -0.019706, -0.002867, -0.002310, 0.024853, 0.003363]
    assert rounded(gradient[4]) == [0.003955, -0.000835, -0.001419, -0.000835, -0.011617, 0.010752]


@pytest.mark.parametrize(
    ("class_id", "weight", "divergence"),
    [(0, 1.031175, 0.298753), (1, 0.984412, 0.390593), (2, 1.0, 0.587387), (4, 1.0, 1.684556)],
)
def test_golden_weight_and_divergence_of_each_class(class_id, weight, divergence):
    logits, targets, steps = six_samples()
    rows = targets == class_id
    assert round(compensation_weights(logits, targets, steps)[rows].mean().item(), 6) == weight
    ones = torch.ones(int(rows.sum()), dtype=torch.float64)
    found = relation_distillation(
        logits[rows], targets[rows], six_teachers()[rows], steps, normalise=False, weights=ones
    )
    assert round(found.item(), 6) == divergence


def test_golden_official_hfc():
    logits, targets, steps = six_samples(dtype=torch.float32)
    assert (
        round(official_hfc(logits, targets, six_teachers(dtype=torch.float32), steps).item(), 6)
        == 1.011445
    )


def test_loss_without_an_argument_is_the_normalised_mean_over_present_classes():
    logits, targets, steps = six_samples()
    assert (
        round(relation_distillation(logits, targets, six_teachers(), steps).item(), 6) == 0.357272
    )


def test_weights_and_targets_carry_no_gradient():
    logits, targets, steps = six_samples()
    logits.requires_grad_()
    teacher = six_teachers().requires_grad_()
    gradient = torch.rand(6, dtype=torch.float64, requires_grad=True)
    assert not target_gradient(logits, targets).requires_grad
    assert not compensation_weights(logits, targets, steps).requires_grad
    assert not weights_from_gradient(gradient, targets, steps).requires_grad
    assert not relation_targets(targets, teacher, steps, normalise=True).requires_grad
    (
        relation_distillation(logits, targets, teacher, steps, weights=gradient)
        + official_hfc(logits, targets, teacher, steps)
    ).backward()
    assert teacher.grad is None and gradient.grad is None and logits.grad is not None


@pytest.mark.parametrize("loss", [relation_distillation, official_hfc])
def test_a_teacher_wider_than_the_student_is_refused_with_both_widths(loss):
    logits, targets, steps = six_samples()
    with pytest.raises(
        ValueError,
        match=r"teacher_logits has 7 columns, logits has 6\. The teacher must not know more",
    ):
        loss(logits, targets, torch.zeros(6, 7, dtype=torch.float64), steps)


@pytest.mark.parametrize("label", [-1, 6])
@pytest.mark.parametrize("name", all_losses())
def test_a_label_outside_the_columns_is_an_error(name, label):
    logits, targets, steps = six_samples()
    targets[3] = label
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        all_losses()[name](logits, targets, six_teachers(), steps)


def test_an_unknown_average_is_refused_by_name():
    logits, targets, steps = six_samples()
    unchecked = inspect.unwrap(
        relation_distillation
    )  # as users call it: annotations are not enforced
    with pytest.raises(
        ValueError,
        match=r"^relation_distillation: average must be 'present' or 'seen', got 'batch'\.$",
    ):
        unchecked(logits, targets, six_teachers(), steps, average="batch")
    for average in ("present", "seen"):
        assert unchecked(logits, targets, six_teachers(), steps, average=average) > 0
