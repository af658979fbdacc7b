"""Work in several processes, one thread each: results as they come, an end at once when the caller
stops.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from avalanche_hfc.engine.host_warnings import quiet_host


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

    Closing the generator ends the other processes in the middle of their work: use
    `contextlib.closing`.
    """
    if jobs == 1:
        yield from (attempt(work, item) for item in items)
        return
    with workers(min(jobs, len(items))) as pool:
        with interrupts_ignored():
            pending = [pool.submit(attempt, work, item) for item in items]
        yield from (future.result() for future in as_completed(pending))


def attempt(work: Callable[[Any], Any], item: Any) -> Outcome:
    try:
        return Outcome(item, work(item), None)
    except Exception:
        return Outcome(item, None, traceback.format_exc())


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=prepare
    )
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


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
    quiet_host()
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
