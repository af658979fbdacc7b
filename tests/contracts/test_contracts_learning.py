"""What every strategy learns, and from what: teacher, memory, labels, steps of any size, class ids
of any order.
"""

import copy
from contextlib import contextmanager

import pytest
import torch
from contract_entries import CASES, CHECKS, ENTRIES, OURS, Case, choices, every, small_cnn
from contract_runs import (
    At,
    accuracy,
    benchmark_of,
    build,
    differing,
    exemplars,
    left_by,
    logits_of,
    not_finite,
    run,
    seed,
    train,
    usual,
)
from torch.optim import SGD, AdamW

from avalanche_hfc.memory import ExemplarMemory
from avalanche_hfc.models import GrowingLinear, TaskTokens
from avalanche_hfc.models.heads import ClassColumns
from avalanche_hfc.plugins import FrozenTeacher
from avalanche_hfc.strategies import STRATEGIES

MOMENTS = (
    "before_training_epoch",
    "before_training_iteration",
    "after_training_epoch",
    "before_phase_epoch",
    "after_phase_epoch",
)


def declared(entry):
    """The checks that an entry names."""
    return [*entry.skip, *entry.skip_host, *(entry.only[1] if entry.only else ())]


def test_every_strategy_has_an_entry_here_and_every_skip_names_a_check():
    import test_contracts_edges
    import test_contracts_traces

    assert test_contracts_edges and test_contracts_traces  # their checks are in CHECKS then
    missing = sorted(STRATEGIES.keys() - ENTRIES.keys())
    assert not missing, (
        f"STRATEGIES has {missing}: say in tests/contracts/contract_entries.py how to build "
        "them small, and what they skip."
    )
    unknown = {
        (name, check)
        for name, entry in ENTRIES.items()
        for check in declared(entry)
        if check not in CHECKS
    }
    assert not unknown, f"no such checks: {sorted(unknown)}"


@every
def test_every_step_can_be_trained_or_the_class_says_why_not(case):
    kind = STRATEGIES[case.name]
    if getattr(kind, "trains_on_stream", False):
        assert not_finite(run(case)) == []
    elif getattr(kind, "cannot_run", None) is None:
        assert len(usual(case)) == 3
    else:
        with pytest.raises((RuntimeError, TypeError)) as error:
            run(case)
        quoted = kind.cannot_run.split("`")[1::2]
        assert any(
            all(piece.strip() in str(error.value) for piece in quote.split("…")) for quote in quoted
        ), quoted


@every
def test_the_first_step_is_learned(case):
    assert any(
        learns_the_first_step(case, number) for number in (3, 8)
    )  # a tiny network: one start may be unlucky


def learns_the_first_step(case, number):
    # of other writers' images, random features that are not trained recognize half, as chance does
    benchmark = benchmark_of(per_class=20, first_test_image=20, transform=None)
    seed(number)
    model = case.entry.model()
    optimizer = AdamW(model.parameters(), lr=3e-3)  # at 1e-2 rounding decides what dytox learns
    every_image = {
        **case.entry.full_batch,
        **({"drop_last": False} if case.ours else {}),
    }  # as many updates for every strategy
    strategy = build(
        case,
        model=model,
        optimizer=optimizer,
        own_plugins=[],
        train_epochs=24 if case.entry.num_epochs > 1 else 1,
        train_mb_size=16,
        **every_image,
    )
    train(strategy, benchmark.train_stream[:1])
    return (
        accuracy(strategy, benchmark.train_stream[0]) >= 0.85
        and accuracy(strategy, benchmark.test_stream[0]) >= 0.6
    )


# dytox has an encoder of its own; a few updates of a linear head learn nothing from a random CNN
OTHERS = ("dytox", "frozen-replay")


@pytest.mark.parametrize(
    "name", [name for name in STRATEGIES if name in OURS and name not in OTHERS]
)
def test_a_cnn_with_batch_norm_learns_the_first_step_and_ends_finite(name):
    benchmark, case = benchmark_of(per_class=10, transform=None), Case(name, choices(name)[0])
    seed()
    model = small_cnn()
    strategy = build(
        case,
        model=model,
        optimizer=AdamW(model.parameters(), lr=3e-3),
        own_plugins=[],
        train_epochs=6 if case.entry.num_epochs > 1 else 1,
        train_mb_size=10,
    )
    strategy.train(benchmark.train_stream[0])
    assert accuracy(strategy, benchmark.train_stream[0]) >= 0.9
    strategy.train_epochs = 1
    strategy.train(benchmark.train_stream[1])
    assert (
        not_finite(strategy) == []
        and logits_of(strategy, benchmark.test_stream[:2])[0].isfinite().all()
    )


@every
def test_the_teacher_is_frozen_during_a_later_step(case):
    met, first = [], {}

    def look(strategy):
        teacher, step = FrozenTeacher.of(strategy), strategy.clock.train_exp_counter
        if step == 0:
            return
        assert teacher.model is not None, "no teacher in a later step"
        now = teacher.model.state_dict()
        first.setdefault(step, copy.deepcopy(now))
        assert differing(first[step], now) == []
        assert not any(module.training for module in teacher.model.modules())
        assert not any(parameter.requires_grad for parameter in teacher.model.parameters())
        met.append(step)

    run(case, plugins=[At((*MOMENTS, "after_training_iteration"), look)])
    assert set(met) == {1, 2} and differing(first[1], first[2])


def buffers(strategy):
    """The buffers of one of Avalanche's own."""
    owners = [strategy, *strategy.plugins]
    return [owner.storage_policy.buffer for owner in owners if hasattr(owner, "storage_policy")]


@every
def test_the_memory_is_within_its_budget_at_every_moment_and_holds_exemplars_of_the_right_class(
    case, monkeypatch
):
    benchmark, budget, sizes = benchmark_of(), case.entry.mem_size, []
    labels = torch.tensor(
        [y for experience in benchmark.train_stream for y in experience.dataset.targets]
    )
    update = ExemplarMemory.update

    def watched(memory, *args):
        update(memory, *args)
        assert len(memory) <= budget

    def look(strategy):
        if not case.ours:
            sizes.append(sum(map(len, buffers(strategy))))
            assert sizes[-1] <= budget
            return
        memory = exemplars(strategy)
        sizes.append(
            len(memory) + sum(getattr(plugin, "num_held", 0) for plugin in strategy.plugins)
        )  # a hold-out is memory, too
        assert (
            len(memory) == len(memory.positions()) == len(memory.positions().unique())
            and sizes[-1] <= budget
        )
        assert all((labels[memory.of(class_id)] == class_id).all() for class_id in memory.classes)

    monkeypatch.setattr(ExemplarMemory, "update", watched)
    seed()
    strategy = build(case, plugins=[At((*MOMENTS, "after_training_exp"), look)])
    for step, experience in enumerate(benchmark.train_stream):
        strategy.train(experience)
        look(strategy)
        if case.ours:
            seen = {
                class_id
                for earlier in benchmark.train_stream[: step + 1]
                for class_id in earlier.classes_in_this_experience
            }
            assert set(exemplars(strategy).classes) == seen
    assert sizes[-1] >= budget // 2


@every
def test_a_class_of_a_later_step_is_no_label_and_no_prediction_before(case):
    seen, met = set(), []

    def look(strategy):
        assert set(strategy.mb_y.tolist()) <= seen
        unseen = sorted(set(range(strategy.mb_output.shape[1])) - seen)
        assert (strategy.mb_output[:, unseen] == -1000).all()
        met.append(len(unseen))

    benchmark = benchmark_of()
    seed()
    strategy = build(case, plugins=[At("before_backward", look)])
    for experience in benchmark.train_stream:
        seen |= set(experience.classes_in_this_experience)
        strategy.train(experience)
        logits, _ = logits_of(strategy, benchmark.test_stream)
        assert logits.shape[1] == 6 and (logits[:, sorted(set(range(6)) - seen)] == -1000).all()
        assert (
            logits.isfinite().all()
            and (logits[:, sorted(seen)] > -900).all()
            and set(logits.argmax(1).tolist()) <= seen
        )
    assert 3 in met and met[-1] == 0


@every
def test_data_and_class_ids_of_the_last_step_do_not_reach_the_steps_before(case):
    def other(x, y):
        last = (y == 7) | (y == 9)
        return torch.where(last[:, None, None, None], -x.flip(0), x), y

    expected = usual(case)
    seed()
    benchmark, strategy = benchmark_of(((1, 4), (0, 5), (7, 9)), change=other), build(case)
    for step, experience in enumerate(benchmark.train_stream[:2]):
        strategy.train(experience)
        assert differing(expected[step], left_by(strategy)) == [], f"after step {step}"


@every
def test_steps_of_unequal_size_are_learned(case):
    benchmark = benchmark_of(((3, 1, 5), (0,), (4, 2)))
    strategy = run(case, benchmark)
    logits, labels = logits_of(strategy, benchmark.test_stream)
    assert (
        not_finite(strategy) == []
        and logits.shape == (36, 6)
        and (logits > -900).all()
        and logits.isfinite().all()
    )
    assert sorted(set(labels.tolist())) == list(range(6))


@contextmanager
def rows_drawn_in_the_order_of(rank, monkeypatch):
    """New rows of every head are drawn by `rank[class id]`, not by class id."""
    checked, grow, add = ClassColumns._checked, GrowingLinear.grow, TaskTokens._add

    def added(head, class_ids):
        add(head, class_ids)
        if (
            head.divergence is not None
        ):  # its outputs are in the order of class ids, whatever the order of the columns
            rows = torch.tensor([0, *(1 + torch.tensor(class_ids).argsort())])
            for drawn in head.divergence.linear.parameters():
                drawn.data = drawn.data[rows]

    def grown(head, class_ids):
        class_ids = sorted({int(class_id) for class_id in class_ids}, key=rank.get)
        head._resize(max(head.out_features, max(class_ids) + 1))
        grow(head, class_ids)

    with monkeypatch.context() as patch:
        patch.setattr(
            ClassColumns,
            "_checked",
            lambda head, class_ids: sorted(checked(head, class_ids), key=rank.get),
        )
        patch.setattr(GrowingLinear, "grow", grown)
        patch.setattr(TaskTokens, "_add", added)
        yield


@every
def test_relabelled_classes_give_permuted_logits(case, monkeypatch):
    """Full batches: the order of the exemplars may change, their set may not. In each step the two
    classes change their order.
    """
    new_id, full = {1: 3, 4: 0, 0: 5, 5: 1, 2: 4, 3: 2}, case.entry.full_batch

    def final(relabel):
        seed()
        benchmark = benchmark_of(transform=None, relabel=relabel, dtype=torch.float64)
        model = case.entry.model().double()
        strategy = build(
            case,
            model=model,
            optimizer=SGD(model.parameters(), lr=0.1, momentum=0.9),
            train_mb_size=64,
            **full,
        )
        logits, labels = logits_of(
            train(strategy, benchmark.train_stream[:2]), benchmark.test_stream[:2]
        )
        images = torch.stack(
            [x for experience in benchmark.test_stream[:2] for x, *_ in experience.dataset.eval()]
        )
        old_id = torch.tensor(
            [old for _, old in sorted((new, old) for old, new in relabel.items())]
        )
        rows = old_id[labels].argsort(stable=True)  # images by class, in both runs the same
        with torch.no_grad():
            return torch.stack(
                [logits[rows], strategy.model.eval()(images[rows])]
            )  # what it predicts by, and its head

    plain = final({c: c for c in range(6)})
    with rows_drawn_in_the_order_of({new: old for old, new in new_id.items()}, monkeypatch):
        relabelled = final(new_id)
    columns = [new_id[c] for c in range(6)]
    torch.testing.assert_close(relabelled[..., columns], plain, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(relabelled, plain, atol=1e-2)


@pytest.mark.parametrize("name", sorted(name for name in STRATEGIES if Case(name, "hfc") in CASES))
def test_the_losses_put_in_change_nothing_in_the_first_step_and_something_in_the_second(name):
    host, hfc = usual(Case(name, "host")), usual(Case(name, "hfc"))

    def weights(left):
        return {
            key: value for key, value in left.items() if key.startswith((".model.", ".optimizer."))
        }

    assert differing(weights(host[0]), weights(hfc[0])) == [] and weights(host[0])
    assert any(key.startswith(".model.") for key in differing(weights(host[1]), weights(hfc[1])))


def test_every_entry_of_ours_is_known_by_name():
    assert {name for name in STRATEGIES if not name.startswith("avalanche-")} <= set(OURS)
