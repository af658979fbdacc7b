"""Runs in processes of their own that are killed (SIGKILL) at random moments and started again,
until they end.
"""

import multiprocessing
import os
import random
import time
from pathlib import Path

from waiting import has_rows

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
)  # for the server that processes are forked from

CONTEXT = multiprocessing.get_context(
    "forkserver"
)  # it imports torch and Avalanche once, and has run nothing itself
CONTEXT.set_forkserver_preload(["kills", "tiny_runs"])


def child(folder, method, begun):
    import torch
    from tiny_runs import tiny_run

    torch.set_num_threads(1)
    begun.set()
    tiny_run(folder, method)


def start(folder, method):
    """A process that trains; it has loaded everything and begins."""
    begun = CONTEXT.Event()
    process = CONTEXT.Process(target=child, args=(str(folder), method, begun))
    process.start()
    while not begun.wait(0.1):
        assert process.exitcode is None, "the process did not begin"
    return process


def unbroken(folder, method):
    """Seconds that the run takes."""
    process = start(folder, method)
    clock = time.monotonic()
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - clock


def killed_and_resumed(folder, method, *, kills, seconds, seed):
    """The number of kills that met a living process. `seconds` is the time of an unbroken run.

    The first one comes when an epoch is on the disk: there is something to resume. The others come
    within a third of the time.
    """
    draw, landed = random.Random(seed), 0
    for number in range(kills):
        process = start(folder, method)
        if number:
            process.join(draw.uniform(0.02, 0.33) * seconds)
        while not number and process.exitcode is None and not has_rows(folder / "train.csv"):
            process.join(0.002)
        if process.exitcode is None:
            process.kill()
            landed += 1
        process.join()
        if process.exitcode == 0:
            return landed
    process = start(folder, method)
    process.join()
    assert process.exitcode == 0
    return landed
