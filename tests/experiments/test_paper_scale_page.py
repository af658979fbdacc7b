"""The page on the paper's own cells, and a cell trained again, from planted run folders."""

import json
import re
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from pages import tables

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.cli import commands

ROOT = Path(__file__).parents[2]
PRINTED = pd.read_csv(ROOT / "experiments" / "paper.csv")
FAST = {"train.precision": "bfloat16", "train.channels_last": "true"}
ICARL = "cifar100-b0-t10-icarl-resnet32@paper"
BOTH = "cifar100-b0-t10-icarl+hfc-resnet32@paper"
JOINT = "cifar100-b0-t1-joint-resnet32@paper"
FIVE = "cifar100-b0-t5-icarl-resnet32@paper"


def plant(folder, name, accuracies, *, values=FAST, finished=True):
    """A run folder as experiments/paper_scale.py collects it."""
    path = folder / name / "0"
    path.mkdir(parents=True)
    own = override(recipe(name), values).as_dict()
    note = {"recipe": own, "seed": 0, "versions": {"torch": "2"}, "machine": "one core"}
    note["commit"] = "0123456789abcdef"
    if finished:
        note["finished"] = "2026-11-20T12:00:00+00:00"
    (path / "recipe.json").write_text(json.dumps(note))
    steps = pd.DataFrame({"step": range(len(accuracies)), "accuracy": accuracies})
    steps["average"] = steps["accuracy"].expanding().mean()
    for column in ("accuracy_nme", "forgetting", "fh"):
        steps[column] = 0.25
    steps["classes"], steps["images"], steps["seconds"] = 10, 5000, 1800.0
    steps.to_csv(path / "steps.csv", index=False)


@pytest.fixture
def script(monkeypatch, capsys):
    """Runs a script of experiments/ with these words; gives its exit code and what it says."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))

    def run(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / "experiments" / f"{name}.py"), run_name="__main__")
        return stop.value.code, capsys.readouterr().out

    return run


def paper(table, row, losses, column, steps=10):
    fits = (PRINTED["table"] == table) & (PRINTED["row"] == row) & (PRINTED["losses"] == losses)
    fits &= (PRINTED["backbone"] == "resnet-32") & (PRINTED["num_steps"] == steps)
    fits &= (PRINTED["column"] == column) & (PRINTED["base_fraction"] == 0)
    (value,) = PRINTED[fits]["value"].astype(float)
    return value


def text(value, *, sign=False):
    return f"{value:+.1f}".replace("-", "−") if sign else f"{value:.1f}"


def test_every_number_of_the_page_is_that_of_a_row(script, tmp_path):
    rows = tmp_path / "paper-scale"
    icarl = [0.9 - 0.04 * step for step in range(10)]
    both = [0.91 - 0.039 * step for step in range(10)]
    plant(rows, ICARL, icarl)
    plant(rows, BOTH, both)
    plant(rows, JOINT, [0.75])
    plant(rows, FIVE, [0.9, 0.8], finished=False)  # it is still training
    exact = [0.895, 0.866]
    plant(tmp_path / "paper-scale-float32", ICARL, exact, values={}, finished=False)
    code, said = script("paper_scale_page", rows, "--out", tmp_path / "page.md")
    assert code == 0 and "Wrote" in said
    page = (tmp_path / "page.md").read_text()
    cells, curves, arithmetic = tables(page).values()

    def line(label, ours, printed, hours):
        numbers = text(ours), text(printed), text(ours - printed, sign=True)
        return [label, *numbers, "bfloat16, channels last", hours, "0123456789", "one core"]

    average = {"icarl": 100 * sum(icarl) / 10, "icarl+hfc": 100 * sum(both) / 10}
    printed = [paper("plug-and-play", "icarl", losses, "average") for losses in ("host", "hfc")]
    assert cells == [
        line("icarl, T = 10", average["icarl"], printed[0], "5.0"),
        line("icarl+hfc, T = 10", average["icarl+hfc"], printed[1], "5.0"),
        line("joint", 75.0, paper("plug-and-play", "joint", "host", "last"), "0.5"),
    ]
    added = average["icarl+hfc"] - average["icarl"], printed[1] - printed[0]
    ours, theirs = (text(value, sign=True) for value in added)
    assert f"in icarl, T = 10: {ours} here, {theirs} in the paper." in page
    table_10 = [
        [text(paper("steps-plug-and-play", "icarl", losses, f"step {k}")) for k in range(1, 11)]
        for losses in ("host", "hfc")
    ]
    assert curves == [
        ["icarl, ours", *(text(100 * value) for value in icarl)],
        ["icarl, paper", *table_10[0]],
        ["icarl+hfc, ours", *(text(100 * value) for value in both)],
        ["icarl+hfc, paper", *table_10[1]],
    ]
    assert arithmetic == [
        [f"icarl, T = 10, step {k + 1}", text(100 * exact[k]), text(100 * icarl[k]),
         text(100 * (icarl[k] - exact[k]), sign=True)]
        for k in range(2)
    ]  # fmt: skip
    assert "8 of 11 cells have no row yet" in page
    assert "One seed proves no difference of a point" in page
    assert "`icarl`, memory: theirs ⌈M/K⌉ of each class; ours ⌊M/K⌋." in page
    assert "divided by the classes seen" not in page  # these recipes have the authors' value
    assert "`ssil`" not in page  # no row of it


def test_the_table_shows_the_filled_cells_and_how_many_are_missing(tmp_path):
    plant(tmp_path, ICARL, [0.9 - 0.04 * step for step in range(10)])
    words = f"table plug-and-play --scale paper --no-run --out {tmp_path} --only icarl"
    values = [word for leaf, value in FAST.items() for word in (f"--{leaf}", value)]
    result = CliRunner().invoke(commands, [*words.split(), *values])
    assert result.exit_code == 0, result.output
    assert re.search(r"\| icarl, resnet-32 \| ours, 1 seed \|.* 72\.0 \|", result.stdout)
    assert re.search(r"\|  \| gap \|.* \+8\.1 \|", result.stdout)
    assert "Not finished: 8 of 9 runs. " in result.stderr


def test_without_a_finished_run_nothing_is_written(script, tmp_path):
    plant(tmp_path / "rows", ICARL, [0.9], finished=False)
    for folder in ("rows", "none"):
        code, said = script("paper_scale_page", tmp_path / folder, "--out", tmp_path / "page.md")
        assert (code, said.count("\n")) == (1, 1) and "No finished run" in said
    assert not (tmp_path / "page.md").exists()


def test_a_cell_trained_again_is_compared_with_its_row(script, monkeypatch, tmp_path):
    plant(tmp_path / "rows", FIVE, [0.9, 0.8])
    words = [tmp_path / "rows", "--data", tmp_path, "--again", tmp_path / "again"]
    trained = {"accuracies": [0.9, 0.8]}

    def train(run, *, data_root):
        plant(run.folder.parents[1], run.recipe.name, trained["accuracies"])

    monkeypatch.setattr("avalanche_hfc.lab.table.train", train)
    code, said = script("reproduce_paper", *words)
    assert code == 0 and said.splitlines() == [
        f"{FIVE} took 1.0 hours of one core of one core.",
        f"{FIVE}, seed 0: equal.",
    ]
    words[-1], trained["accuracies"] = tmp_path / "other", [0.9, 0.7]
    code, said = script("reproduce_paper", *words)
    assert code == 1 and "average 0.8500 was committed, 0.8000 came out." in said
    code, said = script("reproduce_paper", tmp_path / "none", "--data", tmp_path)
    assert (code, said.count("\n")) == (1, 1) and "nothing to compare with yet" in said
