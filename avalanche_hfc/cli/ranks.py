"""A command on several ranks, started by torch's own launcher. No torch before it is needed."""

import logging
import os
import signal
import sys
import time

import click

GRACE = 10  # seconds


def launched() -> bool:
    """Whether this process is one of several ranks that a launcher has started."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not launched() or os.environ.get("RANK") == "0"


def restarted() -> bool:
    """Whether the launcher has started the ranks again, after one of them had ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def let_first_speak() -> None:
    """Wait, after an error that all ranks meet, for rank 0 to report it: the launcher ends the
    others when the first of them has ended.
    """
    time.sleep(GRACE)


def lost_connection(error: Exception) -> bool:
    """Whether an error is that of a rank that waits for one that has ended."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or (
        isinstance(error, RuntimeError) and "gloo/transport" in str(error)
    )


def check_ranks(ranks: int, batch_size: int) -> None:
    """A ValueError for a number of ranks that cannot be."""
    if batch_size < ranks:
        raise ValueError(
            f"A global batch of {batch_size} images cannot be divided among {ranks} ranks. Use at "
            f"most {batch_size} ranks, or a larger --batch-size."
        )
    if launched() and ranks != int(os.environ["WORLD_SIZE"]):
        raise ValueError(
            f"--ranks {ranks}: this process is one of {os.environ['WORLD_SIZE']} ranks of a "
            "launcher. Leave out --ranks."
        )


def launch(ranks: int, device: str) -> None:
    """Run this command on several ranks of this machine, and end with its exit code."""
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    gpus = torch.cuda.device_count()
    if gpus < ranks and (device == "cuda" or (device == "auto" and gpus)):
        raise ValueError(
            f"--ranks {ranks}: torch finds {gpus} GPU(s), one for each rank is needed. Use fewer "
            "ranks, or --device cpu."
        )
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // ranks, 1)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "avalanche_hfc", *sys.argv[1:])
    except SignalException as error:
        sys.exit(128 + int(error.sigval))
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        killed = [rank for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM]
        if not killed and codes.get(0, 0) > 0:  # rank 0 has said what is wrong
            sys.exit(codes[0])
        rank = killed[0] if killed else error.get_first_failure()[0]
        code = codes[rank]
        how = (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        click.echo(
            f"hfc: rank {rank} of {ranks} {how}, and the others with it. What is done is kept; the "
            "same command resumes it.",
            err=True,
        )
        sys.exit(1)
    sys.exit(0)
