"""The `hfc` command as a user types it."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from waiting import PATIENCE, has_rows, wait_for

HFC = str(Path(sys.executable).with_name("hfc"))
pytestmark = pytest.mark.skipif(
    not Path(HFC).exists(), reason="the package is not installed: no hfc beside this Python"
)


def hfc(*arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [HFC, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dmeo"], "No such command 'dmeo'"),
        (["demo", "--seeds", "0"], "0 is not in the range x>=1"),
        (["demo", "--epochs", "many"], "'many' is not a valid integer"),
        (["demo", "--fish"], "No such option"),
    ],
)
def test_a_mistake_is_named_with_exit_code_2_and_nothing_is_written(tmp_path, arguments, said):
    result = hfc(*arguments, cwd=tmp_path)
    assert result.returncode == 2 and said in result.stderr and "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_demo_writes_rows_a_summary_and_curves_and_does_not_run_twice(tmp_path):
    first = hfc("demo", "--epochs", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "Traceback" not in first.stderr and "Warning" not in first.stderr
    rows = pd.read_csv(tmp_path / "demo" / "steps.csv")
    assert rows.groupby("method")["step"].apply(list).to_dict() == {
        method: [0, 1, 2, 3, 4]
        for method in ("hfc", "herding-replay", "avalanche-replay", "avalanche-naive")
    }
    assert rows.groupby("method")["classes"].last().unique() == [10]
    for name in ("HFC", "herding replay, cross-entropy", "Avalanche Replay", "Avalanche Naive"):
        assert any(line.startswith(name) for line in first.stdout.splitlines())
    assert (tmp_path / "demo" / "curves.png").stat().st_size > 10_000
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "report.html" in first.stdout and "avalanche-replay" in page and "<svg" in page
    held = json.loads(
        (tmp_path / "demo" / "runs" / "digits-b0-t5-hfc@demo" / "0" / "recipe.json").read_text()
    )
    assert held["recipe"]["train"]["epochs"] == 1 and "finished" in held
    before = (tmp_path / "demo" / "steps.csv").read_bytes()
    for name in ("steps.csv", "summary.csv", "curves.png", "report.html"):
        (tmp_path / "demo" / name).unlink()
    again = hfc("demo", "--epochs", "1", cwd=tmp_path)
    assert (
        again.returncode == 0
        and (tmp_path / "demo" / "steps.csv").read_bytes() == before  # with the seconds
    )
    assert again.stdout == first.stdout and (tmp_path / "demo" / "report.html").read_text() == page
    other = hfc("demo", "--epochs", "2", cwd=tmp_path)
    assert other.returncode == 2 and "epochs 1, now 2" in other.stderr
    assert (tmp_path / "demo" / "steps.csv").read_bytes() == before


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "demo").write_text("a file, not a folder")
    result = hfc("demo", cwd=tmp_path)
    assert (
        result.returncode == 2
        and "demo" in result.stderr
        and "Traceback" not in result.stderr
        and "Loading" not in result.stderr
    )


def test_ctrl_c_keeps_the_rows_and_the_same_command_goes_on(tmp_path):
    command = [HFC, "demo", "--epochs", "1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    rows = tmp_path / "demo" / "runs" / "digits-b0-t5-hfc@demo" / "0" / "steps.csv"
    wait_for(lambda: has_rows(rows, 2), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "the same command resumes it" in errors and "Traceback" not in errors
    kept = rows.read_text()
    assert kept.endswith("\n") and len(kept.splitlines()) > 2
    resumed = hfc("demo", "--epochs", "1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    times = [
        "seconds",
        "images_per_second",
        "peak_memory",
    ]  # a step whose checkpoint was cut off is trained and timed again
    held, now = (pd.read_csv(text).drop(columns=times) for text in (io.StringIO(kept), rows))
    pd.testing.assert_frame_equal(now[: len(held)], held)
    gathered = pd.read_csv(tmp_path / "demo" / "steps.csv")
    assert len(gathered) == 20 and not gathered.duplicated(["method", "seed", "step"]).any()
