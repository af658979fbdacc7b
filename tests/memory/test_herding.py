import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from room import at_most_more

from avalanche_hfc.memory import RULES, herding, herding_order

EQUAL = 1e-9  # the loops' own tolerance for ties


def unit(features):
    rows = []
    for row in features.tolist():
        length = math.sqrt(math.fsum(x * x for x in row))
        rows.append(np.array([x / length if length else 0.0 for x in row]))
    return rows


def lowest_of_the_best(values):
    """Position of the smallest value; the lowest of those that differ by rounding only."""
    best = min(values.values())
    return min(position for position, value in values.items() if value - best < EQUAL)


def greedy_loop(features, count):
    return mean_matching(unit(features), count)


def raw_loop(features, count):
    """On features as they are. Divided by the length of the longest, for the tolerance of ties
    alone.
    """
    longest = max(math.sqrt(math.fsum(x * x for x in row)) for row in features.tolist())
    return mean_matching([np.array(row) / (longest or 1.0) for row in features.tolist()], count)


def mean_matching(phi, count):
    mean = sum(phi) / len(phi)
    picked = []
    for k in range(1, min(count, len(phi)) + 1):
        so_far = sum((phi[p] for p in picked), np.zeros_like(mean))
        squared = {
            i: k * k * float(np.sum((mean - (phi[i] + so_far) / k) ** 2))
            for i in range(len(phi))
            if i not in picked
        }
        picked.append(lowest_of_the_best(squared))
    return picked


def icarl_code_loop(features, count):
    phi = unit(features)
    mean = sum(phi) / len(phi)
    w, picked = mean.copy(), []
    for _ in range(1000):
        if len(picked) == min(count, len(phi)):
            break
        best = lowest_of_the_best({i: -float(np.dot(w, x)) for i, x in enumerate(phi)})
        if best not in picked:
            picked.append(best)
        w = w + mean - phi[best]
    rest = [i for i in range(len(phi)) if i not in picked]
    return (picked + rest)[:count]


def closest_loop(features, count):
    phi = unit(features)
    mean = sum(phi) / len(phi)
    left = {i: float(np.sum((x - mean) ** 2)) for i, x in enumerate(phi)}
    order = []
    while left:
        order.append(lowest_of_the_best(left))
        del left[order[-1]]
    return order[:count]


LOOPS = {
    "greedy": greedy_loop,
    "icarl-code": icarl_code_loop,
    "closest": closest_loop,
    "first": lambda features, count: list(range(len(features)))[:count],
    "raw": raw_loop,
}


@st.composite
def classes(draw):
    n, dim = draw(st.integers(1, 24)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    if draw(st.booleans()):
        features = torch.randn(n, dim, generator=generator, dtype=torch.float64) * 10.0 ** draw(
            st.integers(-20, 20)
        )
    else:
        features = torch.randint(
            -1, 2, (n, dim), generator=generator
        ).double()  # copies, zero vectors, ties
    return features, draw(st.integers(0, n + 2))


@pytest.mark.parametrize("rule", LOOPS)
@settings(max_examples=60, deadline=None)
@given(classes())
def test_an_order_is_its_definition(rule, drawn):
    features, count = drawn
    assert herding_order(features, count, rule=rule).tolist() == LOOPS[rule](features, count)


@pytest.mark.parametrize("rule", LOOPS)
@pytest.mark.parametrize(
    "count", [1, 12, 13, 100]
)  # columns on demand up to 12 of 100, one matrix product from 13 on
def test_few_and_many_picks_give_the_definition(rule, count):
    features = torch.randn(100, 16, generator=torch.Generator().manual_seed(3)) + 0.5
    assert herding_order(features, count, rule=rule).tolist() == LOOPS[rule](
        features.double(), count
    )


def test_the_products_of_a_large_class_are_never_held_at_once():
    """8193 images, of which 1100 are kept: all products would be 537 MB."""
    assert herding.MOST_BYTES == 8 * 8192**2
    n, count = 8193, 1100
    features = torch.randn(n, 3, generator=torch.Generator().manual_seed(4)) + 0.5
    phi = torch.nn.functional.normalize(features.double()).numpy()
    with at_most_more(2**28):
        order = herding_order(features, count).tolist()
        with pytest.raises(MemoryError):
            phi @ phi.T  # the bound is one that all products break
    pull, so_far, left, expected = phi.mean(0), np.zeros(3), np.ones(n, dtype=bool), []
    for k in range(1, count + 1):
        squares = ((k * pull - so_far - phi) ** 2).sum(1)
        expected.append(int(np.where(left, squares, np.inf).argmin()))
        so_far, left[expected[-1]] = so_far + phi[expected[-1]], False
    assert order == expected


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        ("greedy", [2, 3, 0, 4, 1]),
        ("icarl-code", [2, 3, 0, 1, 4]),
        ("closest", [2, 3, 1, 0, 4]),
        ("first", [0, 1, 2, 3, 4]),
    ],
)
def test_golden_orders_of_five_directions(rule, order):
    angles = torch.deg2rad(torch.tensor([0.0, 20, 50, 90, 130], dtype=torch.float64))
    features = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor(
        [[1.0], [7], [0.1], [3], [100]]
    )  # lengths must not matter
    assert herding_order(features, 5, rule=rule).tolist() == order


def test_raw_features_count_by_their_length():
    """Mean 4: alone 3 is nearest; with it 5, then 9 leaves the mean 17/3 and -1 the mean 7/3: both
    5/3 off, the lower position wins.
    """
    features = torch.tensor([[9.0], [3.0], [-1.0], [5.0]], dtype=torch.float64)
    assert herding_order(features, 4, rule="raw").tolist() == [1, 3, 0, 2]
    assert herding_order(features, 4, rule="greedy").tolist() == [0, 1, 2, 3]
    assert herding_order(features * 1e-30, 4, rule="raw").tolist() == [1, 3, 0, 2]
    assert herding_order(torch.zeros(3, 2), 3, rule="raw").tolist() == [0, 1, 2]


def test_the_released_rule_stops_after_1000_picks_and_the_rest_follow_in_their_own_order():
    features = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    order = herding_order(features, 300, rule="icarl-code").tolist()
    assert order == icarl_code_loop(features.double(), 300)
    assert sorted(order) == list(range(300))
    rank_of_last_pick = max(i for i in range(299) if order[i] > order[i + 1])
    assert rank_of_last_pick < 280  # a tail in rising order: the rule itself did not reach everyone


@pytest.mark.parametrize(
    ("copies", "kept"), [(1997, [0, 1997]), (1998, [0, 1998]), (1999, [0, 1]), (2000, [0, 1])]
)
def test_the_1000th_pick_still_counts_and_the_1001st_does_not(copies, kept):
    """m copies, one image at a right angle: at pick k they score k·m/(m+1) - (k-1) and k/(m+1); the
    lone one wins once 2k > m + 1.
    """
    features = torch.tensor([[1.0, 0.0]] * copies + [[0.0, 1.0]])
    assert herding_order(features, 2, rule="icarl-code").tolist() == kept


def test_copies_of_an_image_are_taken_from_the_lowest_position_up():
    row = torch.randn(1, 37, generator=torch.Generator().manual_seed(1))
    for rule in RULES:
        assert herding_order(row.repeat(41, 1), 41, rule=rule).tolist() == list(range(41))


def test_a_difference_larger_than_rounding_is_no_tie():
    features = torch.tensor([[1.0, 1e-3], [1.0, 0.999e-3], [1.0, 0.0]], dtype=torch.float64)
    mean = torch.nn.functional.normalize(features).mean(0)
    gap = torch.nn.functional.normalize(features) @ mean
    assert 1e-10 < gap[1] - gap[0] < 1e-6
    assert herding_order(features, 1, rule="closest").tolist() == [1]


def test_bad_arguments_are_named():
    said = r"^Unknown herding rule 'greedi'. Known: greedy, icarl-code, closest, first, raw. Did you mean 'greedy'\?"
    with pytest.raises(ValueError, match=said):
        herding_order(torch.ones(2, 2), 1, rule="greedi")
    with pytest.raises(ValueError, match="2 of 3 features are not finite, the first at position 1"):
        herding_order(torch.tensor([[1.0, 0], [float("nan"), 0], [float("inf"), 0]]), 1)
