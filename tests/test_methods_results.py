"""What the README claims of all methods on digits is in the committed files."""

from pathlib import Path

import pandas as pd
import pytest

from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.report.methods import summarise, table
from avalanche_hfc.runs.methods import all_runs, forms
from avalanche_hfc.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results" / "methods_digits"
OURS = [name for name in STRATEGIES if not name.startswith("avalanche-") and name != "finetune"]


@pytest.fixture(scope="module")
def rows():
    return pd.read_csv(RESULTS / "steps.csv")


def test_every_method_that_can_run_is_there_in_all_its_forms_with_three_seeds(rows):
    steps = rows.sort_values("step").groupby(["method", "losses", "seed"])["step"].apply(list).to_dict()
    all_steps = list(range(DemoRecipe().num_steps))
    runs = all_runs(STRATEGIES, range(3))
    assert steps == {tuple(run): all_steps[-1:] if STRATEGIES[run.method].trains_on_stream else all_steps for run in runs}


@pytest.mark.parametrize(("method", "losses"), [(method, losses) for method in OURS for losses in forms(method)])
def test_every_method_of_ours_ends_above_fine_tuning(rows, method, losses):
    mean = summarise(rows).set_index(["method", "losses"])[["average", "last"]]
    assert (mean.loc[method, losses] > mean.loc["finetune", "host"]).all()


def test_the_committed_summary_and_table_follow_from_the_committed_rows(rows):
    pd.testing.assert_frame_equal(summarise(rows), pd.read_csv(RESULTS / "summary.csv"))
    assert (RESULTS / "table.md").read_text() == table(rows)


def test_the_readme_shows_the_committed_table():
    text = (ROOT / "README.md").read_text()
    assert text.count("<!-- methods-table -->") == text.count("<!-- /methods-table -->") == 1
    shown = text.split("<!-- methods-table -->")[1].split("<!-- /methods-table -->")[0]
    assert shown.strip() == (RESULTS / "table.md").read_text().strip()
