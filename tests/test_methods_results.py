"""What the README claims of all methods on digits is in the committed files."""

from pathlib import Path

import pandas as pd
import pytest

from avalanche_hfc.recipes import FURTHER_TABLES, recipe
from avalanche_hfc.report.methods import summarise, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results" / "methods"
CELLS = FURTHER_TABLES["methods"]["demo"]
OURS = [(cell.row, cell.losses) for cell, _ in CELLS if not cell.row.startswith("avalanche-") and cell.row not in ("finetune", "joint")]


@pytest.fixture(scope="module")
def rows():
    return pd.read_csv(RESULTS / "methods-demo-steps.csv")


def test_every_method_that_can_run_is_there_in_all_its_forms_with_five_seeds(rows):
    steps = rows.sort_values("step").groupby(["method", "losses", "seed"])["step"].apply(list).to_dict()
    assert steps == {
        (cell.row, cell.losses, seed): list(range(recipe(name).data.total_steps)) for cell, name in CELLS for seed in range(5)
    }


@pytest.mark.parametrize(("method", "losses"), OURS)
def test_every_method_of_ours_ends_above_fine_tuning(rows, method, losses):
    mean = summarise(rows).set_index(["method", "losses"])[["average", "last"]]
    assert (mean.loc[method, losses] > mean.loc["finetune", "host"]).all()


def test_the_committed_summary_and_table_follow_from_the_committed_rows(rows):
    pd.testing.assert_frame_equal(summarise(rows), pd.read_csv(RESULTS / "methods-demo.csv"))
    assert (RESULTS / "methods-demo.md").read_text() == table(rows)


def test_the_readme_shows_the_committed_table():
    text = (ROOT / "README.md").read_text()
    assert text.count("<!-- methods-table -->") == text.count("<!-- /methods-table -->") == 1
    shown = text.split("<!-- methods-table -->")[1].split("<!-- /methods-table -->")[0]
    assert shown.strip() == (RESULTS / "methods-demo.md").read_text().strip()
