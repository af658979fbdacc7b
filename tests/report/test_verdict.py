"""The verdict of `hfc compare`: its sentences agree with the rows that they are made from."""

import re
from math import sqrt
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import write_runs

from avalanche_hfc.lab.read import group_runs, read_runs
from avalanche_hfc.report.page import as_html
from avalanche_hfc.report.verdict import fallen_classes, make_verdict, spoken, verdict

SECONDS = {"hfc": 40.0, "podnet": 30.0, "ncm": 2.0}
T_3, T_4 = 4.303, 3.182  # standard errors that a paired t-test at 5 % needs of 3 and of 4 seeds
HARD, EASY = -20.0, 15.0  # what a seed adds to all methods: more than methods differ by


def rows_of(last=None, images=400, **averages):
    """A row per method and seed. `last` are the last accuracies, by default half of the average."""
    return pd.DataFrame(
        [
            {
                "method": method,
                "seed": seed,
                "average": value,
                "last": (last or {}).get(method, [value / 2] * len(values))[seed],
                "images": images,
                "seconds": SECONDS[method],
                "exemplars": 0 if method == "ncm" else 96,
                "megabytes": 10.8,
            }
            for method, values in averages.items()
            for seed, value in enumerate(values)
        ]
    )


def judged(rows, fallen=None):
    none = pd.Series(dtype=float)
    return verdict(rows, {method: (fallen or {}).get(method, none) for method in SECONDS})


def difference(first, second):
    each = [a - b for a, b in zip(first, second, strict=True)]
    return mean(each), stdev(each) / sqrt(len(each))


def test_a_planted_winner_leads_by_the_paired_difference_however_much_seeds_differ():
    hfc, podnet = [60 + HARD, 60.0, 60 + EASY], [57.5 + HARD, 57.0, 57.3 + EASY]
    found = judged(rows_of(podnet=podnet, hfc=hfc, ncm=[50 + HARD, 50.0, 49 + EASY]))
    lead, error = difference(hfc, podnet)
    assert lead > T_3 * error and abs(mean(hfc) - mean(podnet)) < stdev(hfc)
    assert (found.method, found.highest) == ("hfc", "hfc")
    assert found.sentences[0].startswith(f"Use hfc: {mean(hfc):.1f} % on average")
    assert f"leads podnet, the second, by {lead:.1f} ± {error:.1f} points" in found.sentences[1]
    assert "the difference is real" in found.sentences[1]
    assert "3 seeds are few" in found.sentences[1]


def test_of_methods_without_a_difference_the_fastest_is_the_one_to_use():
    hfc, podnet = [60.0, 64.0, 62.0], [61.0, 60.0, 62.5]
    found = judged(rows_of(hfc=hfc, podnet=podnet, ncm=[40.0, 40.5, 41.0]))
    lead, error = difference(hfc, podnet)
    assert 0 < lead < T_3 * error
    assert (found.method, found.highest) == ("podnet", "hfc")
    said = " ".join(found.sentences)
    assert "hfc has the highest average, but its lead over podnet is not certain" in said
    assert f"it is {lead:.1f} ± {error:.1f} above podnet" in said
    assert "podnet is close to it and trains faster." in said
    below, error = difference(hfc, [40.0, 40.5, 41.0])
    assert (
        f"hfc leads ncm, the next, by {below:.1f} ± {error:.1f} points: by a paired t-test" in said
    )
    assert f"The fastest is ncm: 2 s, {mean(podnet) - 40.5:.1f} points below." in said


def test_one_seed_tells_nothing_about_the_spread():
    found = judged(rows_of(hfc=[60.0], podnet=[57.4]))
    assert found.method == "hfc"
    said = " ".join(found.sentences)
    assert "It is 2.6 points above podnet; with one seed nothing can be said" in said
    assert "(seed 0)" in said and "±" not in said and "real" not in said
    same = judged(rows_of(hfc=[60.0], podnet=[60.0], ncm=[55.5])).sentences[1]
    assert same.startswith("It equals hfc, and is 4.5 points above ncm; with one seed")


def test_a_method_that_is_better_after_the_last_step_is_named_if_the_difference_is_real():
    averages = {"hfc": [60.0, 62.0, 64.0], "podnet": [50.0, 52.0, 54.2]}
    better = {"hfc": [40.0, 41.0, 42.0], "podnet": [43.0, 44.5, 45.0]}
    said = judged(rows_of(last=better, **averages)).sentences
    lead, error = difference(better["podnet"], better["hfc"])
    told = f"After the last step podnet is better than hfc, by {lead:.1f} ± {error:.1f} points."
    assert told in said
    doubtful = better | {"podnet": [50.0, 38.0, 42.0]}
    assert mean(doubtful["podnet"]) > mean(better["hfc"])
    assert not any("After the last step" in one for one in judged(rows_of(doubtful, **averages))[2])


def test_cost_and_forgotten_classes_are_those_of_the_method_to_use():
    fallen = {"ncm": pd.Series({f"class {n}": 50.0 - n for n in range(7)})}
    ncm = judged(rows_of(hfc=[50.0, 51.0], ncm=[60.0, 61.5]), fallen).sentences
    assert "A run of ncm trains for 2 s, keeps no exemplars, and its model takes 10.8 MB." in ncm[2]
    assert "No other method here trains faster" in ncm[2]
    assert "forgets 7 classes, most of all class 0 (50), class 1 (49)" in ncm[3]
    assert "class 4" in ncm[3] and "class 5" not in ncm[3]
    hfc = judged(rows_of(hfc=[60.0, 61.5], ncm=[50.0, 51.0]), fallen).sentences
    assert "A run of hfc trains for 40 s, keeps 96 exemplars" in hfc[2]
    assert hfc[3] == "hfc forgets no class: none is below its best accuracy."


@pytest.mark.parametrize(
    ("images", "coarse"),
    [
        (100, ""),
        (99, " They are coarse: one image is 1.0 points."),
        (8, " They are coarse: one image is 12.5 points."),
    ],
)
def test_the_number_of_test_images_is_told_and_that_few_are_coarse(images, coarse):
    told = judged(rows_of(images=images, hfc=[60.0, 61.5], ncm=[50.0, 51.0])).sentences[-1]
    stand = f"The accuracies stand on {images} test images after the last step, on fewer before it."
    assert told == stand + coarse


@pytest.mark.parametrize("seed", range(30))
def test_a_difference_is_called_real_if_the_test_finds_it_for_all_other_methods(seed):
    random = np.random.default_rng(seed)
    values = {name: list(random.normal(50 + 3 * place, 2, 4)) for place, name in enumerate(SECONDS)}
    found = judged(rows_of(**values))
    highest = max(values, key=lambda name: mean(values[name]))
    equal, close = [], []
    for name in values:
        lead, error = difference(values[highest], values[name])
        if name != highest and lead < T_4 * error:
            equal.append(name)
            close += [name] if lead <= 1 else []
    assert found.highest == highest
    assert found.method == min([highest, *close], key=SECONDS.get)
    assert ("not certain" in found.sentences[1]) == bool(equal)
    assert ("the difference is real" in found.sentences[1]) == (len(equal) < len(values) - 1)
    assert all(name in found.sentences[1] for name in equal)


# From run folders


@pytest.fixture
def folders(tmp_path):
    return write_runs(tmp_path, ("hfc", "herding-replay"), (0, 1, 2), shuffled=True, nme=False)


def test_a_class_has_fallen_by_the_mean_over_the_seeds_in_which_it_could(folders):
    runs, _ = read_runs(folders)
    group = next(own for own in group_runs(runs) if own.label == "hfc")
    wanted = {}
    for run in group.runs:
        for name, rows in run.classes.groupby("name"):
            if rows["brought_in"].iloc[0] < 4:
                course = list(rows.sort_values("step")["correct"] / rows["total"])
                wanted.setdefault(name, []).append(100 * (max(course) - course[-1]))
    wanted = {name: mean(values) for name, values in wanted.items() if mean(values) > 0}
    found = fallen_classes(group)
    assert dict(found) == pytest.approx(wanted) and len(wanted) > 5
    assert list(found) == sorted(found, reverse=True)


def test_page_and_terminal_have_the_same_verdict_with_the_command_of_its_method(folders):
    runs, _ = read_runs(folders)
    names = {str(run.recipe["name"]) for run in runs}
    commands = {name: f"hfc predict runs/{name}/0 new.jpg" for name in names}
    report = make_verdict(folders, "Which method", dict.fromkeys(names, 10_800_000), commands)
    said = spoken(report)
    averages = {
        method: mean(
            run.steps["average"].iloc[-1] * 100 for run in runs if method in run.recipe["name"]
        )
        for method in ("hfc", "herding-replay")
    }
    best = max(averages, key=averages.get)
    assert said.startswith(f"Use {best}: {averages[best]:.1f} %")
    assert "The accuracies stand on 500 test images" in said  # 50 of each of ten classes
    assert re.search(rf"^hfc predict runs/digits-b0-t5-{best}@demo/0 new.jpg$", said, re.MULTILINE)
    page = as_html(report)
    assert f'<pre tabindex="0">hfc predict runs/digits-b0-t5-{best}@demo/0 new.jpg</pre>' in page
    for line in said.splitlines():
        assert line in page
    assert all(f"{value:.1f} ± " in page for value in averages.values())


def test_a_method_without_weights_has_no_command(folders):
    said = spoken(make_verdict(folders, "Which method", {}, {}))
    assert "keeps no weights" in said and "hfc predict runs" not in said
