"""Work in several processes, one thread each: results as they come, an end at once when the caller
stops.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any, NamedTuple

import torch

from avalanche_hfc.engine.host_warnings import silence_host

TRIES = 2  # of work whose process ends without an answer
CONTEXT = multiprocessing.get_context("forkserver")  # it imports torch and Avalanche once
CONTEXT.set_forkserver_preload(["avalanche_hfc.engine.run"])


class Outcome(NamedTuple):
    """`error` is the traceback of work that failed, else None."""

    item: Any
    result: Any
    error: str | None


def outcomes(
    work: Callable[[Any], Any], items: Sequence[Any], *, jobs: int
) -> Generator[Outcome, None, None]:
    """The outcome of work(item) for each item, as they come. With one job the work is done in this
    process.

    With several, each item has a process of its own. One that is killed, as by the system when
    memory runs out, is started once more behind the others; killed again, that is its error.
    Closing the generator ends the other processes in the middle of their work: use
    `contextlib.closing`.

    Args:
        work: A function that can be pickled, as its results can.
        items: What to call it with.
        jobs: How many processes run at a time, at least 1.

    Raises:
        ValueError: With the first outcome, if `jobs` is below 1.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    if jobs == 1:
        yield from (attempt(work, item) for item in items)
        return
    waiting = deque((item, 1) for item in items)
    running: dict[Connection, Job] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                job, answer = start(work, *waiting.popleft())
                running[answer] = job
            ready = wait(list(running))
            for answer in [one for one in running if one in ready]:
                job = running.pop(answer)
                outcome = job.result(answer)
                if outcome is not None:
                    yield outcome
                elif job.number < TRIES:
                    waiting.append((job.item, job.number + 1))
                else:
                    yield Outcome(job.item, None, job.end())
    finally:
        for job in running.values():
            job.process.terminate()
        for job in running.values():
            job.process.join()


class Job(NamedTuple):
    """A process that works on an item for the `number`-th time."""

    process: ForkServerProcess
    item: Any
    number: int

    def result(self, answer: Connection) -> Outcome | None:
        """What the process has sent; None if it ended before."""
        with answer:
            try:
                outcome = answer.recv()
            except EOFError:
                outcome = None
        self.process.join()
        return outcome

    def end(self) -> str:
        """How the process ended, in words."""
        code = self.process.exitcode or 0
        how = (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        memory = ", as by the system when memory runs out" if -code == signal.SIGKILL else ""
        return f"The process {how}{memory}; tried {self.number} times."


def start(work: Callable[[Any], Any], item: Any, number: int) -> tuple[Job, Connection]:
    """A process that works on the item, and where its answer comes from."""
    answer, to_parent = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=work_in_child, args=(to_parent, work, item))
    with interrupts_ignored():
        process.start()
    to_parent.close()
    return Job(process, item, number), answer


def work_in_child(to_parent: Connection, work: Callable[[Any], Any], item: Any) -> None:
    prepare()
    to_parent.send(attempt(work, item))


def attempt(work: Callable[[Any], Any], item: Any) -> Outcome:
    try:
        return Outcome(item, work(item), None)
    except Exception:
        return Outcome(item, None, traceback.format_exc())


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes started inside leave Ctrl-C to this one: they inherit what it does at the
    signal.
    """
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def prepare() -> None:
    """In a new process: one thread, no words of the host about itself, an end when the parent's
    comes, however it comes.
    """
    torch.set_num_threads(1)
    silence_host()
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
