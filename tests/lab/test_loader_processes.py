"""Loader processes of a run, and Ctrl-C beside them."""

import os
import signal

import pytest
import tiny_runs
from strategy_runs import jitter
from tiny_runs import tiny_run
from torch.utils.data import DataLoader

from avalanche_hfc.lab.machine import Interrupts, most_workers


def test_they_start_once_a_step_and_leave_ctrl_c_to_the_run(tmp_path, monkeypatch):
    met = tmp_path / "met"
    met.mkdir()

    def watched(image):
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        (met / str(os.getpid())).write_text(str(ignored))
        return jitter(image)

    monkeypatch.setattr(tiny_runs, "jitter", watched)
    tiny_run(tmp_path / "run", num_workers=1)
    (met / str(os.getpid())).unlink()  # what is read here to see the form of the samples
    assert [path.read_text() for path in met.iterdir()] == ["True"] * 3


@pytest.mark.parametrize(("given", "processes"), [({}, 1), ({"num_workers": 0}, 0)])
def test_a_run_that_names_none_has_those_of_its_device(tmp_path, monkeypatch, given, processes):
    asked = []
    monkeypatch.setattr("avalanche_hfc.lab.run.default_workers", lambda d: asked.append(d) or 1)
    begun = []
    start = DataLoader.__init__
    monkeypatch.setattr(
        DataLoader,
        "__init__",
        lambda self, *args, **named: (begun.append(named), start(self, *args, **named))[1],
    )
    tiny_run(tmp_path, **given)
    assert asked == ([] if given else ["cpu"])
    assert max(named.get("num_workers", 0) for named in begun) == processes


def test_data_in_memory_is_read_without_them(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_runs, "jitter", None)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was started"))
    tiny_run(tmp_path, num_workers=1)


@pytest.mark.parametrize("count", [-1, 10000])
def test_too_many_are_refused_before_anything_is_written(tmp_path, count):
    said = f"num_workers must be 0 to {most_workers()}, .*got {count}"
    with pytest.raises(ValueError, match=said):
        tiny_run(tmp_path / "run", num_workers=count)
    assert not (tmp_path / "run").exists()


class InterruptedAtItsEnd:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_an_object_is_destroyed_is_not_lost():
    passed = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        interrupts.check()
        held = InterruptedAtItsEnd()
        del held
        passed.append("after it")
        interrupts.check()
        passed.append("after the check")
    assert passed == ["after it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
