"""What the pages claim of all methods on digits is in the committed files."""

import re

import pandas as pd
import pytest
from pages import DOCS, GENERATED, PAGES, ROOT, name_of
from result_numbers import blocks, numbers, read_forms, untold

from avalanche_hfc.lab import FURTHER_TABLES, recipe
from avalanche_hfc.report.tables import comparison_grid, markdown, table_of

RESULTS = ROOT / "experiments" / "results" / "methods-demo"
PAGE = (DOCS / "results.md").read_text()
SETTINGS = {  # numbers with a decimal point that are no results of ours, page by page
    "README.md": {"3.11"},
    "CONTRIBUTING.md": set(),
    "docs/getting-started.md": {"3.11"},
    "docs/versions.md": {"3.11", "3.12", "3.13"},
    "docs/methods.md": {"73.7", "67.3", "72.0"},  # printed by others
}
CELLS = FURTHER_TABLES["methods"]["demo"]
OURS = [
    (cell.row, cell.losses)
    for cell, _ in CELLS
    if not cell.row.startswith("avalanche-") and cell.row not in ("finetune", "joint")
]


@pytest.fixture(scope="module")
def rows():
    return pd.read_csv(RESULTS / "steps.csv")


def test_every_method_that_can_run_is_there_in_all_its_forms_with_five_seeds(rows):
    steps = (
        rows.sort_values("step").groupby(["method", "losses", "seed"])["step"].apply(list).to_dict()
    )
    assert steps == {
        (cell.row, cell.losses, seed): list(range(recipe(name).data.total_steps))
        for cell, name in CELLS
        for seed in range(5)
    }


@pytest.fixture(scope="module")
def summary(rows):
    names = {(cell.row, cell.losses): name for cell, name in CELLS}
    recipes = [names[form] for form in zip(rows["method"], rows["losses"], strict=True)]
    return table_of("methods", "demo", CELLS, rows.assign(recipe=recipes))


@pytest.mark.parametrize(("method", "losses"), OURS)
def test_every_method_of_ours_ends_above_fine_tuning(summary, method, losses):
    mean = summary.set_index(["row", "losses", "column"])["ours"]
    for column in ("average", "last"):
        assert mean[method, losses, column] > mean["finetune", "host", column]


def test_the_committed_summary_and_table_follow_from_the_committed_rows(summary):
    committed = pd.read_csv(RESULTS / "summary.csv").fillna({"mark": "", "recipe": ""})
    pd.testing.assert_frame_equal(summary, committed, check_dtype=False)
    assert (RESULTS / "table.md").read_text() == markdown(comparison_grid(summary))


def between(start, end):
    assert PAGE.count(start) == PAGE.count(end) == 1
    return PAGE.split(start)[1].split(end)[0]


def test_the_page_of_results_shows_the_committed_table():
    assert (
        between("<!-- methods-table -->", "<!-- /methods-table -->").strip()
        == (RESULTS / "table.md").read_text().strip()
    )


def test_every_number_told_of_results_in_a_marked_part_is_in_the_committed_rows():
    found = [block for page in PAGES for block in blocks(page.read_text())]
    text = "".join(page.read_text() for page in PAGES)
    assert len(found) >= 2
    assert len(found) == text.count("<!-- results:") == text.count("<!-- /results -->")
    for folders, inside in found:
        rows = read_forms(RESULTS.parent / folder / "steps.csv" for folder in folders)
        assert numbers(inside)
        assert untold(inside, rows) == []


def outside_marks(text):
    """A page without its marked parts, tables and code."""
    text = GENERATED.sub("", text)
    text = re.sub(r"<!-- (methods-table|results)[^>]*-->.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^\|.*\|$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "fidelity.md"], ids=name_of)
def test_no_number_is_told_of_results_but_in_tables_and_marked_parts(page):
    """docs/fidelity.md has a test of its own."""
    told = {digits for _, digits in numbers(outside_marks(page.read_text()))}
    assert told == SETTINGS.get(name_of(page), set())


FORMS = {
    ("a", "icarl", "host"): {
        0: {"average": 70.04, "last": 50.0},
        1: {"average": 72.04, "last": 40.0},
    },
    ("a", "icarl", "hfc"): {
        0: {"average": 75.0, "last": 45.0},
        1: {"average": 79.08, "last": 41.0},
    },
    ("a", "bic", "host"): {
        0: {"average": 60.0, "last": 31.0, "step 1": 93.3},
        1: {"average": 61.0, "last": 32.0, "step 1": 95.3},
    },
}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`icarl` has 71.0 on average, 45.0 at the end", []),
        ("`icarl` has 71.1 on average", ["71.1"]),
        ("`icarl` has 71.04 ± 1.00 (standard deviation 1.41)", []),
        ("`bic` has 71.0", ["71.0"]),  # another method's
        ("they reach 71.0 and 60.5", []),  # no name: of all
        ("`icarl` gains +6.0 ± 1.0 by the losses, at the end it loses 2.0: -2.0", []),
        ("`icarl` loses: -6.0", ["-6.0"]),
        ("`bic` and `icarl` differ: -10.5, or +10.5", []),
        ("`icarl` has 70.0", ["70.0"]),
        ("`icarl` has 70.0 with seed 0", []),
        ("`bic` has 94.3", ["94.3"]),
        ("`bic` has 94.3 after the first step", []),
        ("`icarl` with `beta=0.8`, β = 0.5, weights = 0.25, 0.75, 20 exemplars, version 0.6.0", []),
        ("- `icarl` has 71.0\n- `bic` has 71.0", ["71.0"]),
        ("`icarl` has 71.0.\n\n`bic` has 71.0.", ["71.0"]),
        ("`icarl` gains 5.3–7.7", ["5.3", "7.7"]),
    ],
)
def test_a_number_that_no_row_gives_is_found(text, missing):
    assert [number for number, _ in untold(text, FORMS)] == missing
