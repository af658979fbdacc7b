"""Edges of the memory that its definitions leave open: kinds of numbers, copies, the order in which
ids are named.
"""

import inspect

import numpy as np
import pytest
import torch

from avalanche_hfc.memory import ExemplarMemory, herding_order


def filled(classes, **budget):
    memory = ExemplarMemory(rule="first", **budget)
    for class_id in classes:
        memory.update(
            class_id, torch.ones(9, 2), 100 * class_id + torch.arange(9, dtype=torch.int32)
        )
    return memory


@pytest.mark.parametrize("value", [2.5, "7"])
def test_a_budget_that_is_no_whole_number_is_refused(value):
    unchecked = inspect.unwrap(
        ExemplarMemory.__init__
    )  # as users call it: annotations are not enforced
    with pytest.raises(
        ValueError, match=rf"total must be a whole number of 1 or more, got {value!r}\."
    ):
        unchecked(ExemplarMemory.__new__(ExemplarMemory), total=value)


def test_ids_from_a_tensor_are_plain_numbers():
    memory, reserve = filled([2], total=9), inspect.unwrap(ExemplarMemory.reserve)
    reserve(memory, torch.tensor([8, 1]))
    state = memory.state_dict()
    assert state["reserved"] == [1, 8] and [type(class_id) for class_id in state["reserved"]] == [
        int,
        int,
    ]
    assert state["classes"] == [2] and type(state["classes"]) is type(state["reserved"]) is list
    with pytest.raises(ValueError, match=r"classes \[2\] are in the memory already"):
        reserve(memory, torch.tensor([2]))


def test_classes_given_twice_are_named_in_order():
    memory = filled([8, 1], total=9)
    with pytest.raises(ValueError, match=r"classes \[1, 8\] are in the memory already"):
        memory.reserve([8, 1])


def test_positions_are_int64_whatever_was_given():
    assert filled([1], total=4).of(1).dtype == torch.int64


def test_exemplars_cut_off_are_not_held():
    memory = filled([1, 2, 3], total=9)
    for kept in memory._ranked.values():
        assert kept.untyped_storage().nbytes() == 8 * 3


def test_a_loaded_memory_shares_nothing_with_the_state_and_holds_plain_int64():
    state = filled([4, 2], total=9).state_dict()
    state["classes"] = list(np.array(state["classes"]))
    state["positions"][1] = state["positions"][1].to(torch.int32)
    state["reserved"] = [np.int64(7)]
    state["positions"] = [kept[:3] for kept in state["positions"]]
    memory = ExemplarMemory(total=9, rule="first")
    memory.load_state_dict(state)
    assert [type(class_id) for class_id in (*memory.classes, *memory.state_dict()["reserved"])] == [
        int,
        int,
        int,
    ]
    expected = [400, 401, 402, 200, 201, 202]
    for kept in state["positions"]:
        kept.zero_()
    assert memory.positions().tolist() == expected and memory.of(2).dtype == torch.int64


def test_one_class_beyond_the_limit_is_enough_to_refuse_a_state():
    state = filled([4, 2], total=9).state_dict()
    state["positions"][0] = torch.arange(5)
    state["positions"][1] = torch.arange(1)
    with pytest.raises(ValueError, match="holds 5 exemplars of one class, 4 are allowed"):
        ExemplarMemory(total=9, rule="first").load_state_dict(state)


@pytest.mark.parametrize("budget", [{"total": 1}, {"per_class": 1}])
def test_the_state_of_an_empty_memory_loads(budget):
    memory = ExemplarMemory(**budget)
    memory.load_state_dict(ExemplarMemory(**budget).state_dict())
    assert len(memory) == 0 and memory.classes == ()


def test_closest_ranks_a_zero_vector_by_its_distance():
    """μ = (3/4, 0) is 1/4 from the images (1, 0) and 3/4 from the zero vector."""
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert herding_order(features, 4, rule="closest").tolist() == [1, 2, 3, 0]
    features = torch.tensor(
        [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    )  # μ = (0, 1/4): 3/4 from (0, 1), 1/4 from zero
    assert herding_order(features, 2, rule="closest").tolist() == [3, 2]


def test_positions_that_are_no_whole_numbers_are_refused_and_nothing_is_kept():
    memory = ExemplarMemory(total=4)
    unchecked = inspect.unwrap(
        ExemplarMemory.update
    )  # as users call it: annotations are not enforced
    with pytest.raises(
        ValueError, match=r"^ExemplarMemory: positions must be whole numbers, got torch\.float32\.$"
    ):
        unchecked(memory, 3, torch.ones(2, 5), torch.tensor([0.5, 1.0]))
    assert len(memory) == 0
    unchecked(memory, 3, torch.ones(2, 5), torch.tensor([7, 1], dtype=torch.int32))
    assert memory.of(3).tolist() == [7, 1]
