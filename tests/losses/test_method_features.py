"""The losses that read features and maps: POD, CSC, CT, DISC and the importance of channels."""

import method_loops as by_hand
import pytest
import torch
from watches import RefusesHostReads, SeesAutocast

from avalanche_hfc.losses import (
    add_importance,
    controlled_transfer,
    cross_space_clustering,
    importance_distillation,
    normalised_importance,
    pod_flat,
    pod_spatial,
)

SHAPES = [(3, 2, 2, 3), (3, 4, 1, 2), (3, 1, 3, 3)]


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def draw_maps(seed=0, dtype=torch.float64):
    return [draw(*shape, seed=seed + i, dtype=dtype) for i, shape in enumerate(SHAPES)]


def draw_importance(dtype=torch.float64):
    return [draw(shape[1], seed=7, dtype=dtype).abs() for shape in SHAPES]


IMPORTANCE = {dtype: draw_importance(dtype) for dtype in (torch.float32, torch.float64)}
TARGETS, STEPS = (
    torch.tensor([4, 0, 2, 4, 0, 1]),
    torch.tensor([0, 2, 1, -1, 2]),
)  # three old samples, three new
LOSSES = {  # of (what the student gives, what the teacher gives)
    "pod_spatial": pod_spatial,
    "pod_flat": lambda f, t: pod_flat(f[0], t[0]),
    "disc": lambda f, t: importance_distillation(
        f, t, IMPORTANCE[torch.promote_types(f[0].dtype, torch.float32)]
    ),
    "csc": lambda f, t: cross_space_clustering(f[0], t[0], TARGETS),
    "ct": lambda f, t: controlled_transfer(f[0], t[0], TARGETS, STEPS),
    "ct, rows": lambda f, t: controlled_transfer(f[0], t[0], TARGETS, STEPS, reduction="rows"),
}
every_loss = pytest.mark.parametrize("name", LOSSES)


def inputs(name, dtype=torch.float64):
    """(student, teacher): maps or features."""
    if name in ("pod_spatial", "disc"):
        return draw_maps(0, dtype), draw_maps(50, dtype)
    return [draw(6, 5, seed=1, dtype=dtype)], [draw(6, 5, seed=2, dtype=dtype)]


def value_and_gradients(name, student, teacher):
    leaves = [a.clone().requires_grad_() for a in student]
    value = LOSSES[name](leaves, teacher)
    value.backward()
    return value.detach(), [a.grad for a in leaves]


def test_golden_maps():
    maps, ones = (
        [torch.tensor([[[[1.0, 2], [3, 4]]]], dtype=torch.float64)],
        [torch.ones(1, 1, 2, 2, dtype=torch.float64)],
    )
    assert round(pod_spatial(maps, ones).item(), 5) == 0.48031
    assert (
        round(importance_distillation(maps, ones, [torch.ones(1, dtype=torch.float64)]).item(), 5)
        == 0.63680
    )


def test_golden_clustering_and_transfer():
    features = torch.tensor([[1, 0], [1, 1], [0, 1], [-1, 1]], dtype=torch.float64)
    teacher = torch.tensor([[1, 0], [0, 1], [1, 1], [0, 1]], dtype=torch.float64)
    targets, steps = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])
    assert round(cross_space_clustering(features, teacher, targets).item(), 5) == -0.08839
    assert round(controlled_transfer(features, teacher, targets, steps).item(), 6) == 0.018093
    rows = controlled_transfer(features, teacher, targets, steps, reduction="rows")
    assert rows.item() == pytest.approx(2 * 0.018093, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 10])
def test_map_distances_are_their_definitions(seed):
    maps, teacher, importance = draw_maps(seed), draw_maps(seed + 50), draw_importance()
    plain = [[a.tolist() for a in group] for group in (maps, teacher, importance)]
    assert pod_spatial(maps, teacher).item() == pytest.approx(
        by_hand.pod_spatial(*plain[:2]), rel=1e-12
    )
    assert importance_distillation(maps, teacher, importance).item() == pytest.approx(
        by_hand.importance_distillation(*plain), rel=1e-12
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_feature_distances_are_their_definitions_whatever_the_length(scale):
    (features,), (teacher,) = inputs("csc")
    plain = features.tolist(), teacher.tolist(), TARGETS.tolist()
    flat = sum(1 - by_hand.cosine(a, b) for a, b in zip(*plain[:2], strict=True)) / 6
    assert pod_flat(features * scale, teacher).item() == pytest.approx(flat, rel=1e-12)
    assert cross_space_clustering(features * scale, teacher, TARGETS).item() == pytest.approx(
        by_hand.cross_space_clustering(*plain)
    )
    for reduction in ("elements", "rows"):
        for temperature in (2.0, 0.5):
            expected = by_hand.controlled_transfer(*plain, STEPS.tolist(), temperature, reduction)
            found = controlled_transfer(
                features * scale,
                teacher,
                TARGETS,
                STEPS,
                temperature=temperature,
                reduction=reduction,
            )
            assert found.item() == pytest.approx(expected, rel=1e-10)


def test_controlled_transfer_has_temperature_2_and_divides_by_the_elements():
    (features,), (teacher,) = inputs("ct")
    plain = features.tolist(), teacher.tolist(), TARGETS.tolist(), STEPS.tolist()
    assert controlled_transfer(features, teacher, TARGETS, STEPS).item() == pytest.approx(
        by_hand.controlled_transfer(*plain, 2.0, "elements")
    )


@pytest.mark.parametrize(
    "targets",
    [[4, 1, 4, 1], [0, 2, 0, 0], [4, 1, 0, 4]],
    ids=["no old sample", "no new sample", "one old sample"],
)
@pytest.mark.parametrize("reduction", ["elements", "rows"])
def test_transfer_between_sides_one_of_which_is_empty_or_single_is_0_without_gradient(
    targets, reduction
):
    features = draw(4, 5).requires_grad_()
    value = controlled_transfer(
        features, draw(4, 5, seed=1), torch.tensor(targets), STEPS, reduction=reduction
    )
    value.backward()
    assert value == 0 and not features.grad.any()


@pytest.mark.parametrize(
    "targets", [[4, 0, 2, 0], [4, 1, 4, 0, 2]], ids=["one new sample", "more new than old"]
)
@pytest.mark.parametrize("reduction", ["elements", "rows"])
def test_transfer_is_its_definition_with_sides_of_unequal_size(targets, reduction):
    features, teacher = draw(len(targets), 5), draw(len(targets), 5, seed=1)
    expected = by_hand.controlled_transfer(
        features.tolist(), teacher.tolist(), targets, STEPS.tolist(), 2.0, reduction
    )
    assert controlled_transfer(
        features, teacher, torch.tensor(targets), STEPS, reduction=reduction
    ).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["pod_spatial", "pod_flat", "disc", "ct"])
def test_a_student_equal_to_its_teacher_has_no_loss_and_a_finite_gradient(name):
    student, _ = inputs(name)
    value, gradients = value_and_gradients(name, student, student)
    assert abs(value) < 1e-15 and all(
        g.isfinite().all() and g.abs().max() < 1e-12 for g in gradients
    )


@every_loss
def test_the_gradient_is_that_of_the_value_and_the_teacher_has_none(name):
    student, teacher = inputs(name)
    leaves, others = ([a.clone().requires_grad_() for a in group] for group in (student, teacher))
    assert torch.autograd.gradcheck(lambda *a: LOSSES[name](list(a), others), leaves, atol=1e-7)
    LOSSES[name](leaves, others).backward()
    assert all(a.grad.any() for a in leaves) and all(a.grad is None for a in others)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_small_numbers_give_float32_as_exact_as_float64_also_inside_autocast(name, dtype):
    student, teacher = inputs(name, dtype)
    exact = LOSSES[name]([a.double() for a in student], [a.double() for a in teacher])
    value, gradients = value_and_gradients(name, student, teacher)
    leaves = [a.clone().requires_grad_() for a in student]
    with torch.autocast("cpu", dtype=torch.bfloat16), SeesAutocast() as watch:
        inside = LOSSES[name](leaves, teacher)
        assert not watch.inside
    inside.backward()
    assert value.dtype == torch.float32 and torch.equal(value, inside)
    assert all(torch.equal(a, b.grad) for a, b in zip(gradients, leaves, strict=True))
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)


@every_loss
def test_nothing_is_read_on_the_host_and_nothing_leaves_the_device(name):
    student, teacher = inputs(name)
    with RefusesHostReads():
        value_and_gradients(name, student, teacher)


def test_importance_sums_the_squared_gradients_of_every_sample_whatever_the_batches():
    gradients = [draw(5, 2, 2, 3), draw(5, 3, 1, 2, seed=1)]
    expected = [
        [
            sum(v * v for sample in g.tolist() for row in sample[c] for v in row)
            for c in range(g.shape[1])
        ]
        for g in gradients
    ]
    together = add_importance(gradients)
    apart = add_importance([g[2:] for g in gradients], add_importance([g[:2] for g in gradients]))
    for found, again, sums in zip(together, apart, expected, strict=True):
        assert found.tolist() == pytest.approx(sums, rel=1e-12) and again.tolist() == pytest.approx(
            sums, rel=1e-12
        )


def test_importance_accumulates_no_graph_in_at_least_float32_and_leaves_the_sums_given():
    gradients = [draw(5, 2, 2, 3, dtype=torch.bfloat16).requires_grad_()]
    sums = [torch.ones(2)]
    (found,) = add_importance(gradients, sums)
    assert found.dtype == torch.float32 and not found.requires_grad and sums[0].tolist() == [1, 1]
    torch.testing.assert_close(
        add_importance(gradients)[0], gradients[0].detach().double().square().sum((0, 2, 3)).float()
    )
    with pytest.raises(ValueError, match="zip"):
        add_importance(gradients, [*sums, torch.ones(3)])


def test_normalised_importance_has_mean_1_and_is_1_where_nothing_mattered():
    first, second, third = normalised_importance(
        [torch.tensor([1.0, 3.0]), torch.zeros(3), torch.tensor([0.0, 2.0]) ** 20 / 2**60]
    )
    assert (
        first.tolist() == [0.5, 1.5] and second.tolist() == [1, 1, 1] and third.tolist() == [0, 2]
    )


def test_the_importance_carries_no_gradient():
    maps, teacher = inputs("disc")
    importance = [i.requires_grad_() for i in draw_importance()]
    assert not importance_distillation(maps, teacher, importance).requires_grad


def test_maps_that_do_not_belong_together_are_refused_with_their_shapes():
    maps = [torch.ones(2, 3, 4, 4), torch.ones(2, 5, 2, 2)]
    message = r"maps have the shapes \[\(2, 3, 4, 4\), \(2, 5, 2, 2\)\], teacher_maps \[\(2, 3, 4, 4\)\]\. Give one or more, the same\.$"
    with pytest.raises(ValueError, match="^pod_spatial: " + message):
        pod_spatial(maps, maps[:1])
    with pytest.raises(ValueError, match="^importance_distillation: " + message):
        importance_distillation(maps, maps[:1], [torch.ones(3), torch.ones(5)])
    with pytest.raises(
        ValueError, match=r"^pod_spatial: maps have the shapes \[\], teacher_maps \[\]"
    ):
        pod_spatial([], [])
    with pytest.raises(
        ValueError,
        match=r"^importance_distillation: maps have \[3, 5\] channels, importance has \[3, 1\]\.$",
    ):
        importance_distillation(maps, maps, [torch.ones(3), torch.ones(1)])
