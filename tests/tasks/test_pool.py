"""Work in several processes: results as they come, errors among them."""

import multiprocessing
import os

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
