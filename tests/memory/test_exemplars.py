import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from avalanche_hfc.memory import ExemplarMemory, herding_order


def images(class_id, n, dim=4):
    """Features and positions of one class; positions in no order, unlike those of any other
    class.
    """
    generator = torch.Generator().manual_seed(class_id)
    return torch.randn(n, dim, generator=generator), 1000 * class_id + torch.randperm(
        n, generator=generator
    )


def test_exemplars_are_the_positions_in_herding_order():
    features, positions = images(3, 30)
    memory = ExemplarMemory(total=12)
    memory.update(3, features, positions)
    assert memory.of(3).tolist() == [
        int(positions[i]) for i in herding_order(features, 12).tolist()
    ]
    assert memory.of(3).dtype == torch.int64


@pytest.mark.parametrize("rule", ["greedy", "icarl-code", "closest", "first", "raw"])
def test_the_rule_given_ranks(rule):
    features, positions = images(1, 30)
    memory = ExemplarMemory(per_class=9, rule=rule)
    memory.update(1, features, positions)
    assert torch.equal(memory.positions(), positions[herding_order(features, 9, rule=rule)])


def test_quotas_of_2000_over_ten_steps_of_ten_classes():
    memory, quotas = ExemplarMemory(total=2000, rule="first"), []
    for step in range(10):
        classes = range(10 * step, 10 * step + 10)
        memory.reserve(classes)
        for class_id in classes:
            memory.update(class_id, *images(class_id, 210))
        quotas.append(memory.per_class_limit)
        assert len(memory) == quotas[-1] * 10 * (step + 1)
    assert quotas == [200, 100, 66, 50, 40, 33, 28, 25, 22, 20]


def test_positions_run_in_order_of_arrival_then_rank():
    memory = ExemplarMemory(per_class=2, rule="first")
    for class_id in (5, 0, 3):
        memory.update(
            class_id,
            torch.ones(3, 2),
            torch.tensor([class_id * 10 + 2, class_id * 10, class_id * 10 + 1]),
        )
    assert memory.classes == (5, 0, 3)
    assert memory.positions().tolist() == [52, 50, 2, 0, 32, 30]
    assert len(memory) == 6


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=5),
    st.integers(0, 40),
    st.booleans(),
)
def test_the_total_is_never_exceeded_and_a_list_only_loses_its_tail(steps, spare, announce):
    num_classes = sum(len(step) for step in steps)
    memory, first, seen = ExemplarMemory(total=num_classes + spare), {}, 0
    for step in steps:
        coming = list(range(seen, seen + len(step)))
        if announce:
            memory.reserve(coming)
            assert (
                len(memory) <= memory.per_class_limit * seen
            )  # room was made before anyone entered
        for class_id, n in zip(coming, step, strict=True):
            limit = (num_classes + spare) // (seen + len(step) if announce else class_id + 1)
            memory.update(class_id, *images(class_id, n))
            first[class_id] = memory.of(class_id).tolist()
            assert memory.per_class_limit == limit
            assert len(memory) <= num_classes + spare
            for old, ranked in first.items():
                n_old = [n for step in steps for n in step][old]
                assert memory.of(old).tolist() == ranked[: min(limit, n_old)]
        seen += len(step)
        assert memory.classes == tuple(range(seen))


def test_a_class_that_was_announced_enters_without_touching_the_others(monkeypatch):
    """Else a step of C classes would shrink C lists C times."""
    memory, calls = ExemplarMemory(total=12), []
    memory.reserve(range(4))
    monkeypatch.setattr(memory, "reserve", calls.append)
    for class_id in range(4):
        memory.update(class_id, *images(class_id, 9))
    assert calls == [] and len(memory) == 12
    for class_id in range(4):
        features, positions = images(class_id, 9)
        assert torch.equal(memory.of(class_id), positions[herding_order(features, 3)])


def test_a_fixed_number_per_class_never_shrinks():
    memory = ExemplarMemory(per_class=20)
    for class_id, n in enumerate([30, 1, 20]):
        memory.update(class_id, *images(class_id, n))
    assert [len(memory.of(class_id)) for class_id in range(3)] == [20, 1, 20]
    assert memory.per_class_limit == 20


def test_what_is_handed_out_is_a_copy():
    memory = ExemplarMemory(per_class=2)
    given = torch.tensor([7, 8])
    memory.update(0, torch.ones(2, 2), given)
    given.zero_()
    memory.of(0).zero_()
    memory.positions().zero_()
    memory.state_dict()["positions"][0].zero_()
    assert memory.of(0).tolist() == [7, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of total and per_class, .* got total=None, per_class=None"),
        (
            {"total": 5, "per_class": 5},
            "exactly one of total and per_class, .* got total=5, per_class=5",
        ),
        ({"total": 0}, "a whole number of 1 or more, got total=0"),
        ({"per_class": -2}, "per_class=-2"),
        ({"total": 2.5}, "total=2.5"),
        ({"total": 5, "rule": "gredy"}, "'gredy'. Known: .* Did you mean 'greedy'"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(arguments, message, annotations_unchecked):
    with pytest.raises(ValueError, match=message):
        ExemplarMemory(**arguments)


def test_fewer_exemplars_than_classes_are_refused_and_nothing_changes():
    memory = ExemplarMemory(total=3)
    memory.reserve([0, 1, 2])
    for class_id in range(3):
        memory.update(class_id, *images(class_id, 5))
    before = memory.positions()
    for attempt in (lambda: memory.update(3, *images(3, 5)), lambda: memory.reserve([3, 4])):
        with pytest.raises(
            ValueError, match=r"total=3 is less than one exemplar for each of [45] classes"
        ):
            attempt()
    assert torch.equal(memory.positions(), before) and memory.per_class_limit == 1


def test_a_class_is_given_once():
    memory = ExemplarMemory(total=8)
    memory.update(2, *images(2, 5))
    with pytest.raises(ValueError, match=r"classes \[2\] are in the memory already"):
        memory.update(2, *images(2, 5))
    with pytest.raises(ValueError, match=r"classes \[2\] are in the memory already"):
        memory.reserve([1, 2])
    assert memory.per_class_limit == 8 and len(memory) == 5


def test_a_loaded_memory_goes_on_like_the_one_saved():
    def run(memory, classes):
        for class_id in classes:
            memory.update(class_id, *images(class_id, 20))
        return memory

    saved = ExemplarMemory(total=30)
    saved.reserve([4, 1, 3])
    run(saved, [4, 1])
    state = saved.state_dict()
    loaded = ExemplarMemory(total=30)
    loaded.load_state_dict(state)
    assert loaded.per_class_limit == 10 and loaded.classes == (4, 1)
    assert torch.equal(run(loaded, [3, 0]).positions(), run(saved, [3, 0]).positions())
    assert loaded.per_class_limit == 7
    assert [len(kept) for kept in state["positions"]] == [10, 10]  # the state is a copy


def test_a_state_of_another_memory_is_refused():
    memory = ExemplarMemory(total=30)
    memory.update(0, *images(0, 20))
    state = memory.state_dict()
    for other in (
        ExemplarMemory(total=31),
        ExemplarMemory(per_class=30),
        ExemplarMemory(total=30, rule="first"),
    ):
        with pytest.raises(ValueError, match=r"the state has (total|rule)=.*, this memory "):
            other.load_state_dict(state)


def test_a_class_is_chosen_again_by_the_rule_and_keeps_its_number_of_exemplars():
    memory = ExemplarMemory(per_class=5, rule="closest")
    features, positions = images(3, 30)
    memory.update(3, features, positions.int())
    before, moved = memory.of(3).tolist(), images(4, 30)[0]
    memory.choose_again(3, moved, positions.int())
    again = memory.of(3)
    assert again.tolist() == positions[herding_order(moved, 5, rule="closest")].tolist()
    assert again.dtype == torch.int64
    assert again.tolist() not in (before, positions[herding_order(moved, 5)].tolist())
    with pytest.raises(ValueError, match="no exemplars of class 4"):
        memory.choose_again(4, moved, positions)
