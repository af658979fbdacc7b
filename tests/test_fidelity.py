"""docs/fidelity.md: complete, backed by tests that exist, and in agreement with the recipes and
with `hfc show`.
"""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from click.testing import CliRunner

from avalanche_hfc.cli.main import commands
from avalanche_hfc.recipes import METHODS, override, recipe
from avalanche_hfc.recipes.describe import text_of
from avalanche_hfc.recipes.options import HARDWARE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fidelity.md"
OURS = [name for name in METHODS if not name.startswith("avalanche-")]
DETAILS = [
    "loss",
    "distillation",
    "head",
    "initialisation",
    "optimizer",
    "schedule",
    "phases",
    "sampling",
    "memory",
    "herding",
    "augmentation",
    "inference",
]
COLUMNS = ["detail", "authors", "ours", "same?", "checked", "why, and effect"]
VERDICT = re.compile(r"same|departs|–|option `(\w+)=([\w.-]+)`")
TOLD = (
    "model.",
    "train.",
    "memory.",
    "method.",
    "data.transforms",
    "data.image_size",
)  # what of a recipe a table must tell
ABSENT = "–"


class Row(NamedTuple):
    """A detail of a method, the cells of one line."""

    detail: str
    authors: str
    ours: str
    verdict: str
    checked: str
    why: str


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text):
    """Every table of a text as lists of cells, the line of dashes left out."""
    found, lines = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(cells(line))
        elif lines:
            assert all(set(cell) <= set("-:") for cell in lines[1])
            found.append([lines[0], *lines[2:]])
            lines = []
    return found


@cache
def sections():
    """Method -> its two tables: details, and values of recipes."""
    text = re.sub(
        r"<!--.*?-->", "", PAGE.read_text().split("\n## Effects on digits\n")[0], flags=re.DOTALL
    )
    parts = re.split(r"^## `([\w-]+)`$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(tables, parts[2::2]), strict=True))


def rows(method):
    return [Row(*line) for line in sections()[method][0][1:]]


def every_row():
    return [(method, row) for method in sections() for row in rows(method)]


def recipe_names(method):
    return [name.strip("`") for name in sections()[method][1][0][1:]]


def values(method, name):
    """What the page says of a recipe: leaf -> text."""
    head, *lines = sections()[method][1]
    column = head.index(f"`{name}`")
    found = {line[0]: line[column] for line in lines}
    assert len(found) == len(lines), "a value stands twice"
    return {leaf: text for leaf, text in found.items() if text != ABSENT}


def described():
    return [(method, name) for method in sections() for name in recipe_names(method)]


# The details


def test_every_method_of_ours_has_a_section_with_two_tables():
    assert sorted(sections()) == sorted(OURS)
    assert {method: len(found) for method, found in sections().items()} == dict.fromkeys(
        sections(), 2
    )


@pytest.mark.parametrize("method", OURS)
def test_the_details_are_the_twelve_in_their_order(method):
    head, *lines = sections()[method][0]
    assert head == COLUMNS and {len(line) for line in lines} == {len(COLUMNS)}
    assert list(dict.fromkeys(row.detail for row in rows(method))) == DETAILS
    places = [DETAILS.index(row.detail) for row in rows(method)]
    assert places == sorted(places)


def test_every_row_says_what_authors_and_we_do_and_whether_it_is_the_same():
    for method, row in every_row():
        assert row.authors and row.ours, (method, row.detail)
        assert VERDICT.fullmatch(row.verdict), (method, row)


def test_what_is_the_same_or_departs_says_how_that_was_checked_by_a_test_that_exists_or_by_reading():
    for method, row in every_row():
        files = re.findall(r"`(tests/[\w/]+\.py)`", row.checked)
        if row.verdict != ABSENT:
            assert files or row.checked == "read", (method, row)
        assert [file for file in files if not (ROOT / file).exists()] == [], (method, row.detail)
        assert files or row.checked in ("read", ABSENT), (method, row)


def test_a_departure_has_its_reason():
    assert [
        (method, row.detail)
        for method, row in every_row()
        if row.verdict == "departs" and not row.why
    ] == []


def options():
    found = []
    for method, row in every_row():
        match = VERDICT.fullmatch(row.verdict)
        if match and match[1]:
            found.append((method, match[1], match[2]))
    return sorted(set(found))


@pytest.mark.parametrize(("method", "name", "value"), options(), ids=map("-".join, options()))
def test_an_option_named_is_one_of_the_method_its_models_or_its_training_and_takes_the_value(
    method, name, value
):
    taking = [
        own
        for own in map(recipe, recipe_names(method))
        if any(leaf.split(".", 1)[1] == name for leaf in own.leaves())
    ]
    assert taking, f"no recipe of {method} has a value {name}"
    for own in taking:
        changed = override(own, {name: value})
        assert [
            leaf
            for leaf, now in changed.leaves().items()
            if leaf.split(".", 1)[1] == name and text_of(now) == value
        ], own.name


@pytest.mark.parametrize("method", OURS)
def test_a_default_that_is_the_authors_way_is_not_called_an_option(method):
    """An option stands in the table where the default of the strategy or of the demonstration is
    another.
    """
    demo = recipe(recipe_names(method)[0]).leaves()
    for row in rows(method):
        match = VERDICT.fullmatch(row.verdict)
        if match and match[1]:
            assert [
                text_of(value) for leaf, value in demo.items() if leaf.split(".", 1)[1] == match[1]
            ] != [match[2]], row.detail


# The recipes


@pytest.mark.parametrize("method", OURS)
def test_each_method_has_a_run_on_digits_and_one_of_the_paper(method):
    named = [recipe(name) for name in recipe_names(method)]
    assert {own.method.name for own in named} == {method}
    assert (
        named[0].data.dataset == "digits"
        and named[0].scale == "demo"
        and "paper" in {own.scale for own in named}
    )


@pytest.mark.parametrize(("method", "name"), described(), ids=lambda value: value)
def test_every_value_of_a_recipe_stands_on_the_page_as_it_is(method, name):
    leaves = {
        leaf: text_of(value)
        for leaf, value in recipe(name).leaves().items()
        if leaf.startswith(TOLD) and leaf not in ("method.name", *HARDWARE)
    }
    said = values(method, name)
    assert {
        "not on the page": sorted(set(leaves) - set(said)),
        "not in the recipe": sorted(set(said) - set(leaves)),
    } == {
        "not on the page": [],
        "not in the recipe": [],
    }
    assert {
        leaf: (said[leaf], text) for leaf, text in leaves.items() if said[leaf] != text
    } == {}  # leaf: (page, recipe)


@pytest.mark.parametrize(("method", "name"), described(), ids=lambda value: value)
def test_hfc_show_prints_what_the_page_says(method, name):
    result = CliRunner().invoke(commands, ["show", name], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    printed = {
        leaf: rest.split("  ")[0].strip()
        for leaf, rest in re.findall(r"^(\w+\.\w+) +(\S.*)$", result.stdout, flags=re.MULTILINE)
    }
    said = values(method, name)
    assert {leaf: printed.get(leaf) for leaf in said} == said


def test_the_effects_on_digits_are_those_of_the_committed_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))  # it imports other scripts
    script = importlib.util.spec_from_file_location("effects", ROOT / "experiments" / "effects.py")
    effects = importlib.util.module_from_spec(script)
    script.loader.exec_module(effects)
    rows = pd.read_csv(ROOT / "experiments" / "results" / "effects" / "steps.csv")
    shown = PAGE.read_text().split("<!-- effects -->")[1].split("<!-- /effects -->")[0].strip()
    assert shown == effects.table(rows).strip()
    counts = rows.fillna({"value": ""}).groupby(["row", "value", "seed"]).size()
    assert set(counts) == {5} and all(
        (row, value, seed) in counts for row, value, seeds in effects.VARIANTS for seed in seeds
    )
