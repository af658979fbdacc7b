"""What the pages show of real images is what the committed rows give."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from pages import DOCS, ROOT, section

from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.options import UPPER_BOUNDS
from avalanche_hfc.lab.run_folder import settings

ROWS = ROOT / "experiments" / "results" / "real-images"
OWN_FIGURES = "small-*.png"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))


def test_pages_and_figures_are_those_of_the_committed_rows():
    """After a change of rows: `make results`."""
    from real_images.page import files_of

    files = files_of(ROWS, ROOT)
    different = [
        path.relative_to(ROOT).as_posix()
        for path, content in files.items()
        if not path.is_file()
        or path.read_bytes() != (content if isinstance(content, bytes) else content.encode())
    ]
    assert different == []
    pictures = {path for path in files if path.suffix == ".png"}
    assert set((DOCS / "images").glob(OWN_FIGURES)) == pictures


def test_every_sentence_on_why_is_borne_out_by_the_rows():
    """One that is not leaves the page: write it anew."""
    from real_images.page import read_committed
    from real_images.trials import forms_of
    from real_images.why import ON_TESTS, ON_TRIALS, borne_out, on_tests

    rows = read_committed(ROWS)
    tests = on_tests(rows.runs, rows.classes)
    refuted = [own.text for own in ON_TESTS if borne_out(own, tests) is None]
    refuted += [own.text for own in ON_TRIALS if borne_out(own, forms_of(ROWS)) is None]
    assert refuted == []


def read(name):
    path = ROWS / f"{name}.csv"
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["recipe", "seed"])


def test_the_line_of_a_run_follows_from_its_steps():
    runs, steps = read("runs"), read("steps")
    assert not runs.duplicated(["recipe", "seed"]).any()
    assert set(zip(runs["recipe"], runs["seed"], strict=True)) == set(
        zip(steps["recipe"], steps["seed"], strict=True)
    )
    for _, run in runs.iterrows():
        own = steps[(steps["recipe"] == run["recipe"]) & (steps["seed"] == run["seed"])]
        own = own.sort_values("step")
        expected = recipe(run["recipe"]).data.total_steps
        assert list(own["step"]) == list(range(expected))
        accuracies = [100 * value for value in own["accuracy"]]
        assert run["last"] == pytest.approx(accuracies[-1])
        average = math.fsum(accuracies) / len(accuracies)
        if recipe(run["recipe"]).method.name not in UPPER_BOUNDS:
            assert run["average"] == pytest.approx(average)
        assert run["fh"] == pytest.approx(1000 * own["fh"].mean(), nan_ok=True)
        assert run["seconds"] == pytest.approx(own["seconds"].sum())


def test_the_rows_are_of_the_recipes_that_their_names_stand_for():
    """A setting that did not exist when the rows were made is not asked for."""
    path: Path = ROWS / "recipes.json"
    held = json.loads(path.read_text()) if path.is_file() else {}
    assert set(held) == set(read("runs")["recipe"])
    changed = {}
    for name, before in held.items():
        now = settings(recipe(name).as_dict())
        for leaf, value in before.items():
            if now.get(leaf) != value:
                changed[name, leaf] = (value, now.get(leaf))
    assert changed == {}


def test_what_was_checked_by_hand_is_told_as_it_was_noted():
    held = json.loads((ROWS / "by-hand.json").read_text())
    text = section((DOCS / "protocol.md").read_text(), "## Checked by hand")
    plan, again, compare = held["plan"], held["reproduce"], held["compare"]
    assert plan["runs"] == len(read("runs"))
    assert f"{plan['runs']} runs in {plan['hours']} hours of one core" in text
    assert f"{again['equal']} of {len(again['recipes'])} runs equal to their rows" in text
    trained_on = read("runs").set_index(["recipe", "seed"])["machine"]
    assert again["machine"] not in {trained_on[name, again["seed"]] for name in again["recipes"]}
    assert f"`{compare['command']}` on {len(compare['classes'])} classes" in text
    assert f"| {compare['runs']} runs in {compare['minutes']} minutes" in text
    assert compare["minutes"] <= int(compare["command"].split()[-1])
    second, lead = min(compare["ahead_of"].items(), key=lambda entry: entry[1])
    assert (
        f"It recommends `{compare['best']}`, {compare['average']} on average, {lead} points above "
        f"`{second}`"
    ) in text
    shared = set(read("classes")["name"]) & set(compare["classes"])
    assert f", {len(shared)} of them also among the 20 |" in text
