"""experiments/methods_digits.py in small: three methods, one seed, one epoch a step."""

import importlib.util
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.report.methods import summarise, table
from avalanche_hfc.runs.machine import cpu
from avalanche_hfc.runs.methods import MethodsFolder, Run, all_runs, forms
from avalanche_hfc.runs.pool import outcomes
from avalanche_hfc.strategies import STRATEGIES

SCRIPT = Path(__file__).parents[2] / "experiments" / "methods_digits.py"
SUBSET = ("finetune", "dytox", "avalanche-joint")
RUN = ["method", "losses", "seed"]


def script():
    spec = importlib.util.spec_from_file_location("methods_digits", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(out, *arguments, jobs=1, only=SUBSET, epochs=1):
    return script().main(["--epochs", str(epochs), "--seeds", "1", "--jobs", str(jobs), "--out", str(out), "--only", *only, *arguments])


def rows_of(out):
    return pd.read_csv(out / "steps.csv").set_index([*RUN, "step"]).sort_index()


@pytest.fixture(autouse=True)
def warnings_of_the_host_put_back(monkeypatch):
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # the script silences them for its process


@pytest.fixture(scope="module")
def subset(tmp_path_factory):
    out = tmp_path_factory.mktemp("methods")
    assert main(out) == 0
    return out


@pytest.fixture
def copy_of_subset(subset, tmp_path):
    for name in ("recipe.json", "steps.csv"):
        (tmp_path / name).write_bytes((subset / name).read_bytes())
    return tmp_path


def test_every_method_is_run_in_all_its_forms_and_has_a_row_per_step(subset):
    rows = pd.read_csv(subset / "steps.csv")
    assert rows.groupby(RUN)["step"].apply(list).to_dict() == {
        ("finetune", "host", 0): [0, 1, 2, 3, 4],
        ("finetune", "hfc", 0): [0, 1, 2, 3, 4],
        ("dytox", "host", 0): [0, 1, 2, 3, 4],
        ("dytox", "hfc", 0): [0, 1, 2, 3, 4],
        ("avalanche-joint", "host", 0): [4],
    }
    assert rows["accuracy"].between(0, 1).all() and set(rows["classes"]) == {2, 4, 6, 8, 10}


def test_the_losses_change_nothing_in_the_first_step_and_something_later(subset):
    rows = rows_of(subset)
    for method in ("finetune", "dytox"):
        host, hfc = (rows.loc[method, losses, 0]["fh"] for losses in ("host", "hfc"))
        assert host[0] == hfc[0] and (host[1:] != hfc[1:]).all()


def test_runs_that_are_there_are_not_run_again(subset, monkeypatch):
    monkeypatch.setattr("avalanche_hfc.runs.methods.run_method", lambda *arguments, **options: pytest.fail("ran"))
    before = {path.name: path.read_bytes() for path in subset.iterdir()}
    assert set(before) == {"recipe.json", "steps.csv", "summary.csv", "table.md"}
    assert main(subset) == 0
    assert {path.name: path.read_bytes() for path in subset.iterdir()} == before


def test_a_run_with_missing_rows_is_run_again_alone_with_the_same_result(subset, copy_of_subset, capsys):
    file = copy_of_subset / "steps.csv"
    lines = file.read_text().splitlines(keepends=True)
    short = [line for line in lines if not line.startswith(("finetune,hfc,0,3", "finetune,hfc,0,4"))]
    file.write_text("".join(short))
    assert len(short) == len(lines) - 2
    assert main(copy_of_subset) == 0
    assert "finetune with the losses, seed 0: had some of its rows only" in capsys.readouterr().err
    kept = [line for line in lines if not line.startswith("finetune,hfc")]
    assert file.read_text().startswith("".join(kept))  # all others as they were, times included
    pd.testing.assert_frame_equal(rows_of(copy_of_subset).drop(columns="seconds"), rows_of(subset).drop(columns="seconds"))


def test_summary_and_table_follow_from_the_rows(subset):
    rows, summary = pd.read_csv(subset / "steps.csv"), pd.read_csv(subset / "summary.csv")
    pd.testing.assert_frame_equal(summarise(rows), summary)
    assert (subset / "table.md").read_text() == table(rows)
    lines = {line.split("`")[1]: line for line in table(rows).splitlines() if line.startswith("| `")}
    assert list(lines) == ["finetune", "dytox", "avalanche-der", "avalanche-bic", "avalanche-joint"]
    for name in ("avalanche-der", "avalanche-bic"):
        assert "| cannot run |" in lines[name] and f"\n`{name}` cannot run. {STRATEGIES[name].cannot_run}\n" in table(rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "podnt", "hfc"], "Unknown method 'podnt'.*Did you mean 'podnet'"),
        (["--seeds", "0"], "0 is not 1 or more"),
        (["--jobs", "0"], "0 is not 1 or more"),
        (["--epochs", "-1"], "-1 is not 1 or more"),
    ],
)
def test_a_mistake_ends_with_code_2_and_nothing_written(tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as end:
        script().main(["--out", str(tmp_path / "new"), *arguments])
    assert end.value.code == 2 and list(tmp_path.iterdir()) == []
    assert pd.Series([capsys.readouterr().err]).str.contains(said).all()


def test_a_folder_of_other_settings_is_refused_and_kept(copy_of_subset, capsys):
    before = {path.name: path.read_bytes() for path in copy_of_subset.iterdir()}
    with pytest.raises(SystemExit) as end:
        main(copy_of_subset, epochs=2)
    assert end.value.code == 2 and "epochs 1, now 2" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in copy_of_subset.iterdir()} == before


def test_rows_made_with_other_options_are_refused_and_others_kept(copy_of_subset):
    recipe = DemoRecipe(epochs=1)
    with pytest.raises(ValueError, match=r"rows of dytox with other options \(tune_epochs None, now 3\)"):
        MethodsFolder(copy_of_subset, recipe, {"dytox": {"tune_epochs": 3}})
    MethodsFolder(copy_of_subset, recipe, {"foster": {"beta": 0.25}})  # has no rows here
    assert json.loads((copy_of_subset / "recipe.json").read_text())["options"] == {"foster": {"beta": 0.25}}


def test_recipe_json_tells_command_versions_and_machine_once_for_each(subset, copy_of_subset, capsys):
    held = json.loads((subset / "recipe.json").read_text())
    (call,) = held["commands"]
    assert f"--out {subset}" in call["command"] and call["machine"] == cpu() and (call["processes"], call["threads"]) == (1, 1)
    assert call["versions"]["torch"] == version("torch") and call["versions"]["python"] == platform.python_version()
    folder = MethodsFolder(copy_of_subset, DemoRecipe(epochs=1), script().OPTIONS)
    assert folder.begin(call["command"], 1) == ""
    assert json.loads((copy_of_subset / "recipe.json").read_text()) == held
    elsewhere = {**call, "machine": "abacus", "versions": {**call["versions"], "torch": "1.0"}}
    (copy_of_subset / "recipe.json").write_text(json.dumps({**held, "commands": [elsewhere]}))
    lines = (copy_of_subset / "steps.csv").read_text().splitlines(keepends=True)
    (copy_of_subset / "steps.csv").write_text("".join(line for line in lines if not line.startswith("avalanche-joint")))
    assert main(copy_of_subset) == 0
    assert f"machine abacus, now {cpu()}" in (said := capsys.readouterr().err) and f"torch 1.0, now {version('torch')}" in said
    assert [each["machine"] for each in json.loads((copy_of_subset / "recipe.json").read_text())["commands"]] == ["abacus", cpu()]


def test_a_killed_process_leaves_finished_runs_and_no_other_process(subset, tmp_path):
    out = tmp_path / "out"
    command = ["--epochs", "1", "--seeds", "1", "--jobs", "2", "--out", str(out), "--only", "finetune", "dytox"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    process = subprocess.Popen([sys.executable, str(SCRIPT), *command], stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr.readline().startswith("1/4")
    process.kill()
    process.communicate(timeout=60)  # ends when the last process that holds the pipe has ended
    folder = MethodsFolder(out, DemoRecipe(epochs=1), script().OPTIONS)
    assert folder.done and not folder.dropped
    kept = (out / "steps.csv").read_text()
    assert main(out, only=["finetune", "dytox"]) == 0
    assert (out / "steps.csv").read_text().startswith(kept)
    both = [rows_of(each).drop(columns="seconds").loc[["finetune", "dytox"]] for each in (out, subset)]
    pd.testing.assert_frame_equal(*both)


def test_a_row_of_a_method_that_does_not_exist_is_refused(copy_of_subset):
    with (copy_of_subset / "steps.csv").open("a") as file:
        file.write("podnt,host,0,0,2,71,0.5,nan,0.5,nan,0.1,0.1\n")
    with pytest.raises(ValueError, match="Unknown method in .*steps.csv: 'podnt'.*Did you mean 'podnet'"):
        MethodsFolder(copy_of_subset, DemoRecipe(epochs=1), {"foster": {"beta": 0.5, "compress_beta": 0.97}})


def test_ctrl_c_keeps_finished_runs_as_one_process_gives_them_and_names_the_command_that_goes_on(subset, tmp_path):
    out = tmp_path / "out"
    command = ["--epochs", "1", "--seeds", "1", "--jobs", "2", "--out", str(out), "--only", "finetune", "dytox"]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own: the signal reaches the workers, too, as on a terminal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell job ignores it
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr.readline().startswith("1/4")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said and "Warning" not in said
    assert " ".join([str(SCRIPT), *command]) in said
    folder = MethodsFolder(out, DemoRecipe(epochs=1), script().OPTIONS)
    assert folder.done and not folder.dropped
    kept = rows_of(out).drop(columns="seconds")
    pd.testing.assert_frame_equal(kept, rows_of(subset).drop(columns="seconds").loc[kept.index])


def test_a_run_that_fails_is_named_and_the_others_are_done(tmp_path, capsys, monkeypatch):
    def run_method(recipe, method, seed, tick, **options):
        if options["losses"] == "host":
            raise FloatingPointError("not finite")
        for step in range(5):
            numbers = dict.fromkeys(("classes", "images", "accuracy", "accuracy_nme", "average", "forgetting", "fh", "seconds"), 0.5)
            yield {"method": method, "seed": seed, "step": step, **numbers}

    monkeypatch.setattr("avalanche_hfc.runs.methods.run_method", run_method)
    assert main(tmp_path, only=["icarl"]) == 1
    said = capsys.readouterr().err
    assert "FloatingPointError: not finite" in said and "Failed: icarl, seed 0." in said
    assert set(pd.read_csv(tmp_path / "steps.csv")["losses"]) == {"hfc"}


def test_outcomes_come_in_order_with_one_job_and_an_error_is_one_of_them():
    first, second = outcomes(lambda number: 6 // number, [2, 0], jobs=1)
    assert first == (2, 3, None)
    assert second.item == 0 and second.result is None and "ZeroDivisionError" in second.error


def test_two_jobs_are_other_processes_of_one_thread_each(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    work = "__import__('os').getpid(), __import__('torch').get_num_threads()"
    found = [outcome.result for outcome in outcomes(eval, [work] * 6, jobs=2)]
    assert len(found) == 6 and {threads for _, threads in found} == {1}
    assert os.getpid() not in {process for process, _ in found}
    assert multiprocessing.active_children() == []


def test_all_of_ours_but_hfc_and_joint_are_run_in_both_forms_and_what_cannot_run_is_not():
    runs = all_runs(STRATEGIES, range(3))
    one_form = {"hfc", "joint", *(name for name in STRATEGIES if name.startswith("avalanche-"))}
    assert {name for name in STRATEGIES if forms(name) == ("host",)} == one_form
    assert {name for name in STRATEGIES if forms(name) == ("host", "hfc")} == set(STRATEGIES) - one_form
    assert {run.method for run in runs} == set(STRATEGIES) - {"avalanche-der", "avalanche-bic"}
    assert len(runs) == len(set(runs)) == 3 * (2 * 11 + 2 + 13)
    assert runs[0] == Run("hfc", "host", 0) and runs[-1].seed == 2
