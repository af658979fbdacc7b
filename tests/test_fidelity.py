"""docs/fidelity.toml agrees with recipes, `hfc show`, recordings and tests, and docs/fidelity.md is
what is made of it.
"""

import ast
import re
import runpy
import sys
from collections import Counter
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from pages import README, table

from avalanche_hfc.lab import METHODS, all_names, override, recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.describe import text_of

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
OURS = [name for name in METHODS if not name.startswith("avalanche-")]
DETAILS = (
    "loss distillation head initialisation optimizer schedule phases sampling memory herding "
    "augmentation inference"
).split()
CALLED = {  # in sentences
    "hfc": "HFC",
    "dytox": "DyTox",
    "podnet": "PODNet",
    "afc": "AFC",
    "foster": "FOSTER",
    "ssil": "SS-IL",
}


def from_experiments(name):
    """A script of experiments/ with the scripts that it imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments"))
        return __import__(name)


PAGE = from_experiments("fidelity_page")
EFFECTS = from_experiments("effects")
HELD = PAGE.read()
ROWS = HELD["departure"]
BY_LEAF = [row for row in ROWS if "leaf" in row]


def name_of_row(row):
    return f"{row['methods'][0]}-{row['detail']}-{row.get('leaf', '')}"


@pytest.fixture
def golden(monkeypatch):
    """The modules of tests/golden, by name."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    return lambda name: __import__(name)


# What is followed


def test_every_method_of_ours_is_told_what_it_was_compared_with():
    assert sorted(method["name"] for method in HELD["method"]) == sorted(OURS)
    assert all(method["code"] and method["follows"] for method in HELD["method"])


def test_the_trajectories_are_those_that_are_tested_with_their_updates_and_within_the_tolerances(
    golden,
):
    replay, load = golden("replay"), golden("recordings").load
    told = {one["name"]: one for one in HELD["trajectory"]}
    assert list(told) == [*dict.fromkeys(told)] and sorted(told) == sorted(
        golden("test_trajectories").NAMES
    )
    for name, one in told.items():
        assert one["updates"] == len(load(name).updates), name
        assert one["method"] in OURS
        assert 0 < one["loss"] <= replay.LOSS and 0 < one["weights"] <= replay.WEIGHT, name
    assert "The tests allow 1e-9 and 1e-8" in PAGE.PAGE.read_text()
    assert (replay.LOSS, replay.WEIGHT) == (1e-9, 1e-8)


def test_the_code_that_ran_is_that_of_the_recordings(golden):
    folders = golden("recordings").FOLDERS
    for one in HELD["trajectory"]:
        folder = next(f for f in folders if one["name"] in golden("recordings").folder_names(f))
        text = (GOLDEN / folder / "README.md").read_text()
        if "repository" in one:
            assert re.search(f"{one['repository']} (at )?{one['commit']}", text), one["name"]
        else:
            assert re.search(f"`{one['name']}` .*not the authors' code", text), one["name"]


@pytest.mark.parametrize("method", HELD["method"], ids=lambda method: method["name"])
def test_what_is_said_of_a_method_is_what_its_trajectories_show(method):
    own = [one for one in HELD["trajectory"] if one["method"] == method["name"]]
    released = [one for one in own if one["changed"].startswith("as released")]
    follows = method["follows"]
    assert bool(released) == follows.startswith("update by update")
    assert bool(own) == (follows != "–")
    assert all(one["changed"].startswith("a port") for one in own) == (
        follows[:6] in ("a port", "–")
    )


def sentence(names):
    return f"{', '.join(names[:-1])} and {names[-1]} follow their authors' released code"


def test_readme_and_page_name_the_methods_that_follow_the_released_code_and_no_others():
    by_update = {
        method["name"] for method in HELD["method"] if method["follows"].startswith("update by")
    }
    names = [called for name, called in CALLED.items() if name in by_update]
    assert by_update == set(CALLED)
    for page in (README, PAGE.PAGE):
        assert sentence(names) in page.read_text()


def test_the_table_of_methods_says_what_the_data_file_says():
    told = {
        cells[0].strip("`"): cells[4]
        for cells in table(ROOT / "docs" / "methods.md", "| `STRATEGIES` | paper |")
    }
    assert {name: told[name] for name in OURS} == {
        method["name"]: method["follows"] for method in HELD["method"]
    }


def test_a_recording_is_replayed_by_hand_as_the_page_shows(monkeypatch, capsys, golden):
    script = GOLDEN / "by_hand.py"
    monkeypatch.setattr(sys, "argv", [str(script), "hfc_paper"])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    example = PAGE.PAGE.read_text().split("```\nTraining as ")[1].split("```")[0]
    name = example.split()[0]
    assert f"tests/golden/by_hand.py {name}\n" in PAGE.PAGE.read_text()
    line = re.compile(r"^ +(\d) (\w+) +(\d+) {4}loss \de-\d+   weight \de-\d+", re.MULTILINE)
    for text, recorded in ((printed, "hfc_paper"), (example, name)):
        recording = golden("recordings").load(recorded)
        updates = Counter((str(one.step), one.phase) for one in recording.updates)
        assert line.findall(text) == [(*key, str(count)) for key, count in updates.items()]
        assert f"{len(recording.updates)} updates followed. After each of 3 steps" in text


# What departs


@cache
def functions(file):
    """The names of the functions of a file."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=name_of_row)
def test_a_departure_has_its_reason_its_effect_and_what_holds_it(row):
    assert row["detail"] in DETAILS
    assert row["methods"] == ["*"] or set(row["methods"]) <= set(OURS)
    assert row["authors"] and row["ours"] and row["why"] and row["effect"]
    assert "leaf" in row or "test" in row
    if "test" in row:
        file, name = row["test"].split("::")
        assert name in functions(file), row["test"]


@cache
def recipes_of(methods):
    return [
        own
        for own in map(recipe, all_names())
        if (methods == ("*",) and own.method.name in OURS) or own.method.name in methods
    ]


def by_line(row):
    """(pattern, value, source) -> the recipes of the row for which it is the first that fits."""
    found = {tuple(line): [] for line in row["recipes"]}
    for own in recipes_of(tuple(row["methods"])):
        if row["leaf"] not in own.leaves():
            continue  # an option of some models
        line = next((line for line in found if fnmatch(own.name, line[0])), None)
        assert line, f"no pattern fits {own.name}"
        found[line].append(own)
    return found


@pytest.mark.parametrize("row", BY_LEAF, ids=name_of_row)
def test_every_recipe_has_the_value_and_the_source_that_the_row_tells(row):
    for (pattern, value, source), recipes in by_line(row).items():
        assert recipes, f"no recipe is left for {pattern}"
        assert source
        for own in recipes:
            assert text_of(own.leaves()[row["leaf"]]) == value, own.name
            assert own.sources[row["leaf"]].startswith(source), own.name


@pytest.mark.parametrize("row", [row for row in BY_LEAF if "theirs" in row], ids=name_of_row)
def test_the_authors_value_can_be_given_in_every_kind_of_recipe(row):
    name = row["leaf"].split(".")[1]
    given = row.get("give", f"{name}={row['theirs']}").split()
    for recipes in by_line(row).values():
        changed = override(recipes[0], dict(part.split("=") for part in given))
        assert text_of(changed.leaves()[row["leaf"]]) == row["theirs"], recipes[0].name


@cache
def shown(name):
    """leaf -> what `hfc show` prints of it: the value and the source."""
    result = CliRunner().invoke(commands, ["show", name], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = re.findall(r"^(\w+\.\w+) +(\S.*?)  +(\S.*)$", result.stdout, flags=re.MULTILINE)
    return {leaf: (value, source) for leaf, value, source in lines}


# The page


def test_the_page_is_what_is_made_of_the_data_file_and_the_committed_effects():
    """`make results` writes it."""
    text = PAGE.PAGE.read_text()
    assert PAGE.page(text, HELD, pd.read_csv(PAGE.EFFECTS)) == text
    assert text.count(". Effect") == len(ROWS)
    assert len(text.encode()) <= 35_000


def test_the_effects_on_digits_have_five_seeds_in_both_forms():
    rows = pd.read_csv(PAGE.EFFECTS)
    counts = rows.fillna({"value": ""}).groupby(["row", "value", "seed"]).size()
    assert set(counts) == {5} and all(
        (row, value, seed) in counts for row, value, seeds in EFFECTS.VARIANTS for seed in seeds
    )
