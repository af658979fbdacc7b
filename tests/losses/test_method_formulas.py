"""The losses of the compared methods that read logits: loops from their definitions, known answers,
and the gradients they state.
"""

import math

import method_loops as by_hand
import pytest
import torch
from batches import batches, draw_batch
from hypothesis import example, given, settings
from loops import sigmoid, softmax, split

from avalanche_hfc.losses import (
    binary_cross_entropy,
    class_weights,
    compression,
    compression_targets,
    cross_entropy,
    divergence_binary_cross_entropy,
    divergence_per_column,
    divided_cross_entropy,
    divided_gradient,
    knowledge_distillation,
    later_binary_cross_entropy,
    mixed_binary_cross_entropy,
    mixed_targets,
    nca,
    nca_gradient,
    separated_cross_entropy,
    separated_distillation,
    separated_gradient,
    separated_relation_distillation,
    sigmoid_gradient,
    sigmoid_relation_distillation,
    weights_from_gradient,
)

few = settings(max_examples=8)
ONE_STEP = example(draw_batch(0, num_steps=1, per_step=4, num_samples=5))
SINGLES = example(draw_batch(0, num_steps=3, per_step=1, num_samples=6))
THREE = example(draw_batch(11, num_steps=3, per_step=3, num_samples=12))


def every_batch(test):
    return few(given(batches())(THREE(ONE_STEP(SINGLES(test)))))


def lists(*tensors):
    return [t.tolist() for t in tensors]


def close(found, expected, rel=1e-10, abs=1e-12):
    assert found.tolist() == pytest.approx(expected, rel=rel, abs=abs)


def rows(logits, targets):
    return zip(logits, targets, strict=True)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


Z, TEACHER = double([2, 1, 0.5, -1], [2, 1, 0.5, -1]), double([0, 1], [0, 1])
Y, STEPS, W = torch.tensor([2, 0]), torch.tensor([0, 0, 1, 1]), double(1.2, 1.2, 0.8, 0.8)


@every_batch
def test_classification_and_its_gradient_are_their_definitions(batch):
    logits, targets, _, steps = batch
    z, y, _, s = lists(*batch)
    seen, _, _ = split(s)
    close(
        cross_entropy(logits, targets, steps),
        [by_hand.cross_entropy(row, k, seen) for row, k in rows(z, y)],
    )
    close(separated_cross_entropy(logits, targets, steps), by_hand.separated_cross_entropy(z, y, s))
    close(separated_gradient(logits, targets, steps), by_hand.separated_gradient(z, y, s))
    close(sigmoid_gradient(logits, targets), [sigmoid(-row[k]) for row, k in rows(z, y)])
    onehot = [[float(c == k) for c in range(len(s))] for k in y]
    expected = [
        by_hand.binary_cross_entropy(row, labels, seen)
        for row, labels in zip(z, onehot, strict=True)
    ]
    close(binary_cross_entropy(logits, targets, steps), expected)


@every_batch
def test_distillation_is_its_definition_and_0_without_old_columns(batch):
    logits, _, teacher, steps = batch
    z, _, known, s = lists(*batch)
    for temperature in (1.0, 2.0, 3.0):
        options = {"temperature": temperature}
        expected = by_hand.knowledge_distillation(z, known, s, temperature)
        close(knowledge_distillation(logits, teacher, steps, **options), expected)
        close(knowledge_distillation(logits, teacher, steps, factor=0.3, **options), 0.3 * expected)
        close(
            divergence_per_column(logits, teacher, steps, **options),
            by_hand.divergence_per_column(z, known, s, temperature),
        )
        close(
            separated_distillation(logits, teacher, steps, **options),
            by_hand.separated_distillation(z, known, s, temperature),
        )


@every_batch
def test_icarl_is_bce_with_the_teacher_in_the_old_columns(batch):
    logits, targets, teacher, steps = batch
    z, y, known, s = lists(*batch)
    seen, _, _ = split(s)
    labels = by_hand.mixed_targets(y, known, s)
    close(mixed_targets(targets, teacher, steps).flatten(), [v for row in labels for v in row])
    expected = [
        by_hand.binary_cross_entropy(row, q, seen) for row, q in zip(z, labels, strict=True)
    ]
    close(mixed_binary_cross_entropy(logits, targets, teacher, steps), expected)
    close(
        mixed_binary_cross_entropy(logits, targets, teacher, steps, divisor=100),
        [v * len(seen) / 100 for v in expected],
    )
    later = [
        sum(math.log1p(math.exp(row[c])) for c in range(len(s)) if s[c] < 0) / 100 for row in z
    ]
    close(later_binary_cross_entropy(logits, steps, 100), later)
    first = mixed_binary_cross_entropy(logits, targets, None, steps, divisor=1)
    torch.testing.assert_close(
        first, binary_cross_entropy(logits, targets, steps) * len(seen), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("average", ["present", "seen"])
@every_batch
def test_relation_distillation_of_each_host_is_its_definition(average, batch):
    z, y, known, s = lists(*batch)
    weights = torch.linspace(0.2, 1.8, len(y), dtype=torch.float64)
    for name in ("sigmoid_relation_distillation", "separated_relation_distillation"):
        loss, expected = globals()[name], getattr(by_hand, name)
        close(loss(*batch, average=average), expected(z, y, known, s, average), rel=1e-9)
        close(
            loss(*batch, average=average, weights=weights),
            expected(z, y, known, s, average, weights.tolist()),
            rel=1e-9,
        )


def test_relation_distillation_averages_over_present_classes_by_default():
    batch = draw_batch(3, num_steps=3, per_step=4, num_samples=5)
    for loss in (sigmoid_relation_distillation, separated_relation_distillation):
        assert loss(*batch) == loss(*batch, average="present") != loss(*batch, average="seen")


@pytest.mark.parametrize("form", ["code", "paper"])
@every_batch
def test_nca_is_its_definition(form, batch):
    logits, targets, _, steps = batch
    z, y, _, s = lists(*batch)
    seen, _, _ = split(s)
    for margin, scale in ((0.6, 1.0), (0.2, 3.0)):
        options = {
            "form": form,
            "margin": margin,
            "scale": torch.tensor(scale, dtype=torch.float64),
        }
        close(
            nca(logits, targets, steps, **options),
            [by_hand.nca(row, k, seen, form, margin, scale) for row, k in rows(z, y)],
            rel=1e-9,
        )


@every_batch
def test_nca_gradient_is_what_autograd_finds_at_the_target(batch):
    logits, targets, _, steps = batch
    logits = logits / 3
    for form in ("code", "paper"):
        for margin, scale in ((0.6, 1.0), (0.2, 3.0)):
            leaf = logits.clone().requires_grad_()
            nca(leaf, targets, steps, form=form, margin=margin, scale=scale).sum().backward()
            at_target = leaf.grad.gather(1, targets[:, None])[:, 0]
            found = nca_gradient(logits, targets, steps, form=form, margin=margin, scale=scale)
            torch.testing.assert_close(found, -at_target, rtol=1e-9, atol=1e-12)
    z, y, _, s = lists(logits, targets, targets, steps)
    seen, _, _ = split(s)
    close(
        nca_gradient(logits, targets, steps), [1 - softmax(row, seen)[k] for row, k in rows(z, y)]
    )


@pytest.mark.parametrize(
    ("lead", "options", "active"),
    [
        (0.59, {}, 1),
        (0.61, {}, 0),
        (1.19, {"scale": 2.0}, 1),
        (1.21, {"scale": 2.0}, 0),
        (0.89, {"margin": 0.9}, 1),
    ],
)
def test_the_hinge_of_nca_ends_where_the_lead_is_the_scaled_margin(lead, options, active):
    batch = double([lead, 0.0]), torch.tensor([0]), torch.tensor([0, 0])
    assert (
        nca_gradient(*batch, form="paper", **options)
        == active
        == (nca(*batch, form="paper", **options) > 0)
    )


def test_a_learned_scale_of_nca_gets_the_margins_gradient():
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    nca(Z[:1], Y[:1], STEPS, form="paper", margin=0.3, scale=scale).sum().backward()
    assert scale.grad.item() == pytest.approx(0.3)
    assert nca_gradient(Z[:1], Y[:1], STEPS, form="paper", scale=scale).requires_grad is False


@every_batch
def test_nca_is_cross_entropy_where_the_target_is_largest_and_less_than_ln_2_above_elsewhere(batch):
    logits, targets, _, steps = batch
    excess = nca(logits, targets, steps) - cross_entropy(logits, targets, steps)
    assert (excess > -1e-12).all() and (excess < math.log(2) + 1e-12).all()
    best = logits.masked_fill(steps < 0, -torch.inf).argmax(1)
    gradients = []
    for loss in (nca, cross_entropy):
        leaf = logits.clone().requires_grad_()
        loss(leaf, best, steps).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(
        nca(logits, best, steps), cross_entropy(logits, best, steps), rtol=1e-12, atol=1e-14
    )
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-14)


@every_batch
def test_foster_is_its_definition(batch):
    logits, targets, _, steps = batch
    z, y, _, s = lists(*batch)
    seen, _, _ = split(s)
    counts = torch.arange(len(s)) * 7 % 30 + 1
    teacher = logits.flip(0) - 1
    for beta in (0.0, 0.9, 0.97):
        weights = class_weights(counts.double(), steps, beta=beta)
        close(weights, by_hand.class_weights(counts.tolist(), s, beta))
        divided = [[v / w for v, w in zip(row, weights.tolist(), strict=True)] for row in z]
        close(
            divided_cross_entropy(logits, targets, steps, weights),
            [by_hand.cross_entropy(row, k, seen) for row, k in rows(divided, y)],
        )
        close(
            divided_gradient(logits, targets, steps, weights),
            [1 - softmax(row, seen)[k] for row, k in rows(divided, y)],
            abs=1e-10,
        )
        expected = by_hand.compression(z, teacher.tolist(), s, weights.tolist(), 2.0)
        close(compression(logits, teacher, steps, weights), expected)
        close(
            compression(logits, teacher, steps, weights, temperature=3.0),
            by_hand.compression(z, teacher.tolist(), s, weights.tolist(), 3.0),
        )


def test_compression_targets_sum_to_1_over_the_columns_seen_and_follow_the_weights():
    logits, _, _, steps = draw_batch(11, num_steps=3, per_step=3, num_samples=12)
    seen = steps >= 0
    weights = torch.linspace(0.5, 2.0, len(steps), dtype=torch.float64)
    found = compression_targets(logits, steps, weights)
    plain = compression_targets(logits, steps, torch.ones_like(weights))
    torch.testing.assert_close(found.exp()[:, seen].sum(1), torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(plain[:, seen], (logits[:, seen] / 2).log_softmax(1))
    ratio = (found - plain)[:, seen] - weights.log()[seen]
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    assert not found[:, ~seen].any()


def test_a_class_without_a_sample_counts_as_one_with_one():
    steps = torch.tensor([0, 0, 1, -1])
    found = class_weights(torch.tensor([0, 5, 9, 0]), steps, beta=0.9)
    assert (
        torch.equal(found, class_weights(torch.tensor([1, 5, 9, 70]), steps, beta=0.9))
        and found[3] == 1
    )
    assert found[:3].mean().item() == pytest.approx(1, rel=1e-6) and found[0] > found[1] > found[2]


def test_the_divergence_head_calls_every_old_class_0_and_new_ones_by_their_order():
    steps, targets = torch.tensor([1, 0, -1, 1, 1, 0]), torch.tensor([0, 1, 3, 4, 5])
    logits = torch.linspace(-2, 3, 20, dtype=torch.float64).reshape(5, 4)
    labels = [1, 0, 2, 3, 0]
    expected = [
        by_hand.binary_cross_entropy(row, [float(c == k) for c in range(4)], range(4))
        for row, k in rows(logits.tolist(), labels)
    ]
    close(divergence_binary_cross_entropy(logits, targets, steps), expected)
    single = torch.tensor([0, 0, 1])
    close(
        divergence_binary_cross_entropy(double([0.0, 0.0]), torch.tensor([2]), single),
        [math.log(2)],
    )


def test_ssil_sends_no_gradient_between_the_blocks():
    logits, targets, teacher, steps = draw_batch(11, num_steps=3, per_step=3, num_samples=12)
    leaf = logits.clone().requires_grad_()
    separated_cross_entropy(leaf, targets, steps).sum().backward()
    old, is_old = (steps >= 0) & (steps < steps.max()), (steps < steps.max())[targets]
    assert 0 < is_old.sum() < 12
    assert (
        not leaf.grad[is_old][:, ~old].any()
        and not leaf.grad[~is_old][:, steps < steps.max()].any()
    )
    torch.testing.assert_close(
        leaf.grad.sum(1), torch.zeros(12, dtype=torch.float64), rtol=0, atol=1e-12
    )
    leaf.grad = None
    separated_distillation(leaf, teacher, steps).backward()
    assert not leaf.grad[:, ~old].any()
    for step in steps[old].unique():  # a softmax of its own: the gradients of a step cancel
        torch.testing.assert_close(
            leaf.grad[:, steps == step].sum(1),
            torch.zeros(12, dtype=torch.float64),
            rtol=0,
            atol=1e-12,
        )


@pytest.mark.parametrize("name", ["separated_distillation", "separated_relation_distillation"])
def test_the_level_of_a_step_does_not_matter_to_a_separated_softmax(name):
    """Steps far apart: a shift by another step's maximum would leave a sum of 0."""
    steps, targets = torch.tensor([2, 1, 1, 0, 0, 2]), torch.tensor([0, 1, 3, 5])
    logits, teacher = (
        torch.linspace(-1, 1, 24).reshape(4, 6).sin(),
        torch.linspace(2, 3, 24).reshape(4, 6).cos(),
    )
    batch = (targets,) if "relation" in name else ()
    loss = globals()[name]
    expected = loss(logits, *batch, teacher, steps)
    for level in (double(-2000, 0, 4000), double(4000, -2000, 0)):
        torch.testing.assert_close(
            loss(logits + level[steps], *batch, teacher - level[steps], steps).float(), expected
        )


def test_ssil_never_learns_the_only_class_of_a_step():
    steps, targets = torch.tensor([0, 0, 1]), torch.tensor([2, 2, 0])
    logits = double([1.0, 2, 3], [0, 0, -5], [1, 0, 2]).requires_grad_()
    loss = separated_cross_entropy(logits, targets, steps)
    loss.sum().backward()
    gradient = separated_gradient(logits, targets, steps)
    assert loss[:2].tolist() == [0, 0] == gradient[:2].tolist() and not logits.grad[:2].any()
    assert weights_from_gradient(gradient, targets, steps).tolist() == [1, 1, 1]


def test_columns_to_come_are_trained_towards_0_in_full_precision():
    torch.manual_seed(0)
    logits, steps = torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, -1, 1, -1, -1])
    expected = [
        -sum(math.log(1 - 1 / (1 + math.exp(-row[c]))) for c in (1, 3, 4)) / 7
        for row in logits.tolist()
    ]
    close(later_binary_cross_entropy(logits, steps, 7), expected)
    half = later_binary_cross_entropy(logits.bfloat16(), steps, 7)
    assert half.equal(later_binary_cross_entropy(logits.bfloat16().float(), steps, 7))
