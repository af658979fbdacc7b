"""Stops, full disks and damaged files, in one process: what is left, and how the run resumes."""

import errno
import hashlib
import os
import pickle
import shutil
from itertools import repeat
from pathlib import Path

import pytest
import tiny_runs
import torch
from strategy_runs import At
from tiny_runs import rows_of, tiny_run, weights_of

from avalanche_hfc.lab.checkpoint import load_checkpoint, save_checkpoint
from avalanche_hfc.lab.rows import note_text
from avalanche_hfc.lab.run_folder import RunFolder


def stopping(last=None, kind=KeyboardInterrupt):
    """A builder whose strategy is stopped in its `last`-th batch, of the main epochs or of a phase;
    how many there were, in `count`.
    """

    def build(recipe, seed, **options):
        def batch(*_):
            build.count += 1
            if build.count == last:
                raise kind

        plugins = [*options["plugins"], At("after_backward", batch), Phases(batch)]
        return tiny_runs.build(recipe, seed, **{**options, "plugins": plugins})

    build.count = 0
    return build


class Phases(At):
    """Calls `act` in every batch of a phase."""

    def __init__(self, act):
        super().__init__("before_phase_epoch", self.watch)
        self.act, self.phase = act, None

    def watch(self, strategy):
        phase = strategy.phase_running
        if phase is not self.phase:
            loss, self.phase = phase.loss, phase
            phase.loss = lambda x, targets: self.act() or loss(x, targets)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """method -> the folder of an unbroken run and the number of its batches."""
    found = {}

    def of(method):
        if method not in found:
            folder, builder = tmp_path_factory.mktemp("whole") / method, stopping()
            tiny_run(folder, method, build=builder)
            found[method] = folder, builder.count
        return found[method]

    return of


def assert_like(folder, expected):
    assert RunFolder(folder).finished and rows_of(folder) == rows_of(expected)
    if (Path(expected) / "checkpoint").exists():
        final, wanted = weights_of(folder), weights_of(expected)
        assert final.keys() == wanted.keys() and all(
            torch.equal(final[name], wanted[name]) for name in wanted
        )


@pytest.mark.parametrize("method", ["hfc", "foster", "avalanche-naive"])
def test_a_run_stopped_again_and_again_ends_like_an_unbroken_one(tmp_path, whole, method):
    """Each start has batches enough for one epoch, of three; for one more than the start before
    where there are no checkpoints.
    """
    stops = 0
    for last in repeat(5) if method != "avalanche-naive" else range(3, 1000, 4):
        try:
            tiny_run(tmp_path, method, build=stopping(last))
            break
        except KeyboardInterrupt:
            stops += 1
            assert not (tmp_path / "lock").exists() and not RunFolder(tmp_path).finished
    assert stops >= 3
    assert_like(tmp_path, whole(method)[0])


def test_without_checkpoints_inside_a_step_the_step_is_trained_again(tmp_path, whole):
    expected, num_batches = whole("hfc")
    with pytest.raises(KeyboardInterrupt):
        tiny_run(tmp_path, build=stopping(num_batches - 1), checkpoint_seconds=1e9)
    assert "resumes" not in (tmp_path / "log.txt").read_text()
    tiny_run(tmp_path, build=stopping())
    assert "resumes at the start of step 2" in (tmp_path / "log.txt").read_text()
    assert_like(tmp_path, expected)


def test_the_time_of_an_interrupted_step_is_that_of_all_processes(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("avalanche_hfc.lab.record.time.perf_counter", lambda: now[0])

    def clocked(last):
        builder = stopping(last)

        def build(recipe, seed, **options):
            tick = At("after_backward", lambda strategy: now.__setitem__(0, now[0] + 10))
            return builder(recipe, seed, **{**options, "plugins": [*options["plugins"], tick]})

        return build

    with pytest.raises(KeyboardInterrupt):
        tiny_run(tmp_path, build=clocked(4))  # two batches an epoch: the second epoch is broken off
    now[0] += 1000
    tiny_run(tmp_path, build=clocked(None))
    lines = (tmp_path / "steps.csv").read_text().splitlines()
    seconds, images_per_second = (
        float(lines[1].split(",")[lines[0].split(",").index(name)])
        for name in ("seconds", "images_per_second")
    )
    assert seconds == 40.0 and images_per_second == round(24 / 40, 1)


# Full disks


@pytest.fixture
def broken(monkeypatch):
    """Let a call of the system fail with ENOSPC, for files of a checkpoint, from the n-th on."""

    def fail(name, number):
        real, left = getattr(os, name), [number]

        def call(first, *args):
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
            if "checkpoint" in path:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
            return real(first, *args)

        monkeypatch.setattr(os, name, call)

    yield fail
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("call", "number"),
    [("write", 0), ("write", 1), ("fsync", 0), ("fsync", 1), ("fsync", 2), ("replace", 0)],
)
def test_a_full_disk_leaves_both_checkpoints_and_room(tmp_path, broken, call, number):
    for step in range(2):
        save_checkpoint(
            tmp_path / "checkpoint", {"weights": torch.full((1000,), step)}, {"step": step}
        )
    before = {path: path.read_bytes() for path in (tmp_path / "checkpoint" / "last").iterdir()}
    broken(call, number)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path / "checkpoint", {"weights": torch.full((1000,), 2)}, {"step": 2})
    assert {
        path: path.read_bytes() for path in (tmp_path / "checkpoint" / "last").iterdir()
    } == before
    assert not (tmp_path / "checkpoint" / "new").exists()
    assert load_checkpoint(tmp_path / "checkpoint", lambda note: None).note["step"] == 1


@pytest.mark.parametrize(("call", "number"), [("write", 5), ("fsync", 9), ("replace", 3)])
def test_a_run_that_met_a_full_disk_goes_on_when_there_is_room(
    tmp_path, whole, broken, monkeypatch, call, number
):
    broken(call, number)
    with pytest.raises(OSError, match="No space left"):
        tiny_run(tmp_path / "run", build=stopping())
    assert not (tmp_path / "run" / "lock").exists()
    monkeypatch.undo()
    tiny_run(tmp_path / "run", build=stopping())
    assert "resumes" in (tmp_path / "run" / "log.txt").read_text()
    assert_like(tmp_path / "run", whole("hfc")[0])


# Damaged files


def truncate(last):
    content = (last / "state.pt").read_bytes()
    (last / "state.pt").write_bytes(content[: len(content) // 2])


def flip(last):
    content = bytearray((last / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (last / "state.pt").write_bytes(content)


DAMAGES = {
    "truncated": (truncate, r"state\.pt has \d+ bytes, \d+ were written"),
    "one bit": (flip, "not what was written, by its checksum"),
    "no state": (lambda last: (last / "state.pt").unlink(), r"no state\.pt"),
    "no note": (lambda last: (last / "note.json").unlink(), r"no note\.json"),
    "half a note": (lambda last: (last / "note.json").write_text('{"step": 1'), "not JSON"),
    "another note": (
        lambda last: (last / "note.json").write_text('{"format": 7}'),
        "not of format 1",
    ),
}


@pytest.fixture
def stopped(whole, tmp_path, stopped_run):
    return Path(shutil.copytree(stopped_run, tmp_path / "run"))


@pytest.fixture(scope="module")
def stopped_run(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KeyboardInterrupt):
        tiny_run(folder, build=stopping(whole("hfc")[1] - 1))
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_previous_one_with_a_warning(stopped, whole, damage):
    harm, said = DAMAGES[damage]
    harm(stopped / "checkpoint" / "last")
    with pytest.warns(
        UserWarning, match=f"checkpoint/last cannot be used: .*{said}.* The one before is used"
    ):
        tiny_run(stopped, build=stopping())
    assert (
        "resumes at the start of step 2" in (stopped / "log.txt").read_text()
        and "WARNING" in (stopped / "log.txt").read_text()
    )
    assert_like(stopped, whole("hfc")[0])


def test_with_both_checkpoints_damaged_the_run_starts_again_and_says_so(stopped, whole):
    for name in ("last", "previous"):
        truncate(stopped / "checkpoint" / name)
    with pytest.warns(UserWarning) as met:
        tiny_run(stopped, build=stopping())
    assert [
        str(each.message).split(". ")[-1] for each in met if "cannot be used" in str(each.message)
    ] == [
        "The one before is used.",
        "The run starts again from the beginning.",
    ]
    assert_like(stopped, whole("hfc")[0])


def test_a_checkpoint_whose_rows_are_gone_gives_way_to_the_one_before(stopped, whole):
    lines = (stopped / "train.csv").read_text().splitlines(keepends=True)
    (stopped / "train.csv").write_text("".join(lines[:-1]))
    with pytest.warns(UserWarning, match="rows that it was saved after are missing from train.csv"):
        tiny_run(stopped, build=stopping())
    assert_like(stopped, whole("hfc")[0])


def test_a_pickle_in_the_place_of_a_state_is_not_run(tmp_path, recwarn):
    """Even where its checksum is right."""

    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    last = tmp_path / "checkpoint" / "last"
    last.mkdir(parents=True)
    content = pickle.dumps(Harm(), protocol=2)
    (last / "state.pt").write_bytes(content)
    note = {"format": 1, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (last / "note.json").write_text(note_text(note))
    assert load_checkpoint(tmp_path / "checkpoint", lambda note: None) is None
    assert (
        "more than tensors and plain data" in str(recwarn[0].message)
        and not (tmp_path / "harm").exists()
    )


def test_a_damaged_checkpoint_never_becomes_the_previous_one(tmp_path):
    for step in range(2):
        save_checkpoint(tmp_path, {"weights": torch.zeros(9)}, {"step": step})
    flip(tmp_path / "last")
    with pytest.warns(UserWarning, match="The one before is used"):
        assert load_checkpoint(tmp_path, lambda note: None).note["step"] == 0
    save_checkpoint(tmp_path, {"weights": torch.zeros(9)}, {"step": 2})
    truncate(tmp_path / "last")
    with pytest.warns(UserWarning, match="The one before is used"):
        assert load_checkpoint(tmp_path, lambda note: None).note["step"] == 0
