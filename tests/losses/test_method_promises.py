"""What every loss of the compared methods on logits promises: blind to order, names and unseen
columns, exact, on its device.
"""

import pytest
import torch
import torch.nn.functional as F
from batches import draw_batch, six_samples, six_teachers
from torch._subclasses.fake_tensor import FakeTensorMode
from watches import RefusesHostReads, SeesAutocast, needs_fake_cuda

from avalanche_hfc import losses as L


def weights_like(steps, logits):
    """FOSTER's weights, a function of the step so that they follow a class that is renamed."""
    return (1 + 0.5 * (steps == steps.amax()) + 0.25 * (steps == 1)).to(
        torch.promote_types(logits.dtype, torch.float32)
    )


LOSSES = {
    "cross-entropy": lambda z, y, t, s: L.cross_entropy(z, y, s),
    "distillation": lambda z, y, t, s: L.knowledge_distillation(z, t, s),
    "distillation, T = 3": lambda z, y, t, s: L.knowledge_distillation(z, t, s, temperature=3.0),
    "divergence": lambda z, y, t, s: L.divergence_per_column(z, t, s),
    "divergence, T = 3": lambda z, y, t, s: L.divergence_per_column(z, t, s, temperature=3.0),
    "icarl": L.mixed_binary_cross_entropy,
    "icarl, all classes": lambda *batch: L.mixed_binary_cross_entropy(*batch, divisor=100),
    "bce": lambda z, y, t, s: L.binary_cross_entropy(z, y, s),
    "RD sigmoid": L.sigmoid_relation_distillation,
    "separated": lambda z, y, t, s: L.separated_cross_entropy(z, y, s),
    "separated distillation": lambda z, y, t, s: L.separated_distillation(z, t, s),
    "separated distillation, T = 3": lambda z, y, t, s: L.separated_distillation(
        z, t, s, temperature=3.0
    ),
    "RD separated": L.separated_relation_distillation,
    "nca": lambda z, y, t, s: L.nca(z, y, s),
    "nca, paper": lambda z, y, t, s: L.nca(z, y, s, form="paper"),
    "foster": lambda z, y, t, s: L.divided_cross_entropy(z, y, s, weights_like(s, z)),
    "compression": lambda z, y, t, s: L.compression(
        z, z.detach().flip(0).roll(1, 0) * 0.5, s, weights_like(s, z)
    ),
}
GRADIENTS = {
    "sigmoid": lambda z, y, s: L.sigmoid_gradient(z, y),
    "separated": L.separated_gradient,
    "softmax": L.nca_gradient,
    "code": lambda z, y, s: L.nca_gradient(z, y, s, form="code"),
    "paper": lambda z, y, s: L.nca_gradient(z, y, s, form="paper"),
    "foster": lambda z, y, s: L.divided_gradient(z, y, s, weights_like(s, z)),
}
TEACHERS = {  # those that take the teacher's logits, with their name
    "distillation": "knowledge_distillation",
    "divergence": "divergence_per_column",
    "icarl": "mixed_targets",
    "RD sigmoid": "mixed_targets",
    "separated distillation": "separated_distillation",
    "RD separated": "separated_relation_distillation",
}
every_loss = pytest.mark.parametrize("name", LOSSES)
every_gradient = pytest.mark.parametrize("name", GRADIENTS)
ordered = pytest.mark.parametrize(
    "name", [n for n in LOSSES if n != "compression"]
)  # its teacher here is the batch itself, turned


def drawn(dtype=torch.float64):
    """Twelve samples, old and new, in steps of unequal size with three unseen columns."""
    return draw_batch(11, num_steps=3, per_step=3, num_samples=12, unseen=3, dtype=dtype)


def value_and_gradient(name, logits, *others):
    leaf = logits.clone().requires_grad_()
    value = LOSSES[name](leaf, *others)
    value.sum().backward()
    return value.detach(), leaf.grad


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


@ordered
def test_a_loss_is_blind_to_the_order_of_samples(name):
    logits, targets, teacher, steps = drawn()
    order = torch.tensor([5, 3, 11, 0, 8, 1, 2, 10, 4, 9, 7, 6])
    value, gradient = value_and_gradient(name, logits, targets, teacher, steps)
    found = value_and_gradient(name, logits[order], targets[order], teacher[order], steps)
    assert_same(found, (value[order] if value.ndim else value, gradient[order]))


@every_loss
def test_a_loss_is_blind_to_the_ids_of_classes_and_to_gaps_between_steps(name):
    logits, targets, teacher, steps = drawn()
    order = torch.randperm(len(steps), generator=torch.Generator().manual_seed(1))
    wide = F.pad(teacher, (0, len(steps) - teacher.shape[1]))
    value, gradient = value_and_gradient(name, logits, targets, teacher, steps)
    found = value_and_gradient(
        name, logits[:, order], order.argsort()[targets], wide[:, order], steps[order]
    )
    assert_same(found, (value, gradient[:, order]))
    gaps = torch.where(steps > 1, steps * 1000, steps)
    assert_same(value_and_gradient(name, logits, targets, teacher, gaps), (value, gradient))


@every_loss
@pytest.mark.parametrize("filler", [-1e30, 1e30, torch.inf, torch.nan], ids=str)
def test_unseen_columns_of_a_method_never_matter_and_get_no_gradient(name, filler):
    logits, targets, teacher, steps = drawn()
    expected = value_and_gradient(name, logits, targets, teacher, steps)
    unseen = steps < 0
    assert unseen[: teacher.shape[1]].any()
    logits[:, unseen] = filler
    teacher[:, unseen[: teacher.shape[1]]] = filler
    value, gradient = value_and_gradient(name, logits, targets, teacher, steps)
    assert (
        torch.equal(value, expected[0])
        and torch.equal(gradient, expected[1])
        and not gradient[:, unseen].any()
    )


@pytest.mark.parametrize("name", TEACHERS)
def test_only_the_old_columns_of_the_teacher_matter(name):
    logits, targets, teacher, steps = drawn()
    expected = value_and_gradient(name, logits, targets, teacher, steps)
    wide = F.pad(teacher, (0, len(steps) - teacher.shape[1]))
    wide[:, (steps < 0) | (steps == steps.max())] = torch.nan
    assert_same(value_and_gradient(name, logits, targets, wide, steps), expected)


@pytest.mark.parametrize("name", TEACHERS)
def test_a_teacher_wider_than_the_student_is_refused_by_the_name_of_the_loss(name):
    logits, targets, _, steps = drawn()
    wide = torch.zeros(12, len(steps) + 1, dtype=torch.float64)
    with pytest.raises(
        ValueError,
        match=rf"^{TEACHERS[name]}: teacher_logits has {len(steps) + 1} columns, logits has {len(steps)}\.",
    ):
        LOSSES[name](logits, targets, wide, steps)


@pytest.mark.parametrize(
    "name", ["distillation", "divergence", "separated distillation", "RD sigmoid", "RD separated"]
)
@pytest.mark.parametrize("width", [0, 3])
def test_distillation_and_its_gradient_are_0_in_the_first_step(name, width):
    logits, targets, teacher, steps = drawn()
    value, gradient = value_and_gradient(
        name, logits, targets, teacher[:, :width], torch.where(steps < 0, steps, 4)
    )
    assert value == 0 and not gradient.any()


@pytest.mark.parametrize("name", ["distillation", "divergence", "separated distillation"])
def test_a_column_the_teacher_lacks_takes_no_part(name):
    logits, targets, teacher, steps = drawn()
    steps, width = (
        torch.where(steps < 0, steps, steps.clamp(max=1)),
        4,
    )  # as if the columns past the teacher's were not old
    steps[-1] = 9
    known = torch.where(torch.arange(len(steps)) < width, steps, -1)
    known[-1] = 9
    expected = value_and_gradient(name, logits, targets, teacher[:, :width], known)
    found = value_and_gradient(name, logits, targets, teacher[:, :width], steps)
    num_old = [((s >= 0) & (s < 9)).sum() for s in (steps, known)]
    ratio = num_old[0] / num_old[1] if name == "divergence" else 1.0
    torch.testing.assert_close(found[0] * ratio, expected[0])


@every_loss
@pytest.mark.parametrize("which", ["old", "new"])
def test_a_batch_of_one_side_is_finite(name, which):
    logits, targets, teacher, steps = drawn()
    rows = (steps[targets] == steps.max()) == (which == "new")
    assert 0 < rows.sum() < 12
    value, gradient = value_and_gradient(name, logits[rows], targets[rows], teacher[rows], steps)
    assert value.isfinite().all() and gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4], ids=["flat", "usual", "saturated"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_method_is_float32_as_exact_as_float64_and_finite(name, scale, dtype):
    logits, targets, steps = six_samples(scale, dtype)
    teacher = six_teachers(scale, dtype)
    value, gradient = value_and_gradient(name, logits, targets, teacher, steps)
    exact, exact_gradient = value_and_gradient(
        name, logits.double(), targets, teacher.double(), steps
    )
    assert value.dtype == torch.float32 and value.isfinite().all() and gradient.isfinite().all()
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(
        gradient.double(),
        exact_gradient,
        rtol=4 * rounding,
        atol=8 * rounding * max(1, exact_gradient.abs().max().item()),
    )


@every_loss
def test_autocast_around_a_method_changes_no_bit_and_reaches_no_operation(name):
    logits, *others = drawn(torch.float32)
    expected = value_and_gradient(name, logits, *others)
    with torch.autocast("cpu", dtype=torch.bfloat16), SeesAutocast() as watch:
        leaf = logits.clone().requires_grad_()
        watch.inside.clear()
        value = LOSSES[name](leaf, *others)
        assert not watch.inside or name in (
            "foster",
            "compression",
        )  # their weights and teacher are made above, inside
    value.sum().backward()
    assert torch.equal(value, expected[0]) and torch.equal(leaf.grad, expected[1])


@every_loss
def test_the_gradient_of_a_method_is_that_of_its_value_and_the_teacher_has_none(name):
    logits, targets, teacher, steps = drawn()
    logits, teacher = logits[:5] / 3, teacher[:5].requires_grad_()
    weights = torch.linspace(0.5, 1.5, 5, dtype=torch.float64, requires_grad=True)
    loss = LOSSES[name]
    if name.startswith("RD"):  # the weights of Eq. 9 are detached: give them
        relation = LOSSES[name]

        def loss(*batch):
            return relation(*batch, weights=weights)

    if name != "compression":  # its teacher here is the batch itself
        assert torch.autograd.gradcheck(
            lambda z: loss(z, targets[:5], teacher, steps), logits.requires_grad_(), atol=1e-7
        )
    loss(logits.requires_grad_(), targets[:5], teacher, steps).sum().backward()
    assert teacher.grad is None and weights.grad is None


@every_gradient
def test_a_target_gradient_is_detached_in_range_and_at_least_float32(name):
    logits, targets, _, steps = drawn()
    unseen = steps < 0
    expected = GRADIENTS[name](logits, targets, steps)
    logits[:, unseen] = torch.nan
    found = GRADIENTS[name](logits.requires_grad_(), targets, steps)
    assert (
        torch.equal(found, expected)
        and not found.requires_grad
        and found.min() >= 0
        and found.max() <= 1
        and found.any()
    )
    assert GRADIENTS[name](logits.to(torch.bfloat16), targets, steps).dtype == torch.float32
    with RefusesHostReads():
        GRADIENTS[name](logits, targets, steps)


@every_loss
def test_a_method_reads_nothing_on_the_host(name):
    with RefusesHostReads():
        value_and_gradient(name, *drawn())


@needs_fake_cuda
@every_loss
def test_a_method_stays_on_the_device_of_its_inputs(name):
    with FakeTensorMode(), RefusesHostReads():
        batch = [torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in drawn()]
        assert LOSSES[name](*batch).device.type == "cuda"


@pytest.mark.parametrize("name", ["RD sigmoid", "RD separated"])
def test_the_weights_of_relation_distillation_come_from_the_hosts_own_gradient(name):
    logits, targets, teacher, steps = drawn()
    gradient = GRADIENTS[name.removeprefix("RD ")](logits, targets, steps)
    weights = L.weights_from_gradient(gradient, targets, steps)
    assert torch.equal(
        LOSSES[name](logits, targets, teacher, steps),
        LOSSES[name](logits, targets, teacher, steps, weights=weights),
    )
