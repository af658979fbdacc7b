"""Kill, start again: the rows and the weights are those of a run that was left in peace."""

import os
import signal
from itertools import count

import pytest
import torch
from kills import killed_and_resumed, start, unbroken
from tiny_runs import rows_of, tiny_run, weights_of

from avalanche_hfc.lab.checkpoint import load_checkpoint, save_checkpoint
from avalanche_hfc.lab.lock import RunLock
from avalanche_hfc.lab.run_folder import RunFolder

pytestmark = pytest.mark.kill


def assert_ends_like(broken, whole):
    assert RunFolder(broken).finished and rows_of(broken) == rows_of(whole)
    final, expected = weights_of(broken), weights_of(whole)
    assert final.keys() == expected.keys() and all(
        torch.equal(final[name], expected[name]) for name in expected
    )


@pytest.mark.parametrize("method", ["hfc", "dytox"])
def test_a_run_killed_three_times_ends_like_an_unbroken_one(tmp_path, method):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    seconds = unbroken(whole, method)
    assert killed_and_resumed(broken, method, kills=3, seconds=seconds, seed=5) >= 1
    assert_ends_like(broken, whole)
    assert (
        "resumes" in (broken / "log.txt").read_text()
        or "starts again" in (broken / "log.txt").read_text()
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hfc", "foster", "dytox"])  # the last two have the most phases
def test_runs_killed_twenty_times_end_like_an_unbroken_one(tmp_path, method):
    """In as many runs as it takes until twenty kills have met a living process."""
    seconds, landed = unbroken(tmp_path / "whole", method), 0
    for number in count():
        broken = tmp_path / str(number)
        landed += killed_and_resumed(
            broken, method, kills=20 - landed, seconds=seconds, seed=number
        )
        assert_ends_like(broken, tmp_path / "whole")
        if landed == 20:
            break


def test_a_second_process_on_a_run_is_refused_and_a_killed_one_leaves_it_free(tmp_path):
    process = start(tmp_path, "hfc")
    while not (tmp_path / "train.csv").exists():
        assert process.exitcode is None
        process.join(0.01)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(ValueError, match=f"is in use by process {process.pid}"):
        tiny_run(tmp_path)
    process.kill()
    process.join()
    assert (tmp_path / "lock").read_text() == f"{process.pid}\n"
    with RunLock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert not (tmp_path / "lock").exists()


def test_a_second_owner_in_the_same_process_is_refused(tmp_path):
    with (
        RunLock(tmp_path / "lock"),
        pytest.raises(ValueError, match=f"in use by process {os.getpid()}"),
        RunLock(tmp_path / "lock"),
    ):
        pass
    with RunLock(tmp_path / "lock"):
        pass


def test_a_forked_child_does_not_hold_the_folder_of_its_dead_parent(tmp_path):
    """As a loader process does that outlives it."""
    outer, inner = os.pipe(), os.pipe()
    lock = RunLock(tmp_path / "lock")
    with lock:
        child = os.fork()
        if not child:
            os.write(outer[1], b"x")
            os.read(inner[0], 1)
            os._exit(0)
        os.read(outer[0], 1)
        lock.drop()  # as the kernel does at the parent's end
        with RunLock(tmp_path / "lock"):
            os.write(inner[1], b"x")
    os.waitpid(child, 0)
    for end in (*outer, *inner):
        os.close(end)


class Counted:
    """Ends the process, as SIGKILL does, at the n-th call of the system in the middle of saving."""

    def __init__(self, last):
        self.left = last

    def patch(self, name):
        real = getattr(os, name)

        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                if name == "write":  # half of it reaches the file
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(os, name, call)


def saved_in_child(folder, state, last):
    """Save in a child that is killed at its `last`-th system call. Whether it was."""
    child = os.fork()
    if not child:
        try:
            counted = Counted(last)
            for name in ("write", "fsync", "replace", "mkdir", "unlink", "rmdir"):
                counted.patch(name)
            save_checkpoint(folder, state, {"step": 3})
            os._exit(0)
        finally:
            os._exit(1)  # never back into pytest
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "saving failed in the child"
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("num_before", [0, 2])
def test_a_kill_at_any_system_call_of_a_save_leaves_the_new_checkpoint_or_the_one_before(
    tmp_path, num_before
):
    last, found = 0, []
    while True:
        last += 1
        folder = tmp_path / str(last)
        for number in range(num_before):
            save_checkpoint(folder, {"number": torch.tensor(number)}, {"step": number})
        killed = saved_in_child(folder, {"number": torch.tensor(3)}, last)
        checkpoint = load_checkpoint(
            folder, lambda note: None
        )  # a damaged one would warn, and fail here
        found.append(
            None
            if checkpoint is None
            else (checkpoint.note["step"], int(checkpoint.state["number"]))
        )
        save_checkpoint(
            folder, {"number": torch.tensor(4)}, {"step": 4}
        )  # what is left is no hindrance
        assert load_checkpoint(folder, lambda note: None).note["step"] == 4
        if not killed:
            break
    before = (num_before - 1, num_before - 1) if num_before else None
    assert set(found) == {before, (3, 3)} and last > 8
    assert found == sorted(found, key=lambda each: each == (3, 3))
