"""What the pages show of real images is what the committed rows give."""

import json
from pathlib import Path

import pandas as pd
import pytest
from pages import DOCS, ROOT

from avalanche_hfc.lab import recipe
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
