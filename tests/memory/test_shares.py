"""How a total is divided: by floor, exactly, and with room for a hold-out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from avalanche_hfc.memory import ExemplarMemory


def fill(memory, num_classes, images=50, at_once=1):
    """Classes in groups of `at_once`; the sizes after each group."""
    sizes = []
    for start in range(0, num_classes, at_once):
        group = range(start, min(start + at_once, num_classes))
        memory.reserve(group)
        for class_id in group:
            memory.update(class_id, torch.zeros(images, 1), torch.arange(images) + 1000 * class_id)
        sizes.append([len(memory.of(class_id)) for class_id in memory.classes])
    return sizes


def test_an_exact_share_gives_the_remainder_to_the_newest_classes():
    assert fill(ExemplarMemory(total=10, rule="first", share="exact"), 4) == [
        [10],
        [5, 5],
        [3, 3, 4],
        [2, 2, 3, 3],
    ]
    assert fill(ExemplarMemory(total=11, rule="first", share="exact"), 6, at_once=2) == [
        [5, 6],
        [2, 3, 3, 3],
        [1, 2, 2, 2, 2, 2],
    ]
    assert fill(ExemplarMemory(total=10, rule="first"), 4) == [
        [10],
        [5, 5],
        [3, 3, 3],
        [2, 2, 2, 2],
    ]


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 3))
def test_an_exact_share_fills_the_total_and_keeps_prefixes(total, num_classes, at_once):
    num_classes = min(num_classes, total)
    memory = ExemplarMemory(total=total, rule="first", share="exact")
    for sizes in fill(memory, num_classes, images=total, at_once=at_once):
        assert sum(sizes) == total and max(sizes) - min(sizes) <= 1
    assert all(
        memory.of(c).tolist() == [1000 * c + rank for rank in range(len(memory.of(c)))]
        for c in memory.classes
    )


@pytest.mark.parametrize(
    ("budget", "num_classes", "held", "kept"),
    [
        (dict(total=2000), 10, 20, 180),
        (dict(total=2000), 100, 2, 18),
        (dict(total=100), 10, 1, 9),
        (dict(total=20), 10, 1, 1),
        (dict(total=19), 10, 0, 1),
        (dict(total=2050), 30, 6, 62),  # a tenth of 68.3, not of 68
        (dict(total=2099), 10, 20, 189),
        (dict(per_class=20), 10, 2, 18),
        (dict(per_class=1), 10, 0, 1),
    ],
    ids=str,
)
def test_a_tenth_of_each_share_is_left_for_the_hold_out_at_least_one_unless_it_is_the_only_one(
    budget, num_classes, held, kept
):
    memory = ExemplarMemory(**budget, rule="first", hold_out=0.1)
    assert memory.held_out(num_classes) == held
    assert fill(memory, num_classes, images=300, at_once=num_classes) == [[kept] * num_classes]


def test_a_state_of_another_share_or_hold_out_is_refused():
    state = ExemplarMemory(total=10, share="exact").state_dict()
    with pytest.raises(ValueError, match="share='exact', this memory 'floor'"):
        ExemplarMemory(total=10).load_state_dict(state)
    with pytest.raises(ValueError, match="hold_out=0.0, this memory 0.1"):
        ExemplarMemory(total=10, hold_out=0.1).load_state_dict(
            ExemplarMemory(total=10).state_dict()
        )


def test_bad_shares_are_named():
    with pytest.raises(ValueError, match="Did you mean 'exact'"):
        ExemplarMemory(total=10, share="exat")
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match=r"hold_out must be in \[0, 1\)"):
            ExemplarMemory(total=10, hold_out=wrong)


@pytest.mark.parametrize("share", ["floor", "exact"])
def test_more_classes_than_the_total_are_refused_before_the_first_one_comes(share):
    memory = ExemplarMemory(total=3, share=share)
    with pytest.raises(ValueError, match="total=3 is less than one exemplar for each of 4 classes"):
        memory.reserve(range(4))
    memory.reserve(range(3))  # nothing of the refused call is left
    assert memory.per_class_limit == 1


def test_the_hold_out_is_a_part_of_the_share_before_it_is_rounded():
    assert ExemplarMemory(total=27, hold_out=0.3).held_out(2) == 4  # of 13.5; of 13 it would be 3
    assert ExemplarMemory(total=20, hold_out=0.1).held_out(1) == 2
    assert (
        ExemplarMemory(total=3, hold_out=0.9, share="exact").held_out(2) == 0
    )  # the older class has one image only
    assert (
        ExemplarMemory(total=20, hold_out=0.1).per_class_limit == 18
    )  # of a class that is to come
