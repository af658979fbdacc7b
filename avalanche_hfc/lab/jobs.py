"""Work in several processes, one thread each: results as they come, an end at once when the caller
stops.
"""

import importlib.util
import logging
import multiprocessing
import os
import platform
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import torch

from avalanche_hfc._types import Options
from avalanche_hfc._version import __version__
from avalanche_hfc.lab import checkpoint
from avalanche_hfc.lab.build import build_model, build_optimizer
from avalanche_hfc.lab.data import Root, read_source
from avalanche_hfc.lab.lock import FolderInUseError
from avalanche_hfc.lab.machine import MOST_BY_DEFAULT, silence_host
from avalanche_hfc.lab.ranks import check_device
from avalanche_hfc.lab.table import TableRun
from avalanche_hfc.strategies._base.precision import check_precision

TRIES = 2  # of work whose process ends without an answer
CONTEXT = multiprocessing.get_context("forkserver")  # it imports torch and Avalanche once
CONTEXT.set_forkserver_preload(["avalanche_hfc.lab.run"])


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
    """
    if jobs == 1:
        yield from (attempt(work, item) for item in items)
        return
    waiting = [(item, 1) for item in items]
    running: dict[Any, tuple[ForkServerProcess, Any, int]] = {}  # by where the answer comes from
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                item, tried = waiting.pop(0)
                answer, process = start(work, item)
                running[answer] = process, item, tried
            ready: list[Any] = wait(list(running))
            for answer in ready:
                process, item, tried = running.pop(answer)
                try:
                    yield answer.recv()
                except EOFError:  # the process has ended before
                    process.join()
                    if tried < TRIES:
                        waiting.append((item, tried + 1))
                    else:
                        said = f"The process {end_of(process.exitcode)}; tried {tried} times."
                        yield Outcome(item, None, said)
                process.join()
    finally:
        for process, _, _ in running.values():
            process.terminate()
        for process, _, _ in running.values():
            process.join()


def start(work: Callable[[Any], Any], item: Any) -> tuple[Any, ForkServerProcess]:
    """Where the answer comes from, and the process that works on the item. Ctrl-C is left to this
    process: the other inherits what is done at the signal.
    """
    answer, to_parent = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=work_in_child, args=(to_parent, work, item))
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
    to_parent.close()
    return answer, process


def end_of(code: int | None) -> str:
    """How a process has ended, in words, by its exit code."""
    if code is None or code >= 0:
        return f"ended with code {code}"
    memory = " (possibly out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"


def work_in_child(to_parent: Connection, work: Callable[[Any], Any], item: Any) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    to_parent.send(attempt(work, item, alone=False))


def end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def attempt(work: Callable[[Any], Any], item: Any, *, alone: bool = True) -> Outcome:
    """The outcome of work(item); beside other processes, with one thread and without the host's
    warnings about itself.
    """
    if not alone:
        torch.set_num_threads(1)
        silence_host()
    try:
        return Outcome(item, work(item), None)
    except Exception:
        return Outcome(item, None, traceback.format_exc())


ADDRESS = "RAY_ADDRESS"  # names the cluster, as for every program that uses Ray
RETRIES = 3  # of work whose worker or node is lost
POLL_SECONDS = 2.0
LOCK_SECONDS = 300.0  # shared storage keeps the lock of a lost node for a while, NFS for 90 seconds
LOCK_POLL_SECONDS = 5.0
RUN = "hfc_run"  # a resource of a local Ray: how many runs it trains at a time
STARTUP = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_agent_register_timeout_ms": "300000",  # of the processes of a local Ray on a busy machine
    "RAY_raylet_start_wait_time_s": "300",
}


@contextmanager
def cluster(*, runs: int | None = None, workers: int = 0) -> Iterator[Any]:
    """Connect to the cluster that RAY_ADDRESS names, or start Ray on this machine.

    Args:
        runs: How many tasks of `ray_outcomes` a local Ray runs at a time. By default as many as
            its cores allow.
        workers: Loader processes of each of them.

    Yields:
        The module `ray`, connected.

    Raises:
        ValueError: Ray is not installed, or the cluster does not answer.
    """
    if importlib.util.find_spec("ray") is None:
        raise ValueError("Ray is not installed: pip install 'avalanche_hfc[ray]'.")
    address = os.environ.get(ADDRESS, "")
    check_reachable(address)
    for name, value in STARTUP.items():
        os.environ.setdefault(name, value)
    import ray

    local: Options = {
        "include_dashboard": False,
        "object_store_memory": 100 * 2**20,
        "num_cpus": max(os.cpu_count() or 1, (runs or 1) * (1 + workers)),
        "resources": {} if runs is None else {RUN: runs},
    }
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if address else local),
        )
    except Exception as error:  # Ray raises a plain Exception where its processes do not start
        why = str(error).strip().splitlines()[0]
        raise ValueError(f"{named(address)} cannot be used: {why}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def named(address: str) -> str:
    return f"The Ray cluster {ADDRESS}={address}" if address else "Ray on this machine"


def check_reachable(address: str) -> None:
    """Raise a ValueError where nothing listens at `host:port`; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", "local", or none
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ValueError(f"{named(address)} cannot be reached: {error}.") from None


def look_from_node(paths: Iterable[str]) -> tuple[str, str, list[str]]:
    """On a node: its name, its versions, and which of the paths it does not see."""
    missing = [path for path in paths if not os.path.exists(path)]
    versions = (
        f"avalanche_hfc {__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
    return platform.node(), versions, missing


def check_nodes(ray: Any, out: Path, paths: Sequence[Path] = ()) -> None:
    """Check that every node has the same versions and sees the storage.

    A probe file is written into `out` and removed.

    Args:
        ray: The module `ray`, connected.
        out: The folder that all nodes must share.
        paths: Further files and folders that all nodes must see.

    Raises:
        ValueError: A node has other versions or does not see a path.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    _, versions, _ = look_from_node(())
    absent = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        with NamedTemporaryFile(dir=out, prefix=".probe-") as probe:
            names = [probe.name, *map(str, paths)]
            look = ray.remote(num_cpus=0, max_retries=0)(look_from_node)
            alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
            sent = [
                look.options(scheduling_strategy=On(i, soft=False)).remote(names) for i in alive
            ]
            for name, others, missing in ray.get(sent):
                if missing:
                    path = out if probe.name in missing else missing[0]
                    raise ValueError(
                        f"Node {name} does not see {path}. All nodes must share the storage."
                    )
                if others != versions:
                    raise ValueError(f"Node {name} has {others}; here is {versions}.")
    finally:
        for folder in absent:
            folder.rmdir()


def device_on(ray: Any, device: str) -> str:
    """The device of each run on the nodes: "auto" is the GPU if the cluster has one.

    Args:
        ray: The module `ray`, connected.
        device: "auto", or a device of torch.

    Returns:
        The device.

    Raises:
        ValueError: No node has a GPU, or torch does not know the device.
    """
    with_gpus = ray.cluster_resources().get("GPU", 0) > 0
    if device == "auto":
        return "cuda" if with_gpus else "cpu"
    if not device.startswith("cuda"):
        return check_device(device)
    if not with_gpus:
        raise ValueError(f"--device {device}: no node of the Ray cluster has a GPU.")
    return device


def workers_on(ray: Any, device: str, asked: int | None) -> int:
    """The loader processes of each run on the nodes.

    Beside a GPU, unless asked otherwise, a run and its loader processes have the cores of a node,
    divided by its GPUs.

    Args:
        ray: The module `ray`, connected.
        device: The device of a run, as `device_on` gives it.
        asked: The number that the user asks for; None to choose it.

    Returns:
        The number of loader processes.

    Raises:
        ValueError: No node has a core for each of them and one for the run.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    on_gpu = device.startswith("cuda")
    if on_gpu:
        nodes = [node for node in nodes if node.get("GPU", 0) >= 1]
    if asked is None:
        shares = [int(node.get("CPU", 0) // node["GPU"]) for node in nodes] if on_gpu else []
        return min(MOST_BY_DEFAULT, max(min(shares, default=0) - 1, 0))
    most = int(max((node.get("CPU", 0) for node in nodes), default=0))
    if 1 + asked > most:
        raise ValueError(
            f"--workers {asked}: a run and its loader processes need {1 + asked} cores of a node, "
            f"and the Ray cluster has nodes of at most {most}. Use --workers {max(most - 1, 0)}."
        )
    return asked


def ray_outcomes(
    ray: Any,
    work: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    cpus: int = 1,
    gpus: int = 0,
    waiting: Callable[[], None] = lambda: None,
) -> Generator[Outcome, None, None]:
    """The outcome of work(item) for each item, as they come: `pool.outcomes` on Ray.

    Each item is a task with a worker process of its own, its CPUs and its GPUs. A task whose worker
    or node is lost is started again, up to three times; one whose run folder is in use, as by the
    lock of a lost node, waits for some minutes. Closing the generator ends the tasks that are left:
    use `contextlib.closing`.

    Args:
        ray: The module `ray`, connected.
        work: A function that can be pickled, as its results can.
        items: What to call it with.
        cpus: CPUs of each task, with those of the processes that it starts.
        gpus: GPUs of each task.
        waiting: Is called every two seconds.

    Yields:
        An outcome for each item.
    """
    limit = {RUN: 1} if RUN in ray.cluster_resources() else {}
    task = ray.remote(
        num_cpus=cpus, num_gpus=gpus, resources=limit, max_retries=RETRIES, max_calls=1
    )(work_on_node)
    running = {task.remote(work, item): item for item in items}
    try:
        while running:
            ready, _ = ray.wait(list(running), timeout=POLL_SECONDS)
            for reference in ready:
                item = running.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayError as error:
                    said = str(error).strip().splitlines()[0]
                    words = f"{said} Tried {RETRIES + 1} times."
                    yield Outcome(item, None, f"{type(error).__name__}: {words}")
            waiting()
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def work_on_node(work: Callable[[Any], Any], item: Any) -> Outcome:
    return attempt(partial(once_free, work), item, alone=False)


def once_free(work: Callable[[Any], Any], item: Any) -> Any:
    """work(item), tried again while another process has its folder, up to `LOCK_SECONDS`."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return work(item)
        except FolderInUseError:
            if time.monotonic() > until:
                raise
        time.sleep(LOCK_POLL_SECONDS)


def check_data(runs: Iterable[TableRun], data_root: Root) -> None:
    """Read each data set of some runs once; what is wrong with it is raised."""
    for recipe in {run.recipe.data.dataset: run.recipe for run in runs}.values():
        read_source(recipe, data_root)


def check_precisions(runs: Iterable[TableRun], device: str) -> None:
    """Raise a ValueError where the device lacks a precision of some runs."""
    settings = {(run.recipe.train.precision, run.recipe.train.tf32): run.recipe for run in runs}
    for (precision, tf32), recipe in settings.items():
        check_precision(recipe.name, precision, torch.device(device), tf32=tf32)


def check_room(runs: Iterable[TableRun], out: Path) -> None:
    """Raise an OSError where the disk has no room for what all runs leave behind."""
    sizes: dict[str, int] = {}
    needed = 0
    for run in runs:
        key = repr((run.recipe.model, run.recipe.data.image_size, run.recipe.train.optimizer))
        if key not in sizes:
            model = build_model(run.recipe, "meta")
            sizes[key] = checkpoint.room_of(model, build_optimizer(run.recipe.train, model))
        needed += sizes[key]
    checkpoint.check_room(out, needed, "all runs")
