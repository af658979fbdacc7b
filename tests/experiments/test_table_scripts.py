"""Every script of a table or figure, on digits with one seed and one epoch. The runs are shared, as
those of a user's tables are.
"""

import os
import runpy
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

from avalanche_hfc.lab import TABLES
from avalanche_hfc.lab.lock import RunLock
from avalanche_hfc.report.tables import own_cells

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
PAPER = pd.read_csv(EXPERIMENTS / "paper.csv")
KEYS = [
    "row",
    "losses",
    "backbone",
    "dataset",
    "base_fraction",
    "num_steps",
    "mem_size",
    "per_class",
]
SHORT = ["--epochs", "1", "--batch-size", "128"]
SCRIPTS = {  # script: table, rows; most need the same runs
    "table_imagenet1000": ("imagenet1000", ["hfc", "joint"]),
    "table_steps_imagenet100": ("steps-imagenet100", ["hfc", "icarl"]),
    "table_steps_imagenet1000": ("steps-imagenet1000", ["hfc"]),
    "table_fh": ("fh", ["hfc", "icarl"]),
    "table_ablation": ("ablation", ["hfc", "baseline"]),
    "table_cifar100": ("cifar100", ["hfc", "joint"]),
    "table_imagenet100": ("imagenet100", ["hfc", "icarl"]),
    "table_plug_and_play": ("plug-and-play", ["icarl", "icarl+hfc"]),
    "table_steps_plug_and_play": ("steps-plug-and-play", ["icarl", "icarl+hfc"]),
    "table_per_class_20": ("per-class-20", ["hfc"]),
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("tables") / "runs"


@pytest.fixture
def script(monkeypatch, tmp_path, capsys):
    """Runs a script as a user does, in this process; gives exit code, output and errors."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which the command replaces
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        try:
            runpy.run_path(str(EXPERIMENTS / f"{name}.py"), run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def only(rows):
    return [word for row in rows for word in ("--only", row)]


def no_training(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr("avalanche_hfc.lab.run.run", refuse)


def expected_columns(table, row):
    if row == "joint":
        return {"last"}
    if table.startswith("steps-"):
        return {"average", *(f"step {number}" for number in range(1, 6))}
    return {"fh", "average"} if table == "fh" else {"average"}


def measured(folder, recipe, column):
    """The number from the run's rows, by its definition."""
    steps = pd.read_csv(folder / recipe / "0" / "steps.csv")
    accuracies = list(steps["accuracy"])
    if column == "average":
        return 100 * sum(accuracies) / len(accuracies)
    if column == "fh":
        return 1000 * sum(steps["fh"]) / len(steps)
    return 100 * accuracies[-1 if column == "last" else int(column.split()[1]) - 1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_table_script_runs_its_cells_and_tells_what_they_were_trained_on(name, script, runs):
    table, rows = SCRIPTS[name]
    code, out, err = script(name, "--scale", "demo", "--out", runs, *SHORT, *only(rows))
    assert code == 0, err
    stem = "-".join([table, "demo", *rows])
    assert f"Tables: {runs / 'tables' / stem}.csv" in out and "Scale demo (digits, " in out
    numbers = pd.read_csv(runs / "tables" / f"{stem}.csv")
    wanted = own_cells(entry for entry in TABLES[table]["demo"] if entry.cell.row_name in rows)
    assert set(numbers["dataset"]) == {"digits"}
    found = numbers[(numbers["num_seeds"] == 1) & (numbers["column"] != "improvement")]
    assert len(found) == sum(len(expected_columns(table, entry.cell.row)) for entry in wanted)
    for entry in wanted:
        own = found
        for key, value in entry.cell._asdict().items():
            own = own[own[key].isna() if value is None else own[key] == value]
        assert set(own["column"]) == expected_columns(table, entry.cell.row) and set(
            own["recipe"]
        ) == {entry.recipe}
        for _, line in own.iterrows():
            assert line["ours"] == pytest.approx(
                measured(runs, entry.recipe, line["column"]), rel=1e-9
            )
    assert numbers["paper"].isna().all()  # other data, another network
    text, tex = ((runs / "tables" / f"{stem}.{ending}").read_text() for ending in ("md", "tex"))
    assert text.strip() in out and tex.count(r"\begin{tabular}") == 1
    assert all(entry.cell.row in text and entry.cell.row in tex for entry in wanted)


def test_a_run_that_fails_is_named_and_the_others_go_on(script, tmp_path):
    call = ["table_imagenet1000", "--scale", "demo", *SHORT, "--only", "hfc", "--only", "joint"]
    folder = tmp_path / "runs" / "digits-b0-t5-hfc@demo" / "0"
    folder.mkdir(parents=True)
    with RunLock(folder / "lock"):
        code, out, err = script(*call)
    assert (
        code == 1
        and "Failed: digits-b0-t5-hfc@demo, seed 0: " in err
        and f"in use by process {os.getpid()}" in err
    )
    numbers = pd.read_csv(
        tmp_path / "runs" / "tables" / "imagenet1000-demo-hfc-joint.csv"
    ).set_index("row")
    assert numbers["num_seeds"].to_dict() == {"joint": 1} and "| joint | ours, 1 seed |" in out


def test_an_interrupted_table_keeps_what_is_done_and_tells_the_command_that_goes_on(
    script, tmp_path, monkeypatch
):
    done = []

    def two_then_stop(recipe, seed, folder, **options):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(recipe.name)
        folder.mkdir(parents=True)
        (folder / "steps.csv").write_text("step,classes,accuracy,average\n0,10,0.5,0.5\n")

    monkeypatch.setattr("avalanche_hfc.lab.run.run", two_then_stop)
    code, _, err = script("table_fh", "--scale", "demo", "--epochs", "1")
    assert code == 130 and done == ["digits-b0-t5-icarl@demo", "digits-b0-t5-foster@demo"]
    assert err.rstrip().endswith("hfc table fh --scale demo --epochs 1")
    assert "2/8" in err and "digits-b0-t5-foster@demo, seed 0: average 50.0 %, last 50.0 %" in err
    assert (tmp_path / "runs" / done[1] / "0" / "steps.csv").exists() and not (
        tmp_path / "runs" / "tables"
    ).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scale", "dmeo"], "Did you mean 'demo'?"),
        (["--only", "icral"], "Did you mean 'icarl'?"),
        (["--epcohs", "3"], "Did you mean train.epochs?"),
        (["--epochs", "three"], "train.epochs must be a whole number, got 'three'"),
        (["--paper", "no.csv"], "no.csv: no such file"),
        (["--no-run"], "No finished run of table fh at scale demo"),
        (["--seeds", "0"], "0 is not in the range"),
        (["--tables", "/dev/null/tables"], "Not a folder"),
    ],
)
def test_a_mistake_is_answered_with_what_is_meant_and_nothing_is_written(
    script, tmp_path, monkeypatch, arguments, said
):
    no_training(monkeypatch)
    code, out, err = script("table_fh", *arguments)
    assert code == 2 and said in err and out == "" and list(tmp_path.iterdir()) == []


def test_a_value_that_some_rows_lack_is_used_where_it_is_and_said(script, tmp_path, monkeypatch):
    given = {}

    def note(recipe, seed, folder, **options):
        given[recipe.name] = dict(recipe.overrides)
        raise ValueError("stop here")

    monkeypatch.setattr("avalanche_hfc.lab.run.run", note)
    code, _, err = script(
        "table_imagenet1000", "--only", "hfc", "--only", "joint", "--relation-weight", "0.5"
    )
    assert code == 1 and "--relation-weight has no effect on digits-b0-t1-joint@demo." in err
    assert given == {
        "digits-b0-t5-hfc@demo": {"method.relation_weight": 0.5},
        "digits-b0-t1-joint@demo": {},
    }
    assert (
        err.count("stop here") == 2 and list(tmp_path.iterdir()) == []
    )  # once where it happens, once at the end


def test_a_table_without_the_papers_numbers_has_ours_and_says_so(
    script, runs, tmp_path, monkeypatch
):
    monkeypatch.setattr("avalanche_hfc.report.tables.BESIDE", tmp_path / "paper.csv")
    call = [
        "table_cifar100",
        "--scale",
        "demo",
        "--out",
        runs,
        "--tables",
        tmp_path / "tables",
        *SHORT,
        "--only",
        "joint",
    ]
    code, _, err = script(*call)
    assert code == 0 and "--paper FILE" in err
    numbers = pd.read_csv(tmp_path / "tables" / "cifar100-demo-joint.csv")
    assert len(numbers) == 1 and numbers["ours"].notna().all() and numbers["paper"].isna().all()


@pytest.mark.parametrize(
    ("name", "stem", "figures"),
    [
        ("table_cifar100", "cifar100", ["accuracy"]),
        ("table_fh", "fh", ["fh"]),
        ("table_imagenet100", "imagenet100", ["accuracy", "convergence"]),
    ],
)
def test_a_table_writes_its_figures_and_deleted_ones_come_back(
    name, stem, figures, script, runs, monkeypatch
):
    call = [name, "--scale", "demo", "--out", runs, *SHORT, *only(["hfc", "icarl"])]
    stem = f"{stem}-demo-hfc-icarl"
    code, out, err = script(*call)
    paths = [runs / "tables" / f"{stem}-{figure}.png" for figure in figures]
    assert code == 0 and f"Figures: {', '.join(map(str, paths))}" in out, err
    before = [path.read_bytes() for path in paths]
    assert all(png.startswith(b"\x89PNG") and len(png) > 5000 for png in before)
    for path in paths:
        path.unlink()
    no_training(monkeypatch)  # finished runs are not trained again
    for further in ([], ["--no-run"]):
        assert script(*call, *further)[0] == 0 and [p.read_bytes() for p in paths] == before


def test_there_is_a_script_for_every_table_of_the_paper():
    assert {table for table, _ in SCRIPTS.values()} == set(TABLES) == set(PAPER["table"])
    assert {path.stem for path in EXPERIMENTS.glob("table_*.py")} == set(SCRIPTS)
