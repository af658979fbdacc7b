import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from avalanche_hfc.models import AllClassesLinear, GrowingLinear


def experience(class_ids):
    return SimpleNamespace(classes_in_this_experience=class_ids)


def grown(class_ids=(3, 7), in_features=6, dtype=torch.float32):
    torch.manual_seed(0)
    head = GrowingLinear(in_features).to(dtype)
    head.grow(class_ids)
    return head


def inputs(dtype=torch.float32):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize(
    "class_ids", [[7, 3], {3, 7}, (torch.tensor(3), 7)], ids=["list", "set", "tensor"]
)
def test_a_step_in_training_gives_one_row_per_class_id_up_to_the_largest(class_ids):
    head = GrowingLinear(6)
    head.adaptation(experience(class_ids))
    assert head.weight.shape == (8, 6) and head.bias.shape == (8,)
    assert head.seen.nonzero().flatten().tolist() == [3, 7]


def test_unseen_columns_are_exactly_minus_1000_and_the_others_the_linear_map():
    head, x = grown(), inputs()
    logits = head(x)
    for column in range(8):
        expected = (
            x @ head.weight[column] + head.bias[column]
            if column in (3, 7)
            else torch.full((4,), -1000.0)
        )
        torch.testing.assert_close(
            logits[:, column],
            expected,
            rtol=1e-6 if column in (3, 7) else 0,
            atol=1e-6 if column in (3, 7) else 0,
        )


def test_unseen_columns_give_no_gradient():
    head = grown()
    head(inputs()).sum().backward()
    unseen = ~head.seen
    assert not head.weight.grad[unseen].any() and not head.bias.grad[unseen].any()
    torch.testing.assert_close(head.weight.grad[7], inputs().sum(0))
    assert head.bias.grad[3] == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_old_rows_keep_their_bits_and_dtype_when_classes_arrive_between_and_above(dtype):
    head = grown(dtype=dtype)
    old_weight, old_bias = head.weight.detach().clone(), head.bias.detach().clone()
    head.adaptation(experience([0, 9]))
    assert (
        head.weight.dtype == head.bias.dtype == head(inputs(dtype)).dtype == dtype
        and head.seen.dtype == torch.bool
    )
    assert torch.equal(head.weight[[3, 7]], old_weight[[3, 7]]) and torch.equal(
        head.bias[[3, 7]], old_bias[[3, 7]]
    )
    assert head.seen.nonzero().flatten().tolist() == [0, 3, 7, 9]
    assert head.weight[0].any() and head.weight[9].any()


def test_weight_decay_cannot_shrink_a_row_before_its_class_arrives():
    head = grown(in_features=4096)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.1, weight_decay=5.0)
    for _ in range(3):
        head(torch.ones(2, 4096)).logsumexp(1).sum().backward()
        optimizer.step()
    head.grow([5])
    assert head.weight[5].std().item() == pytest.approx(1 / 64, rel=0.05)


def assert_uniform(values, bound):
    """All within the bound, evenly: the spread, and a tenth in each tenth."""
    assert values.abs().max() <= bound and values.std().item() == pytest.approx(
        bound / math.sqrt(3), rel=0.05
    )
    counts = torch.histc(values, 10, -bound, bound)
    assert (counts / len(values) - 0.1).abs().max() < 4 * math.sqrt(0.09 / len(values))


def assert_normal(values, spread):
    assert values.std().item() == pytest.approx(spread, rel=0.02) and abs(
        values.mean().item()
    ) < 4 * spread / math.sqrt(len(values))
    assert (values.abs() > 2 * spread).double().mean().item() == pytest.approx(
        0.0455, abs=0.004
    )  # normal, not uniform


@pytest.mark.parametrize(
    "start, weights, biases",
    [
        (
            "hfc",
            [(assert_uniform, 0.1), (assert_normal, 0.1)],
            0.1,
        ),  # nn.Linear, then kaiming_normal_ and nn.Linear's bias
        ("linear", [(assert_uniform, 0.1)] * 2, 0.1),
        ("normal", [(assert_normal, 0.1)] * 2, 0.0),
        ("uniform", [(assert_uniform, 0.1 * math.sqrt(3))] * 2, 0.0),
    ],
)
def test_rows_of_the_first_step_and_of_later_ones_are_drawn_by_the_rule_asked_for(
    start, weights, biases
):
    torch.manual_seed(0)
    head = GrowingLinear(100, start=start)
    first, later = [*range(0, 800, 2)], [*range(1, 1000, 2)]
    head.grow(first)
    old = head.weight.detach()[first], head.bias.detach()[first]
    head.grow(later)
    head.grow([*later, 1001])
    assert torch.equal(head.weight.detach()[first], old[0]) and torch.equal(
        head.bias.detach()[first], old[1]
    )
    for rows, (check, spread) in zip((first, later), weights, strict=True):
        check(head.weight.detach()[rows].flatten(), spread)
        if biases:
            assert_uniform(head.bias.detach()[rows], biases)
        else:
            assert not head.bias[rows].any()


def test_a_head_with_all_classes_draws_every_row_at_first_and_keeps_them_when_classes_come():
    torch.manual_seed(0)
    head = AllClassesLinear(100, start="normal")
    head.num_classes = 400
    head.grow(range(100))
    rows, parameter = head.weight.detach().clone(), head.weight
    assert_normal(rows.flatten(), 0.1)
    head.grow(range(100, 400))
    assert head.weight is parameter and torch.equal(parameter.detach(), rows)
    assert head.seen.all()
    with pytest.raises(ValueError, match="class 400 is outside num_classes=400"):
        head.grow([400])


def test_what_is_drawn_depends_neither_on_the_order_of_the_ids_nor_on_the_width():
    torch.manual_seed(5)
    first = GrowingLinear(6)
    first.grow([9, 2])
    torch.manual_seed(5)
    second = GrowingLinear(6)
    second.grow([2, 9])
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)


def test_evaluation_of_unseen_classes_pads_the_output_and_changes_nothing_else():
    head, x = grown(), inputs()
    parameters, bits, own = (head.weight, head.bias), head.weight.detach().clone(), head(x)
    state = torch.random.get_rng_state()
    head.eval()
    head.adaptation(experience([12]))
    head.adaptation(experience([1]))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (
        (head.weight is parameters[0])
        and (head.bias is parameters[1])
        and torch.equal(head.weight, bits)
    )
    assert head.seen.nonzero().flatten().tolist() == [3, 7]
    logits = head(x)
    assert (
        logits.shape == (4, 13)
        and torch.equal(logits[:, :8], own)
        and (logits[:, 8:] == -1000).all()
    )


def test_a_state_dict_brings_its_rows_and_its_seen_classes():
    source, target = grown(), GrowingLinear(6)
    target.grow(range(20))
    target.weight.requires_grad_(False)
    target.load_state_dict(source.state_dict())
    assert torch.equal(target(inputs()), source(inputs())) and target.out_features == 8
    assert not target.weight.requires_grad and target.bias.requires_grad


@pytest.mark.parametrize("class_ids", [[-1], [3, -2]])
def test_a_negative_class_id_is_refused_in_both_modes(class_ids):
    head = GrowingLinear(6)
    for mode in (True, False):
        with pytest.raises(ValueError, match=f"got {min(class_ids)}"):
            head.train(mode).adaptation(experience(class_ids))


def test_a_plain_linear_layer_loads_with_all_its_rows_in_use():
    layer, head = nn.Linear(6, 4), GrowingLinear(6)
    head.load_state_dict(layer.state_dict())
    x = torch.randn(3, 6)
    assert torch.equal(head(x), layer(x)) and head.seen.all()
