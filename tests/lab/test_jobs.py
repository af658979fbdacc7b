"""Work in several processes: results as they come, errors among them."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from avalanche_hfc.lab.jobs import outcomes


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


def killed_at_first(path):
    """Ends its process, as the system does when memory runs out, the first time; `always`: every
    time; `never`: not.
    """
    path = Path(path)
    with path.open("a") as file:
        file.write("x")
    if path.name == "always" or (path.name == "once" and path.read_text() == "x"):
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text()


@pytest.mark.kill
def test_one_that_is_killed_is_tried_once_more_and_the_others_are_not_touched(tmp_path):
    names = ["always", "once", "never", "other"]
    found = outcomes(killed_at_first, [str(tmp_path / name) for name in names], jobs=2)
    by_name = {Path(outcome.item).name: outcome for outcome in found}
    assert sorted(by_name) == sorted(names)
    assert by_name["once"].result == "xx" and by_name["never"].result == "x"
    assert by_name["other"].error is None
    assert by_name["always"].error == (
        "The process was killed by SIGKILL (possibly out of memory); tried 2 times."
    )
