"""Which batches an epoch has: the last one, where it is incomplete, is left out or kept."""

import pytest
from method_runs import build
from strategy_runs import At, benchmark_of, hfc, mlp, train


def sizes_of(strategy_with, experiences, **asked):
    """Batch sizes of the first epoch of every step."""
    met = {}

    def look(strategy):
        if strategy.clock.train_exp_epochs == 0:
            met.setdefault(strategy.clock.train_exp_counter, []).append(len(strategy.mb_y))

    strategy = strategy_with([At("before_forward", look)])
    train(strategy, experiences, **asked)
    return met


def of_hfc(**options):
    return lambda plugins: hfc(mlp(), plugins=plugins, train_epochs=1, **options)


STREAM = benchmark_of().train_stream  # 12 images a step, and up to 12 exemplars: 12 and 24


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        (dict(), [8, 4], [8, 8, 8]),
        (dict(train_mb_size=7), [7, 5], [7, 7, 7, 3]),
        (dict(train_mb_size=7, drop_last=True), [7], [7, 7, 7]),
        (dict(train_mb_size=7, form="official"), [7], [7, 7, 7]),  # the released loop
        (dict(train_mb_size=7, form="official", drop_last=False), [7, 5], [7, 7, 7, 3]),
        (dict(train_mb_size=7, form="paper"), [7, 5], [7, 7, 7, 3]),
        (dict(train_mb_size=12, drop_last=True), [12], [12, 12]),
        (dict(train_mb_size=13, drop_last=True), [12], [13]),  # less than one batch is kept
    ],
)
def test_the_last_batch_is_left_out_where_it_is_incomplete_and_not_the_only_one(
    options, first, second
):
    assert sizes_of(of_hfc(**options), STREAM[:2]) == {0: first, 1: second}


@pytest.mark.parametrize(
    ("drop_last", "asked", "sizes"), [(True, False, [7, 5]), (False, True, [7]), (True, None, [7])]
)
def test_what_train_is_asked_for_takes_precedence(drop_last, asked, sizes):
    assert sizes_of(of_hfc(train_mb_size=7, drop_last=drop_last), STREAM[:1], drop_last=asked) == {
        0: sizes
    }


def test_what_train_is_asked_for_is_meant_to_the_letter():
    assert sizes_of(of_hfc(train_mb_size=13, drop_last=True), STREAM[:1], drop_last=True) == {}


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        (dict(train_mb_size=5), [5, 5], [7, 7]),  # of 12 new images, with two exemplars each
        (dict(train_mb_size=5, drop_last=False), [5, 5, 2], [7, 7, 4]),
        (dict(train_mb_size=13), [12], [14]),
    ],
)
def test_ssil_leaves_out_incomplete_batches_of_new_images_by_default(options, first, second):
    met = sizes_of(
        lambda plugins: build(
            "ssil", plugins=plugins, replay_mb_size=2, **{"train_epochs": 1, **options}
        ),
        STREAM[:2],
    )
    assert met == {0: first, 1: second}


@pytest.mark.parametrize(
    ("drop_last", "asked", "sizes"),
    [(False, None, [7, 5]), (True, None, [7]), (True, False, [7, 5])],
)
@pytest.mark.parametrize("name", ["podnet", "dytox"])
def test_a_later_phase_has_the_same_rule(name, drop_last, asked, sizes, monkeypatch):
    met = []
    kind = type(build(name))
    loss = kind.tuning_loss
    monkeypatch.setattr(
        kind, "tuning_loss", lambda self, x, targets: met.append(len(x)) or loss(self, x, targets)
    )
    strategy = build(name, train_epochs=1, train_mb_size=7, tune_epochs=1, drop_last=drop_last)
    train(strategy, STREAM[:2], drop_last=asked)  # 12 exemplars
    assert met == sizes
