"""Where a run trains: its device, and the ranks of torch.distributed that share it. Rank 0 alone
reads and writes the run's folder: `on_first` says so.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from avalanche.training.templates import SupervisedTemplate

from avalanche_hfc._types import Record
from avalanche_hfc.benchmarks import SplitBenchmark
from avalanche_hfc.lab.machine import cpu
from avalanche_hfc.lab.run_folder import placeless_settings, versions
from avalanche_hfc.ranks import (
    agree,
    arrange_layers,
    check_batch,
    gather_objects,
    weights_digest,
    world,
)
from avalanche_hfc.strategies import STRATEGIES
from avalanche_hfc.strategies._base.template import IncrementalTemplate

Result = TypeVar("Result")
LONGEST = timedelta(hours=2)  # that a rank waits for another, such as for a checkpoint


def check_device(device: str) -> str:
    """The device as torch calls it: "auto" is the GPU if there is one.

    Args:
        device: "auto", or a device of torch.

    Returns:
        The device.

    Raises:
        ValueError: torch does not know or does not find the device.

    Example:
        >>> check_device("cpu")
        'cpu'
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"No device {device!r} here: {why}. Use auto or cpu; cuda, cuda:1, … on a machine with "
            "GPUs."
        ) from None
    return device


def machine(device: str) -> str:
    """Processor, GPU, threads and ranks, in words."""
    gpu = f", {torch.cuda.get_device_name(device)}" if torch.device(device).type == "cuda" else ""
    ranks = f", ranks: {world().size}" if world().several else ""
    return f"{cpu()}{gpu}, threads: {torch.get_num_threads()}{ranks}"


def peak_memory(device: torch.device) -> int:
    """Bytes: allocated on a GPU at most, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def join(device: str) -> str:
    """Join the ranks that torch's launcher has started, if it has.

    Args:
        device: A device of torch; ``"cuda"`` is the GPU of this rank on its machine.

    Returns:
        The device of this rank.

    Raises:
        ValueError: If the device is one GPU, which all ranks would use, or the ranks do not reach
            each other.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return device
    if torch.device(device).index is not None:
        raise ValueError(
            f"{device!r} is one GPU for all {os.environ['WORLD_SIZE']} ranks. Use cuda: each rank "
            "takes its own."
        )
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        try:
            connect(device)
        except (RuntimeError, ValueError, OSError) as error:  # not a rank that was lost later
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(f"The ranks cannot connect: {why}") from error
    return device


def connect(device: str) -> None:
    """Make the process group, and send a first message through it: NCCL connects no sooner."""
    store, rank, ranks = next(dist.rendezvous("env://", timeout=LONGEST))
    # after a restart the launcher's store may still have the addresses of ranks that are gone
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend_for(device),
        store=dist.PrefixStore(f"attempt {attempt}", store),
        rank=rank,
        world_size=ranks,
        timeout=LONGEST,
    )
    gather_objects(rank)


def backend_for(device: str | torch.device) -> str:
    """The backend of torch.distributed that moves tensors of a device."""
    return "nccl" if torch.device(device).type == "cuda" else "gloo"


def check_same(recipe: Record, seed: int, *, fresh: bool = False) -> None:
    """Raise a ValueError on every rank if they were started with different things. Their data may
    be at different places: `check_exact` compares what it is.
    """
    values = placeless_settings(recipe)
    agree("the recipe or the seed", json.dumps([values, seed], sort_keys=True, default=str))
    agree("--fresh", str(fresh))
    agree("the versions of the packages", json.dumps(versions(), sort_keys=True))


def check_exact(strategy: SupervisedTemplate, benchmark: SplitBenchmark) -> None:
    """Raise a ValueError on every rank if the strategy cannot be trained by all of them together,
    or their data or weights differ.
    """
    if not world().several:
        return
    if not isinstance(strategy, IncrementalTemplate):
        ours = [name for name, kind in STRATEGIES.items() if issubclass(kind, IncrementalTemplate)]
        raise ValueError(
            f"{type(strategy).__name__} trains on one rank only: its losses would be those of a "
            f"part of each batch. Exact on several ranks: {', '.join(ours)}."
        )
    check_batch(strategy.train_mb_size)
    if strategy.trains_model:
        owner, device = type(strategy).__name__, strategy.device
        together(lambda: arrange_layers(owner, strategy.model, device))
    agree("the data", together(benchmark.fingerprint))
    agree("the weights of the model", weights_digest(strategy.model))


def on_first(action: Callable[[], Result]) -> Result:
    """Run an action on rank 0 alone, and give its result to all ranks.

    Args:
        action: What rank 0 does. It must not communicate with the others.

    Returns:
        Its result, on every rank; it is pickled.

    Raises:
        ValueError, OSError, FloatingPointError: On every rank, if it fails on rank 0.
    """
    if not world().several:
        return action()
    held: list[Any] = [together(lambda: action() if world().first else None)]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def together(action: Callable[[], Result]) -> Result:
    """Run an action on every rank; an error of one of them is raised on all.

    Without it a rank that fails would leave the others waiting for it.

    Args:
        action: What this rank does. It must not communicate with the others.

    Returns:
        Its result.

    Raises:
        ValueError, OSError, FloatingPointError: The error of the lowest rank that has one, of its
            type.
    """
    if not world().several:
        return action()
    error: Exception | None = None
    try:
        result = action()
    except (ValueError, OSError, FloatingPointError) as caught:
        error = caught
    failed = [each for each in gather_objects(error) if each is not None]
    if failed:
        raise error or failed[0]
    return result
