"""DyTox's sampling: each image that an epoch meets comes three times in a row, each time with draws
of its own.
"""

import numpy as np
import pytest
import torch
from method_runs import build, moved, steps_of, weights
from strategy_runs import At, benchmark_of, digit_tensors, jitter, train

from avalanche_hfc.strategies import dytox
from avalanche_hfc.strategies._base import loading
from avalanche_hfc.strategies._base.template import IncrementalTemplate
from avalanche_hfc.strategies.dytox import DyTox, RepeatedPositions


def epoch_of_the_authors(order, repeats):
    """The rule of the original sampler in one process."""
    everything = []
    for position in order:
        for copy in range(repeats):
            everything.append((position, copy))
    size = len(order)
    return everything[: size - size % 256] if size >= 256 else everything[:size]


@pytest.mark.parametrize("repeats", [2, 3])
@pytest.mark.parametrize("size", [1, 7, 255, 256, 310, 1023])
def test_an_epoch_is_a_permutation_with_each_position_repeated_cut_to_a_multiple_of_256(
    size, repeats
):
    for shuffle in (True, False):
        torch.manual_seed(size)
        order = torch.randperm(size).tolist() if shuffle else list(range(size))
        expected = epoch_of_the_authors(order, repeats)
        for told_apart in (True, False):
            torch.manual_seed(size)
            sampler = RepeatedPositions(size, repeats, shuffle=shuffle, told_apart=told_apart)
            assert list(sampler) == [
                position + told_apart * copy * size for position, copy in expected
            ]
            assert len(sampler) == len(expected)
    again = RepeatedPositions(310, repeats, shuffle=True, told_apart=False)
    assert list(again) != list(again)  # every epoch has its own permutation


def images_met(strategy, num_steps, **options):
    """The images of each main epoch and of each epoch of tuning, in order, by (step, phase)."""
    met = {}

    def note(x):
        met.setdefault((strategy.clock.train_exp_counter, strategy.phase), []).append(x.clone())

    loss = strategy.tuning_loss
    strategy.tuning_loss = lambda x, y: note(x) or loss(x, y)
    strategy.plugins.append(At("before_forward", lambda s: note(s.mb_x)))
    steps_of(strategy, num_steps, **options)
    return {key: torch.cat(batches) for key, batches in met.items()}


def is_one_epoch(images, pool, repeats, size):
    """`size` images of the pool: each of those met `repeats` times in a row, the last perhaps cut
    off.
    """
    assert len(images) == size
    firsts = images[::repeats]
    assert len(firsts.flatten(1).unique(dim=0)) == len(firsts) == -(-size // repeats)
    assert all(torch.equal(image, firsts[place // repeats]) for place, image in enumerate(images))
    assert all(any(torch.equal(image, other) for other in pool) for image in firsts)


@pytest.mark.parametrize("flat", [True, False])
def test_main_phase_and_tuning_of_every_step_meet_an_image_three_times_in_a_row(flat, monkeypatch):
    if not flat:  # data whose layers are not understood
        for module in (dytox, loading):
            monkeypatch.setattr(module, "flatten", lambda data: None)
    met = images_met(build("dytox", train_epochs=1, tune_epochs=1), 2)
    x, y = digit_tensors(6, 6)
    assert sorted(met) == [(0, "train"), (1, "train"), (1, "tune")]
    old, new = x[(y == 4) | (y == 1)], x[(y == 5) | (y == 0)]
    is_one_epoch(met[0, "train"], old, 3, size=12)
    is_one_epoch(met[1, "train"], torch.cat([old, new]), 3, size=12 + 12)
    is_one_epoch(met[1, "tune"], torch.cat([old, new]), 3, size=12)


def test_a_large_step_is_cut_and_the_last_batch_dropped_only_if_asked_for():
    sizes = []
    strategy = build(
        "dytox",
        train_epochs=1,
        train_mb_size=100,
        plugins=[At("before_forward", lambda s: sizes.append(len(s.mb_y)))],
    )
    first = benchmark_of(per_class=100, num_steps=2).train_stream[:1]  # three classes
    train(strategy, first)
    assert sizes == [100, 100, 56]
    sizes.clear()
    train(
        build("dytox", train_epochs=1, train_mb_size=100, plugins=list(strategy.plugins[:1])),
        first,
        drop_last=True,
    )
    assert sizes == [100, 100]
    sizes.clear()
    train(
        build(
            "dytox",
            train_epochs=1,
            train_mb_size=100,
            plugins=list(strategy.plugins[:1]),
            repeats=1,
        ),
        first,
    )
    assert sizes == [100, 100, 100]


def keyed(strategy):
    """As a run does: draws by (seed, step, phase, epoch, position)."""
    clock = strategy.clock
    strategy.dataloader.dataset.seed_draws(
        7, clock.train_exp_counter, "train", clock.train_exp_epochs
    )


@pytest.mark.parametrize(
    "plugins", [[], [At("before_training_epoch", keyed)]], ids=["drawn in order", "drawn by key"]
)
def test_the_three_are_augmented_apart(plugins):
    met = images_met(
        build("dytox", train_epochs=1, tune_epochs=1, plugins=plugins), 2, train_transform=jitter
    )
    for images in met.values():
        assert len(images.flatten(1).unique(dim=0)) == len(images)


def test_the_number_of_loader_processes_changes_nothing():
    ends = []
    for num_workers in (0, 2):
        strategy = build(
            "dytox", train_epochs=1, tune_epochs=1, plugins=[At("before_training_epoch", keyed)]
        )
        train(
            strategy, benchmark_of(train_transform=jitter).train_stream[:1], num_workers=num_workers
        )
        ends.append(weights(strategy))
    assert not moved(*ends)


def test_without_repeats_everything_is_as_in_any_other_method(monkeypatch):
    def end(**options):
        np.random.seed(3)
        return weights(
            steps_of(build("dytox", tune_epochs=1, **options), 2, train_transform=jitter)
        )

    once, three_times = end(repeats=1), end()
    for name in ("loader_of", "make_train_dataloader"):
        monkeypatch.setattr(DyTox, name, getattr(IncrementalTemplate, name))
    plain = end()
    assert not moved(plain, once) and moved(plain, three_times)


def test_another_number_is_refused():
    for wrong in (0, -1, True):
        with pytest.raises(
            ValueError, match=f"DyTox: repeats must be a whole number of 1 or more, got {wrong}"
        ):
            build("dytox", repeats=wrong)
    state = build("dytox").state_dict()
    with pytest.raises(ValueError, match="repeats 3, now 1"):
        build("dytox", repeats=1).load_state_dict(state)
