"""A rank that is killed: torch's launcher starts all again, and the run resumes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import check_rows, rows_of
from waiting import PATIENCE, has_rows, wait_for

from avalanche_hfc.lab.cli import commands

ROOT = Path(__file__).parents[2]
RUN = ("run", "digits-b0-t5-hfc@demo", "--epochs", "1", "--seed", "3")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def children(parent):
    """rank -> process id, of the ranks that a launcher has started."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                variables = (entry / "environ").read_bytes().split(b"\0")
                ranks = [word for word in variables if word.startswith(b"RANK=")]
                found |= {int(word[5:]): int(entry.name) for word in ranks}
        except (OSError, ValueError):  # it has ended
            continue
    return found


def kill_rank(launcher, folder, rank):
    """SIGKILL a rank once the run has a row of a step."""
    wait_for(lambda: has_rows(folder / "steps.csv"), launcher)
    os.kill(children(launcher.pid)[rank], signal.SIGKILL)


def started(*words, cwd=ROOT, environment=None):
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env=ENVIRONMENT | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def one_rank(folder):
    commands([*RUN, "--out", str(folder)], standalone_mode=False)
    return rows_of(folder / "digits-b0-t5-hfc@demo" / "3")


@pytest.mark.kill
def test_torchrun_restarts_a_run_whose_rank_was_killed_from_its_checkpoint(tmp_path):
    launcher = started(
        *("-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"),
        *("-m", "avalanche_hfc", *RUN, "--out", str(tmp_path / "two")),
    )
    folder = tmp_path / "two" / "digits-b0-t5-hfc@demo" / "3"
    kill_rank(launcher, folder, rank=1)
    stdout, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 0, stderr
    assert stdout.count("accuracy average") == 1  # rank 0 alone tells
    assert "resumes" in (folder / "log.txt").read_text()
    check_rows(one_rank(tmp_path / "one"), rows_of(folder))


KILLS = 5
LONGER = (*RUN[:3], "4", *RUN[4:], "--fresh")  # 20 epochs; no kill lets pass more than three


def restarting(out):
    """Two ranks on a long run, under a launcher that starts them again as often as they are killed.
    The run's folder, too.
    """
    launcher = started(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("--max-restarts", str(KILLS), "-m", "avalanche_hfc", *LONGER, "--out", str(out)),
    )
    return launcher, out / "digits-b0-t5-hfc@demo" / "3"


def new_ranks(launcher, killed):
    """rank -> process id, once the launcher has started both ranks after the last kill."""

    def both():
        ranks = children(launcher.pid)
        return ranks if ranks.keys() == {0, 1} and not killed & set(ranks.values()) else None

    return wait_for(both, launcher)


def wait_for_epochs(launcher, file, number):
    """Wait until so many rows were added to train.csv; a run that resumes drops some first."""
    last = added = 0
    if file.exists():
        last = file.read_text().count("\n")
    while added < number:
        rows = file.read_text().count("\n") if file.exists() else 0
        added, last = added + max(rows - max(last, 1), 0), rows
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.002)


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_ranks_killed_at_five_random_moments_end_like_an_unbroken_run(tmp_path, seed):
    """Each moment is within the epoch after zero to two more ones, or while the ranks start."""
    launcher, whole = restarting(tmp_path / "whole")
    _, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 0, stderr
    draw, killed = random.Random(seed), set()
    launcher, broken = restarting(tmp_path / "broken")
    for number in range(KILLS):
        ranks, clock = new_ranks(launcher, killed), time.monotonic()
        epochs = draw.choice([0, 1, 1, 2]) if number else 1  # at first: something to resume
        wait_for_epochs(launcher, broken / "train.csv", epochs)
        started_in = time.monotonic() - clock if number == 0 else started_in
        time.sleep(draw.uniform(0, 0.3) if epochs else draw.uniform(0, 1) * started_in)
        assert launcher.poll() is None, launcher.communicate()
        os.kill(ranks[number % 2], signal.SIGKILL)  # rank 0 holds the lock and saves
        killed |= set(ranks.values())
    stdout, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 0, stderr
    assert stdout.count("accuracy average") == 1
    assert "resumes" in (broken / "log.txt").read_text()
    assert not (tmp_path / "broken.old-1").exists()  # started over once, not after a restart
    assert rows_of(broken) == rows_of(whole)  # bit for bit: the number of ranks is the same
    assert not (broken / "lock").exists()


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named_once_and_the_run_resumes_on_another_number(tmp_path, rank):
    launcher = started("-m", "avalanche_hfc", *RUN, "--out", str(tmp_path / "two"), "--ranks", "2")
    folder = tmp_path / "two" / "digits-b0-t5-hfc@demo" / "3"
    kill_rank(launcher, folder, rank=rank)
    _, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 1, stderr
    assert [line for line in stderr.splitlines() if line.startswith("hfc:")] == [
        f"hfc: rank {rank} of 2 was killed by SIGKILL, and the others with it. What is done is kept;"
        " the same command resumes it."
    ]
    with pytest.warns(UserWarning, match="ranks: 2"):
        commands([*RUN, "--out", str(tmp_path / "two")], standalone_mode=False)
    assert "ranks: 2" in (folder / "log.txt").read_text()
    check_rows(one_rank(tmp_path / "one"), rows_of(folder))


@pytest.mark.slow
def test_an_error_that_all_ranks_meet_is_one_line_and_exit_code_2(tmp_path):
    commands([*RUN, "--out", str(tmp_path)], standalone_mode=False)
    words = ("-m", "avalanche_hfc", *RUN, "--lr", "0.5", "--out", str(tmp_path), "--ranks", "2")
    launcher = started(*words)
    _, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 2, stderr
    assert [line for line in stderr.splitlines() if "another recipe (train.lr" in line] == [
        line for line in stderr.splitlines() if line.startswith("hfc:")
    ]
    assert stderr.count("hfc:") == 1


AT_HOME = """
import os
if "RANK" in os.environ:
    os.chdir(os.path.join(os.environ["HOMES"], os.environ["RANK"]))
"""  # Python runs it first: a relative path is another file on each rank


def test_ranks_with_other_data_are_one_line_and_exit_code_2_before_anything_is_written(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(AT_HOME)
    images = np.random.default_rng(3).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    classes = np.arange(12) % 4
    for rank in (0, 1):
        (tmp_path / str(rank)).mkdir()
        arrays = {"x_train": images ^ rank, "y_train": classes, "x_test": images, "y_test": classes}
        np.savez(tmp_path / str(rank) / "images.npz", **arrays)
    launcher = started(
        *("-m", "avalanche_hfc", "run", "npz-t2-finetune@demo", "--data", "images.npz"),
        *("--out", str(tmp_path / "runs"), "--ranks", "2"),
        cwd=tmp_path / "0",
        environment={"PYTHONPATH": f"{tmp_path}:{ROOT}", "HOMES": str(tmp_path)},
    )
    _, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 2, stderr
    (line,) = [line for line in stderr.splitlines() if line.startswith("hfc:")]
    assert line.startswith("hfc: The ranks differ in the data: rank 1 has another than the rest")
    assert not (tmp_path / "runs").exists()


def test_more_ranks_than_gpus_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ValueError, match="--ranks 3: torch finds 2 GPU"):
        commands([*RUN, "--ranks", "3", "--out", str(tmp_path / "o")], standalone_mode=False)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("words", [(), ("--seeds", "0-2")])
def test_more_ranks_than_images_of_a_batch_are_refused_before_anything_is_written(tmp_path, words):
    with pytest.raises(ValueError, match="batch of 8 images cannot be divided among 9 ranks"):
        commands(
            [*RUN[:2], *words, "--batch-size", "8", "--ranks", "9", "--out", str(tmp_path / "o")],
            standalone_mode=False,
        )
    assert not (tmp_path / "o").exists()
