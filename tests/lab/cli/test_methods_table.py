"""`hfc table methods`: every method on digits, as it is and with both losses, in small."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

from avalanche_hfc.lab import FURTHER_TABLES
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.options import ONE_PASS
from avalanche_hfc.strategies import STRATEGIES

ROWS = ("finetune", "finetune+hfc", "joint", "avalanche-joint")


def table(out, *more):
    only = [word for row in ROWS for word in ("--only", row)]
    return CliRunner().invoke(
        commands, ["table", "methods", "--epochs", "1", "--out", str(out), *only, *more]
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("methods")
    result = table(out, "--seeds", "2")
    assert result.exit_code == 0, result.output
    return out, result.output


def test_every_method_that_can_run_has_a_row_here_or_in_practical_and_ours_one_with_both_losses_where_they_can_act():
    cells = {
        (cell.row, cell.losses)
        for table in ("methods", "practical")
        for cell, _ in FURTHER_TABLES[table]["demo"]
    }
    one_form = {
        "hfc",
        "joint",
        *ONE_PASS,
        *(name for name in STRATEGIES if name.startswith("avalanche-")),
    }
    able = [name for name, kind in STRATEGIES.items() if kind.cannot_run is None]
    assert sorted(cells) == sorted(
        [(name, "host") for name in able] + [(name, "hfc") for name in able if name not in one_form]
    )


def test_rows_summary_table_and_conditions_are_written_and_follow_from_the_runs(made):
    out, said = made
    folder = out / "tables" / f"methods-demo-{'-'.join(ROWS)}"
    rows = pd.read_csv(folder / "steps.csv")
    run = pd.read_csv(out / "digits-b0-t5-finetune+hfc@demo" / "1" / "steps.csv")
    own = rows[(rows["method"] == "finetune") & (rows["losses"] == "hfc") & (rows["seed"] == 1)]
    assert (
        own["accuracy"].tolist() == run["accuracy"].tolist()
        and own["average"].tolist() == run["average"].tolist()
    )
    joint = rows[rows["method"] == "joint"]
    assert (
        len(joint) == 2 and joint["average"].isna().all() and joint["accuracy"].notna().all()
    )  # one training: no average over steps
    assert (folder / "table.md").read_text().strip() in said and "| `joint` | – |" in said
    conditions = json.loads((folder / "machine.json").read_text())["trained with"]
    assert (
        len(conditions) == 1
        and "threads: " in conditions[0]["machine"]
        and conditions[0]["versions"]["torch"]
    )
    summary = pd.read_csv(folder / "summary.csv").set_index(["row", "losses", "column"])
    runs = rows.query("method == 'finetune' and losses == 'hfc'").groupby("seed")["accuracy"]
    assert summary.loc[("finetune", "hfc", "last"), "num_seeds"] == 2
    assert summary.loc[("finetune", "hfc", "last"), "ours"] == pytest.approx(
        100 * runs.last().mean()
    )
    assert r"\toprule" in (folder / "table.tex").read_text()


def test_finished_runs_are_not_run_again(made):
    out, _ = made
    before = {path: path.stat().st_mtime_ns for path in out.glob("digits*/*/steps.csv")}
    again = table(out, "--seeds", "2")
    assert again.exit_code == 0
    assert {
        path: path.stat().st_mtime_ns for path in out.glob("digits*/*/steps.csv")
    } == before and len(before) == 8


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_the_table_exists_on_digits_only(tmp_path, scale):
    result = table(tmp_path, "--scale", scale)
    assert result.exit_code and f"Table methods exists at scale demo, not at {scale}" in str(
        result.exception
    )
    assert list(tmp_path.iterdir()) == []
