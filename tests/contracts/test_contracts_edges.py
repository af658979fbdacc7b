"""Small steps, small batches, small classes, low precision: a strategy of ours goes on, or says at
once that it cannot.
"""

import warnings

import pytest
import torch
from contract_entries import CASES, every
from contract_runs import (
    benchmark_of,
    build,
    exemplars,
    logits_of,
    not_finite,
    run,
    seed,
    train,
    usual,
)

STARVES = ("ssil",)  # a softmax over the one new class is 1: it learns nothing of it, and says so


@every
def test_later_steps_with_a_single_class_are_survived_and_only_ssil_warns_once(case):
    benchmark = benchmark_of(((1, 4), (0,), (5,)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        strategy = run(case, benchmark)
    logits, _ = logits_of(strategy, benchmark.test_stream)
    assert (
        not_finite(strategy) == []
        and logits.isfinite().all()
        and (logits[:, [0, 1, 4, 5]] > -900).all()
    )
    about = [
        warning
        for warning in said
        if "class" in str(warning.message) and "avalanche." not in str(warning.category)
    ]
    assert len(about) == (1 if case.name in STARVES else 0), [
        str(warning.message) for warning in about
    ]


@every
def test_a_first_step_with_one_class_is_refused(case):
    benchmark = benchmark_of(((1,), (0, 5)))
    seed()
    strategy = build(case)
    before = {name: value.clone() for name, value in strategy.model.state_dict().items()}
    with pytest.raises(
        ValueError,
        match=r"(?i)first step.*(one|single|two|1|2) class|(one|single|two|1|2) class.*first step",
    ):
        strategy.train(benchmark.train_stream[0])
    after = strategy.model.state_dict()
    assert all(
        torch.equal(value, after[name])
        for name, value in before.items()
        if after[name].shape == value.shape
    )


@every
@pytest.mark.parametrize("size", [1, 2])
def test_batches_without_old_or_without_new_samples_are_survived(case, size):
    """A batch of one is all old or all new; a memory of one exemplar per class makes the old ones
    rare.
    """
    options = {} if case.entry.mem_size is None else {"mem_size": 5}
    benchmark = benchmark_of(((1, 2), (0, 3)), per_class=2)
    strategy = run(case, benchmark, train_mb_size=size, train_epochs=1, **options)
    logits, _ = logits_of(strategy, benchmark.test_stream)
    assert not_finite(strategy) == [] and logits.isfinite().all() and (logits > -900).all()


@every
def test_a_class_with_one_image_is_survived_and_its_image_kept(case):
    """One in each step: it is old with one exemplar, and new with one image."""
    benchmark = benchmark_of(((1, 2), (0, 3)), few=(1, 3))
    strategy = run(case, benchmark)
    logits, _ = logits_of(strategy, benchmark.test_stream)
    assert not_finite(strategy) == [] and logits.isfinite().all() and (logits > -900).all()
    if case.ours and case.entry.mem_size is not None:
        assert [len(exemplars(strategy).of(class_id)) for class_id in (1, 3)] == [1, 1]


@every
def test_bf16_autocast_ends_finite_with_fp32_weights(case):
    benchmark = benchmark_of()
    seed()
    with torch.autocast("cpu", torch.bfloat16):
        strategy = train(build(case), benchmark.train_stream[:2])
        logits, _ = logits_of(strategy, benchmark.test_stream[:2])
    assert (
        not_finite(strategy) == []
        and logits.isfinite().all()
        and (logits[:, [0, 1, 4, 5]] > -900).all()
    )
    weights = {f".model.{name}": value for name, value in strategy.model.state_dict().items()}
    assert {value.dtype for value in weights.values()} <= {torch.float32, torch.int64, torch.bool}
    full = usual(case)[1]
    assert any(
        not torch.equal(value, full[name]) for name, value in weights.items() if name in full
    )  # bf16 was in use


def test_there_are_cases():
    assert CASES
