"""Run folders as committed rows: nothing is lost, doubled or mixed; trained again they are equal."""

import csv
import json
import math
import re
import runpy
import sys
from pathlib import Path

import pytest

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.rows import RowFile
from avalanche_hfc.lab.table import TableRun, train

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
NAMES = ("digits-b0-t5-ncm@demo", "digits-b0-t5-ranpac@demo")  # trained in seconds
FILES = ("runs.csv", "steps.csv", "classes.csv", "recipes.json")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs on digits, in folders as `hfc table` has them."""
    folder = tmp_path_factory.mktemp("digits") / "runs"
    for name in NAMES:
        for seed in (0, 1):
            train(TableRun(recipe(name), seed, folder / name / str(seed)))
    return folder


@pytest.fixture
def script(monkeypatch, capsys):
    """Runs a script as a user does, in this process; gives exit code, output and errors."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))

    def run(name, *words):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(EXPERIMENTS / f"{name}.py"), run_name="__main__")
        said = capsys.readouterr()
        return end.value.code, said.out, said.err

    return run


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def bytes_of(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def test_every_run_is_collected_once_whatever_the_order_of_the_calls(script, runs, tmp_path):
    first, second = tmp_path / "all", tmp_path / "by and by"
    code, out, _ = script("collect", runs, "--out", first)
    assert code == 0 and f"4 runs in {first}, 4 of them new; 0 not finished." in out
    script("collect", runs / NAMES[1], "--out", second)
    script("collect", runs / NAMES[0] / "1", "--out", second)
    code, out, _ = script("collect", runs, "--out", second)
    assert code == 0 and "4 runs" in out and "1 of them new" in out
    assert bytes_of(first) == bytes_of(second)
    assert script("collect", runs, "--out", first)[0] == 0 and bytes_of(first) == bytes_of(second)


def test_the_numbers_are_those_of_the_run_folders(script, runs, tmp_path):
    script("collect", runs, "--out", tmp_path)
    steps = rows(tmp_path / "steps.csv")
    for name in NAMES:
        for seed in ("0", "1"):
            own = [row for row in steps if (row["recipe"], row["seed"]) == (name, seed)]
            held = rows(runs / name / seed / "steps.csv")
            for column in ("step", "classes", "accuracy", "average", "forgetting", "fh", "seconds"):
                assert [row[column] for row in own] == [row[column] for row in held]
            (line,) = [
                row
                for row in rows(tmp_path / "runs.csv")
                if (row["recipe"], row["seed"]) == (name, seed)
            ]
            accuracies = [100 * float(row["accuracy"]) for row in held]
            assert float(line["average"]) == pytest.approx(math.fsum(accuracies) / 5)
            assert float(line["last"]) == pytest.approx(accuracies[-1])
            assert float(line["fh"]) == pytest.approx(
                math.fsum(1000 * float(row["fh"]) for row in held) / 5
            )
            note = json.loads((runs / name / seed / "recipe.json").read_text())
            assert line["torch"] == note["versions"]["torch"]
            assert (line["machine"], line["finished"]) == (note["machine"], note["finished"])
    settings = json.loads((tmp_path / "recipes.json").read_text())
    assert settings[NAMES[1]]["method.name"] == "ranpac" and len(settings) == 2


@pytest.mark.parametrize("written", range(4))
def test_a_run_is_added_whole_after_a_kill_between_two_files(
    script, runs, tmp_path, monkeypatch, written
):
    """The call is repeated after it was killed when `written` files were there."""
    from real_images import rows as module

    script("collect", runs / NAMES[0], "--out", tmp_path / "rows")
    script("collect", runs, "--out", tmp_path / "whole")
    calls = []

    def killed(write):
        def one(*given):
            if len(calls) == written:
                raise KeyboardInterrupt
            calls.append(given)
            return write(*given)

        return one

    with monkeypatch.context() as patched:
        patched.setattr(module.RowFile, "replace", killed(module.RowFile.replace))
        patched.setattr(module, "replace_file", killed(module.replace_file))
        with pytest.raises(KeyboardInterrupt):
            script("collect", runs, "--out", tmp_path / "rows")
    script("collect", runs, "--out", tmp_path / "rows")
    assert bytes_of(tmp_path / "rows") == bytes_of(tmp_path / "whole")


def test_a_run_of_other_values_is_refused_with_both_and_nothing_is_written(script, runs, tmp_path):
    out = tmp_path / "rows"
    script("collect", runs / NAMES[0] / "0", "--out", out)
    before = bytes_of(out)
    other = TableRun(override(recipe(NAMES[1]), {"ridge": "7"}), 0, tmp_path / "other")
    train(other)
    code, _, err = script("collect", other.folder, "--out", out)
    assert code == 2 and "method.ridge 7.0, now" in err and NAMES[1] in err
    settings = json.loads((out / "recipes.json").read_text())
    settings[NAMES[0]]["train.batch_size"] = 3
    (out / "recipes.json").write_text(json.dumps(settings))
    code, _, err = script("collect", runs / NAMES[0] / "1", "--out", out)
    assert (
        code == 2 and f"The rows of {NAMES[0]} are of another recipe: train.batch_size 3, " in err
    )
    assert bytes_of(out) | {"recipes.json": b""} == before | {"recipes.json": b""}
    code, _, err = script("collect", tmp_path / "nowhere", "--out", out)
    assert code == 2 and "nowhere: no such folder" in err


def changed_row(folder, column, value):
    """The last step of the first recipe's seed 0 with another value."""
    path = folder / "steps.csv"
    lines = rows(path)
    line = next(
        row for row in lines if (row["recipe"], row["seed"], row["step"]) == (NAMES[0], "0", "4")
    )
    before, line[column] = line[column], value
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(line), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return before


def test_other_numbers_of_the_same_run_are_refused_other_times_are_not(script, runs, tmp_path):
    script("collect", runs, "--out", tmp_path)
    changed_row(tmp_path, "seconds", "1234.5")
    assert script("collect", runs, "--out", tmp_path)[0] == 0
    assert "1234.5" in (tmp_path / "steps.csv").read_text()  # the earlier rows stay
    was = changed_row(tmp_path, "accuracy", "0.125")
    code, _, err = script("collect", runs, "--out", tmp_path)
    assert code == 2 and f"{NAMES[0]}, seed 0, has other numbers than before" in err
    assert f"accuracy of step 5 was 0.125, is {was}" in err


def test_rows_are_reproduced_or_the_difference_is_named(script, runs, tmp_path):
    script("collect", runs, "--out", tmp_path)
    call = ["reproduce", tmp_path, "--recipe", NAMES[0]]
    code, out, _ = script(*call)
    assert (code, out) == (0, f"{NAMES[0]}, seed 0: equal.\n")
    was = changed_row(tmp_path, "accuracy", "0.125")
    code, out, _ = script(*call)
    assert code == 1 and f"1 values differ (accuracy of step 5 was 0.125, is {was})." in out
    text = (tmp_path / "runs.csv").read_text()
    (tmp_path / "runs.csv").write_text(text.replace("threads", "cores"))
    code, out, _ = script(*call)  # another machine may round otherwise
    assert code == 0 and "trained under other conditions: machine was " in out
    code, _, err = script("reproduce", tmp_path, "--recipe", "digits-b0-t5-hfc@demo")
    assert code == 2 and "No rows of digits-b0-t5-hfc@demo, seed 0. There are rows of: " in err
    code, _, err = script("reproduce", tmp_path / "nowhere")
    assert code == 2 and "There are rows of: none." in err


def test_the_committed_rows_on_digits_are_reproduced(script, tmp_path, monkeypatch):
    """Equal on the same kind of CPU with the same libraries; else the difference is named."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    from real_images.rows import COLUMNS

    name, seed = "digits-b0-t5-herding-replay@demo", "1"
    committed = EXPERIMENTS / "results" / "methods-demo"
    kept = [
        row | {"recipe": name}
        for row in rows(committed / "steps.csv")
        if (row["method"], row["losses"], row["seed"]) == ("herding-replay", "host", seed)
    ]
    conditions, *_ = json.loads((committed / "machine.json").read_text())["trained with"]
    line = {"recipe": name, "seed": seed, "machine": conditions["machine"]} | conditions["versions"]
    for file, lines in {"steps": kept, "runs": [line]}.items():
        blank = dict.fromkeys(COLUMNS[file], "")
        RowFile(tmp_path / f"{file}.csv", COLUMNS[file]).replace(blank | own for own in lines)
    code, out, _ = script("reproduce", tmp_path, "--recipe", name, "--seed", seed)
    assert code == 0, out
    others = [f"{word} was " for word in ("machine", "torch", "avalanche-lib", "timm", "numpy")]
    assert f"{name}, seed {seed}: equal" in out or any(word in out for word in others)


def test_the_runs_of_tables_that_have_no_rows_are_trained_and_added(
    script, runs, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    from real_images import tables

    class OnDigits(tables.Shown):
        """The two rows of a table that the runs here have."""

        @property
        def cells(self):
            return [entry for entry in super().cells if entry.recipe in NAMES]

    monkeypatch.setattr(tables, "SHOWN", (OnDigits("practical", 2, scale="demo"),))
    script("collect", runs, "--out", tmp_path / "all")
    script("collect", runs / NAMES[0], runs / NAMES[1] / "1", "--out", tmp_path / "rows")
    call = ["train_tables", tmp_path / "rows", "--data", tmp_path, "--runs", tmp_path / "runs"]
    code, out, _ = script(*call, "--plan")
    assert code == 0 and re.match(
        rf"1 run to train: about \d+\.\d hours of one core, .* minutes each \({NAMES[1]}\)\.", out
    )
    assert not (tmp_path / "runs").exists()
    code, out, _ = script(*call)
    assert code == 0 and f"4 of 4 runs are in {tmp_path / 'rows'}." in out
    trained = [path.relative_to(tmp_path / "runs") for path in tmp_path.glob("runs/*/*")]
    assert trained == [Path(NAMES[1]) / "0"]
    times = ("seconds", "finished")
    for file in ("runs.csv", "steps.csv"):
        now, expected = (rows(tmp_path / place / file) for place in ("rows", "all"))
        for line in now + expected:
            line |= dict.fromkeys(times, "")
        assert now == expected
    monkeypatch.setattr("avalanche_hfc.lab.run.run", None)  # a second call trains nothing
    assert script(*call)[0] == 0
    code, out, _ = script(*call, "--plan")
    assert code == 0 and out == f"4 of 4 runs are in {tmp_path / 'rows'}.\n"
    code, _, err = script(*call, "--only", "pratical")
    assert code == 2 and "practical --scale demo" in err


def test_nothing_is_trained_on_test_images_before_its_row_is_tuned(script, tmp_path, monkeypatch):
    import avalanche_hfc.lab.published as tuned

    monkeypatch.setattr(tuned, "TUNED", {name: {} for name in tuned.TUNED if name != "podnet"})
    code, _, err = script(
        "train_tables", tmp_path, "--data", tmp_path, "--only", "memory --scale small"
    )
    assert code == 2 and "Not tuned yet: podnet." in err and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["train_tables", "reproduce"])
def test_data_that_is_not_there_is_named_before_anything_is_read(script, tmp_path, name):
    code, _, err = script(name, tmp_path, "--data", tmp_path / "no.npz")
    assert code == 2 and f"--data: no such file or folder: {tmp_path / 'no.npz'}" in err
