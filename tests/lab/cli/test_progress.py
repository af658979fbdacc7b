"""What a run shows on a terminal of 80 columns, and how long it says it will take."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from itertools import pairwise

import pytest

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.cli.progress import RunBar, TableRunBar, time_left
from avalanche_hfc.lab.progress import TEACHER, TRAINING
from avalanche_hfc.lab.record import Recorder
from avalanche_hfc.lab.run import run

TINY = {"epochs": "2", "batch_size": "64", "embed_dim": "16", "msa_blocks": "1"}


def on_a_terminal(*arguments, cwd):
    """What a command writes to a terminal of 80 columns."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "avalanche_hfc", *arguments],
        cwd=cwd, stdin=side, stdout=side, stderr=side, env={**os.environ, "TQDM_MININTERVAL": "0"},
    )  # fmt: skip
    os.close(side)
    shown = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    assert process.wait() == 0, shown.decode()
    return shown.decode()


def test_step_lines_stay_above_a_bar_that_fits_80_columns(tmp_path):
    values = [word for name, text in TINY.items() for word in (f"--{name}", text)]
    shown = on_a_terminal("run", "digits-b0-t5-hfc@demo", *values, cwd=tmp_path)
    assert "Warning" not in shown and "clamping" not in shown and "compensation" not in shown
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown))
    steps = [line for line in lines if line.startswith("step ") and ": accuracy" in line]
    assert [line.split(":")[0] for line in steps] == [f"step {k}/5" for k in range(1, 6)]
    bars = [line for line in lines if "%" in line and "|" in line]
    assert bars and max(map(len, bars)) <= 80
    assert any(re.search(r"loss [\d.]+, \d+ images/s *$", line) for line in bars)
    assert not any(re.search(r"<-|-\d+:", line) for line in bars)
    shares = [int(re.search(r"(\d+)%", line)[1]) for line in bars]
    assert shares == sorted(shares) and shares[-1] == 100


def test_a_long_name_leaves_room_for_the_bar_of_a_table(monkeypatch):
    bar = TableRunBar("cifar100-b50-t5-m20-podnet-cscct+hfc-resnet32@paper, seed 0")
    bar.begin([10, 10], 0.0)
    assert bar.describe() == "cifar100-b50-t5-m20-pod… 1/2"
    bar.close()


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Watched(RunBar):
    """A bar by a clock of the test; at each batch the time that has passed and the time left."""

    def __init__(self):
        super().__init__("a run")
        self.now, self.told = 0.0, []

    def batch(self, fraction):
        super().batch(fraction)
        shown = self.bar.format_dict
        rate = (shown["n"] - shown["initial"]) / shown["elapsed"]
        self.told.append((shown["elapsed"], (shown["total"] - shown["n"]) / rate))
        assert shown["n"] <= shown["total"]


@pytest.mark.parametrize(
    "name", ["digits-b0-t5-hfc@demo", "digits-b50-t5-foster@demo", "digits-b0-t5-finetune@demo"]
)
def test_the_time_left_is_right_within_a_fifth_after_a_tenth(tmp_path, monkeypatch, name):
    """With a clock by which an image in training takes three times as long as in evaluation, and
    four times with a teacher: exemplars, phases and evaluation are all counted.
    """
    clock = Watched()
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    monkeypatch.setattr(sys, "stderr", Terminal())

    def pass_time(recorder, strategy, images):
        step = strategy.clock.train_exp_counter
        clock.now += images * (TRAINING + (TEACHER if step and "finetune" not in name else 0))

    main, phase = Recorder.after_training_iteration, Recorder.after_phase_iteration
    monkeypatch.setattr(
        Recorder, "after_training_iteration",
        lambda self, strategy, **kwargs: (
            pass_time(self, strategy, len(strategy.mb_y)), main(self, strategy, **kwargs)),
    )  # fmt: skip
    monkeypatch.setattr(
        Recorder, "after_phase_iteration",
        lambda self, strategy, **kwargs: (
            pass_time(self, strategy, len(strategy.phase_running.batch[1])),
            phase(self, strategy, **kwargs)),
    )  # fmt: skip
    from avalanche_hfc.lab import record as engine

    judge = engine.judge
    monkeypatch.setattr(
        engine, "judge",
        lambda strategy, data, steps: (
            setattr(clock, "now", clock.now + len(data)), judge(strategy, data, steps))[1],
    )  # fmt: skip
    own = override(recipe(name), TINY)
    run(own, 0, tmp_path / "run", progress=clock)
    clock.close()
    total = clock.now
    late = [(passed, left) for passed, left in clock.told if 0.1 * total <= passed < 0.95 * total]
    assert len(late) > 20
    assert max(abs(passed + left - total) for passed, left in late) < 0.2 * total
    assert all(one <= other for (one, _), (other, _) in pairwise(clock.told))


def test_the_time_left_of_a_table_is_never_zero_minutes():
    told = [time_left(seconds) for seconds in (0.0, 3.0, 59.0, 60.0, 200.0)]
    short = ", less than a minute left"
    assert told == ["", short, short, ", about 1 min left", ", about 3 min left"]
