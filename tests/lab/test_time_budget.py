"""The epochs that a time budget of `hfc compare` allows."""

import re
import time

import pytest

from avalanche_hfc.lab import override, plan, recipe
from avalanche_hfc.lab.compare import MOST_EPOCHS, PLANNED, TimeBudget, few_epochs, with_epochs
from avalanche_hfc.lab.plan import RUN_SECONDS, Measured, Sizes

METHODS = ("ncm", "herding-replay")
RECIPES = [recipe(f"folder-t2-{method}@small") for method in METHODS]
SIZES = Sizes(steps=((2, 80), (2, 100)), tests=(20, 30))
MEASURED = [
    Measured((100.0, 50.0), 200.0, 0, 0, building=0.25, of_a_step=0.1),
    Measured((40.0, 20.0), 200.0, 0, 0, building=0.25, of_a_step=0.3),
]


def budget(**changes):
    given = {"sizes": SIZES, "num_seeds": 3, "overhead": 2.0, **changes}
    return TimeBudget(RECIPES, MEASURED, **given)


def seconds_of(method, epochs):
    """Two steps, image by image: 40 exemplars are replayed in the second."""
    passes = 80 + 100 + 20 + (20 + 30)
    fixed = 2 + 0.25 + 2 * (0.1 if method == "ncm" else 0.3) + RUN_SECONDS
    if method == "ncm":  # sees each image once, whatever the epochs of the others
        return 80 / 100 + 100 / 50 + passes / 200 + fixed
    return epochs * (80 / 40 + (100 + 40) / 20) + passes / 200 + fixed


def test_time_is_that_of_all_seeds_with_one_pass_for_methods_that_take_one():
    assert RECIPES[1].memory.per_class == 20
    wanted = 3 * sum(seconds_of(method, 7) for method in METHODS)
    assert budget().seconds(7) == pytest.approx(wanted)


def test_several_jobs_end_when_the_longest_run_that_started_last_does():
    runs = 2 * [seconds_of(method, 3) for method in METHODS]
    worst = (sum(runs) - max(runs)) / 2 + max(runs)
    assert budget(num_seeds=2, jobs=2).seconds(3) == pytest.approx(worst)


@pytest.mark.parametrize("minutes", [2.0, 3.5, 11.0])
def test_the_largest_number_of_epochs_that_fits_is_chosen(minutes):
    epochs, left = budget().epochs_within(minutes, spent=10), PLANNED * (60 * minutes - 10)
    cost = [3 * sum(seconds_of(name, count) for name in METHODS) for count in (epochs, epochs + 1)]
    assert cost[0] <= left < cost[1]


def test_a_long_budget_ends_at_the_most_epochs():
    assert budget().epochs_within(10_000) == MOST_EPOCHS


def test_a_budget_too_short_for_one_epoch_is_refused_with_one_that_works():
    with pytest.raises(ValueError, match="--minutes 0.5 is too short .* of 6 runs") as error:
        budget().epochs_within(0.5, spent=100)
    needed = int(re.search(r"they need --minutes (\d+)", str(error.value))[1])
    assert budget().epochs_within(needed, spent=100) >= 1
    with pytest.raises(ValueError, match="too short"):
        budget().epochs_within(needed - 1.5, spent=100)


def test_many_runs_on_few_images_need_the_time_that_each_run_costs_by_itself():
    few = budget(sizes=Sizes(steps=((2, 1), (2, 1)), tests=(1, 1)), num_seeds=100, overhead=0.0)
    with pytest.raises(ValueError, match="too short .* of 200 runs") as error:
        few.epochs_within(1)
    needed = int(re.search(r"they need --minutes (\d+)", str(error.value))[1])
    assert needed * 60 > 100 * (2 * 0.25 + 2 * (0.1 + 0.3) + 2 * RUN_SECONDS)


@pytest.mark.parametrize(
    ("slow", "building", "of_a_step"),
    [("build_model", True, False), ("checkpoint_bytes", False, True), ("judge", False, False)],
)
def test_what_a_run_costs_besides_its_images_is_measured(monkeypatch, slow, building, of_a_step):
    fast, late, now = getattr(plan, slow), [], time.perf_counter

    def slowly(*given, **options):
        late.append(1e6)  # seconds, on the clock alone
        return fast(*given, **options)

    monkeypatch.setattr(plan, slow, slowly)
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now() + sum(late))
    own = override(recipe("digits-b0-t5-icarl@demo"), {"batch_size": "8"})
    found = plan.measure(own, plan.real_data(own, 0, None)[0], "cpu", 2)
    assert (found.building >= 1e6, found.of_a_step >= 1e5) == (building, of_a_step)


def test_fewer_epochs_than_those_of_the_recipes_are_remarked():
    (said,) = few_epochs(with_epochs(RECIPES, 4))
    assert said.startswith("Methods that train by gradients had 4 epochs a step, fewer than the 5")
    assert few_epochs(with_epochs(RECIPES, 5)) == few_epochs(RECIPES[:1]) == []


def test_methods_that_see_each_image_once_keep_one_epoch():
    assert [own.train.epochs for own in with_epochs(RECIPES, 9)] == [1, 9]
