"""The script that trains the paper's cells, on two small runs in place of hours."""

import runpy
import sys
from pathlib import Path

import pytest

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
VALUES = {"train.epochs": "1", "train.batch_size": "128"}


@pytest.fixture
def script(monkeypatch, tmp_path, capsys):
    """Runs the script's `main` on a whole run and on the first two steps of another."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    parts = runpy.run_path(str(EXPERIMENTS / "paper_scale.py"), run_name="paper_scale")
    work_of = {"whole": ("digits-b0-t5-icarl@demo", None), "first": ("digits-b50-t5-icarl@demo", 2)}

    def queue(runs, collected):
        return [
            parts["Work"](
                TableRun(override(recipe(name), VALUES), 0, runs / own), collected / own, steps
            )
            for own, (name, steps) in work_of.items()
        ]

    main = parts["main"]
    monkeypatch.setitem(main.__globals__, "queue", queue)
    monkeypatch.setattr("os.nice", lambda by: None)  # it would hold for all tests after this one
    runs, collected = tmp_path / "runs", tmp_path / "collected"
    words = ["--data", tmp_path, "--runs", runs, "--collected", collected, "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", ["paper_scale.py", *map(str, words)])
    return lambda: (main(), capsys.readouterr().out), parts["Told"], tmp_path


def test_runs_are_trained_once_and_collected_without_their_checkpoints(script):
    run, _, folder = script
    runs, collected = folder / "runs", folder / "collected"
    code, told = run()
    assert code == 0 and "2 of 2 runs are finished." in told
    steps = {name: len(RunFolder(collected / name).read("steps")) for name in ("whole", "first")}
    assert steps == {"whole": 5, "first": 2}
    assert RunFolder(collected / "whole").finished and not RunFolder(collected / "first").finished
    kept, there = (
        {path.name for path in (folder / "whole").iterdir()} for folder in (collected, runs)
    )
    assert there - kept <= {"checkpoint", "lock"} and "checkpoint" in there
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*.csv")}
    assert "step 0" not in run()[1]  # nothing is trained again
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*.csv")} == before


def test_a_run_that_was_broken_off_is_resumed(script, monkeypatch):
    def break_off(progress, row):
        if row["step"] == 1:
            raise KeyboardInterrupt

    run, told, folder = script
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(told, "epoch", break_off)
        run()
    assert run()[0] == 0
    assert "resumes" in (folder / "collected" / "whole" / "log.txt").read_text()
