"""`hfc run`, in this process."""

import io
import os
import signal
import sys

import pandas as pd
import pytest
from tiny_runs import rows_of

from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.cli.progress import RunBar, TensorBoardBar
from avalanche_hfc.lab.run_folder import RunFolder

pytestmark = pytest.mark.quick  # the run of that tier
NAME = "digits-b0-t5-hfc@demo"
COMMAND = ["run", NAME, "--epochs", "1", "--batch-size", "128", "--model.msa-blocks=1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "digits-b0-t5-hfk@demo"], "Did you mean digits-b0-t5-hfc@demo"),
        (["run", NAME, "--epoch", "3"], "Did you mean train.epochs"),
        (["run", NAME, "--epochs", "many"], "train.epochs must be"),
        (["run", NAME, "--seed", "-1"], "-1 is not in the range"),
        (["run", NAME, "--seeds", "0-"], "'0-' is not of the form 0-4 or 0,2,5"),
        (["run", NAME, "--seeds", "1,0-2"], "'1,0-2' must name each seed once"),
        (["run", NAME, "--seeds", "0-1", "--seed", "1"], "Choose --seed or --seeds, not both"),
        (["resume", "nowhere"], "nowhere is not a run folder: it has no recipe.json"),
        (["table", "methods", "--only", "mine:Own"], "A method that you wrote: --add module:Class"),
        (["table", "methods", "--add", "podnet"], "--add takes a method that you wrote"),
        (["run", NAME, "--device", "tpu7"], "No device 'tpu7' here"),
        (["run", "cifar100-b0-t5-hfc@small", "--data", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_named_with_exit_code_2_and_nothing_is_written(
    shell, tmp_path, arguments, said
):
    code, output, errors = shell(*arguments)
    assert code == 2 and said in errors and "Traceback" not in errors and output == ""
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_is_done_and_tells_the_command_that_goes_on(shell, tmp_path, monkeypatch):
    folder = tmp_path / "runs" / NAME / "0"
    with monkeypatch.context() as patch:
        patch.setattr(
            RunBar,
            "epoch",
            lambda bar, row: row["step"] == 2 and os.kill(os.getpid(), signal.SIGINT),
        )
        code, output, errors = shell(*COMMAND)
    assert (
        code == 130
        and errors.endswith(f"To resume:\nhfc {' '.join(COMMAND)}\n")
        and output == ""
        and "Traceback" not in errors
    )
    assert len(pd.read_csv(folder / "steps.csv")) == 2 and not (folder / "lock").exists()
    code, output, errors = shell(*COMMAND)
    assert code == 0 and "resumes" in (folder / "log.txt").read_text()
    assert [line.split(":")[0] for line in errors.splitlines() if line.startswith("step")] == [
        "step 3/5",
        "step 4/5",
        "step 5/5",
    ]
    last = pd.read_csv(folder / "steps.csv").iloc[-1]
    assert output == (
        f"{NAME}, seed 0: accuracy average {last['average']:.4f}, last "
        f"{last['accuracy']:.4f} on 10 classes. Rows: runs/{NAME}/0\n"
    )
    assert shell(*COMMAND) == (0, output, "This run is already finished; nothing was done.\n")
    code, _, errors = shell(*COMMAND, "--lr", "0.5")
    assert code == 2 and "another recipe (train.lr 0.001, now 0.5)" in errors
    assert shell(*COMMAND, "--out", "whole")[0] == 0
    assert (
        rows_of(folder) == rows_of(tmp_path / "whole" / NAME / "0") and RunFolder(folder).finished
    )


def test_seeds_are_trained_in_turn_and_fresh_moves_the_old_run_aside(shell, tmp_path):
    short = [*COMMAND, "--num-steps", "2", "--method.relation-weight", "0.5"]
    name = "digits-b0-t2-hfc@demo"  # as many steps as it has
    code, output, _ = shell(*short, "--seeds", "0,2")
    assert code == 0 and [line.split(":")[0] for line in output.splitlines()] == [
        f"{name}, seed 0",
        f"{name}, seed 2",
    ]
    folders = tmp_path / "runs" / name
    assert sorted(path.name for path in folders.iterdir()) == ["0", "2"]
    before = {seed: rows_of(folders / seed) for seed in ("0", "2")}
    code, _, errors = shell(*short, "--seeds", "0-2", "--lr", "0.5")
    assert code == 2 and "another recipe (train.lr 0.001, now 0.5)" in errors
    assert not (folders / "1").exists()
    code, output, errors = shell(*short, "--fresh", "--lr", "0.5")
    assert code == 0 and f"The earlier runs are now in runs.old-1/{name}." in errors
    assert rows_of(tmp_path / "runs.old-1" / name / "0") == before["0"] != rows_of(folders / "0")
    assert rows_of(folders / "2") == before["2"]


BAD_INPUT = [
    (["--precision", "float16", "--device", "cpu"], "float16"),
    (["--model.weights", "nowhere.pt"], "nowhere.pt"),
]


@pytest.mark.parametrize("words, said", BAD_INPUT)
def test_fresh_moves_nothing_before_the_input_is_accepted(shell, tmp_path, words, said):
    folder = tmp_path / "runs" / NAME / "0"
    folder.mkdir(parents=True)
    RunFolder(folder).begin(recipe(NAME).as_dict(), 0, "a machine")
    before = (folder / "recipe.json").read_bytes()
    code, _, errors = shell(*COMMAND, "--fresh", *words)
    assert code == 2 and said in errors
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert [path.name for path in folder.iterdir()] == ["recipe.json"]
    assert (folder / "recipe.json").read_bytes() == before


def test_fresh_moves_nothing_if_one_of_the_folders_is_no_run(shell, tmp_path):
    folder = tmp_path / "runs" / NAME
    for seed in ("0", "1"):
        (folder / seed).mkdir(parents=True)
    RunFolder(folder / "0").begin(recipe(NAME).as_dict(), 0, "a machine")
    (folder / "1" / "steps.csv").write_text("of somebody")
    code, _, errors = shell(*COMMAND, "--fresh", "--seeds", "0,1")
    assert code == 2 and "has steps.csv but no recipe.json" in errors
    assert (folder / "0" / "recipe.json").exists() and not (tmp_path / "runs.old-1").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(listener):
    """A run of three steps that resumes in the middle of the second."""
    listener.begin([100, 60, 40], 1.5)
    listener.batch(0.25)
    listener.epoch(
        {
            "step": 1,
            "phase": "train",
            "epoch": 1,
            "loss_total": 0.5,
            "loss_relation": 0.125,
            "images_per_second": 812.4,
        }
    )
    row = {
        "step": 1,
        "accuracy": 0.75,
        "average": 0.8,
        "classes": 4,
        "seconds": 12.3,
        "images_per_second": 800.0,
    }
    listener.step(row)
    listener.batch(0.5)
    listener.step({**row, "step": 2, "average": float("nan"), "classes": 6})


def test_on_a_terminal_lines_tell_the_steps_and_a_bar_loss_speed_and_time_left(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    bar = RunBar("a run")
    told(bar)
    bar.close()
    shown = screen.getvalue()
    assert "a run\n" in shown and "step 2/3 |" in shown and "step 3/3 |" in shown and "<" in shown
    assert "loss 0.5, 812 images/s" in shown and "relation" not in shown
    assert "step 2/3: accuracy 0.750, average 0.800 on 4 classes; 12 s, 800 images/s\n" in shown
    assert " 65%" in shown and " 80%" in shown and "100%" in shown  # 130, 160 and 200 images of 200


def test_elsewhere_plain_lines_tell_the_steps_and_an_epoch_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("avalanche_hfc.lab.cli.progress.time.monotonic", lambda: now[0])
    bar = RunBar("a run")
    now[0] = 31
    told(bar)
    bar.close()
    assert capsys.readouterr().err.splitlines() == [
        "step 2/3, train epoch 2: loss 0.5, 812 images/s",
        "step 2/3: accuracy 0.750, average 0.800 on 4 classes; 12 s, 800 images/s",
        "step 3/3: accuracy 0.750 on 6 classes; 12 s, 800 images/s",
    ]


def test_curves_for_tensorboard_hold_the_numbers_of_the_rows(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told(TensorBoardBar("a run", tmp_path))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [
        (event.step, event.value) for event in events.Scalars("train/step 1/train/loss_relation")
    ] == [(1, 0.125)]
    assert [(event.step, event.value) for event in events.Scalars("steps/accuracy")] == [
        (1, 0.75),
        (2, 0.75),
    ]
    assert [event.step for event in events.Scalars("steps/average")] == [1]
