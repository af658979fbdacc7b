"""A command on several ranks, started by torch's own launcher. No torch before it is needed."""

import logging
import os
import signal
import sys
import time

import click

GRACE = 30  # seconds in which the launcher ends this rank, also on a busy machine
LOST = 79  # exit code of a rank that has lost another one, and has nothing to tell
TOLD = (1, 2, 130)  # exit codes of a rank that has told why


def launched() -> bool:
    """Whether this process is one of several ranks that a launcher has started."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not launched() or os.environ.get("RANK") == "0"


def restarted() -> bool:
    """Whether the launcher has started the ranks again, after one of them had ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def launch_note() -> dict[str, str]:
    """What a run's recipe.json holds of the launcher that has started it, the same after a restart;
    nothing without a launcher.
    """
    if not launched():
        return {}
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return {"launch": f"process {os.getppid()}" if name == "none" else name}


def after_first(words: str) -> str:
    """Wait until it is this rank's turn to report an error. What all ranks meet is reported by
    rank 0, and the launcher ends the others when the first of them has ended: one that is still
    there after a while has an error of its own.

    Args:
        words: What to report.

    Returns:
        The words; with the name of a rank that is not the first.
    """
    if first():
        return words
    time.sleep(GRACE)
    return f"rank {os.environ.get('RANK')}: {words}"


def let_lost_end() -> None:
    """Wait for the rank that was lost: the launcher reads the exit codes of those that have ended
    by then, and must find that one among them.
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
        run_id=f"hfc-{os.getpid()}",  # without one, torch warns
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
        explained = [code for _, code in sorted(codes.items()) if code in TOLD]
        if explained and not killed:
            sys.exit(explained[0])
        ended = [rank for rank, code in codes.items() if code not in (LOST, -signal.SIGTERM)]
        rank = (killed or ended or [error.get_first_failure()[0]])[0]
        code = codes[rank]
        how = (
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        click.echo(
            f"hfc: rank {rank} of {ranks} {how}, and the others with it. What is done is kept; the "
            "same command resumes it.",
            err=True,
        )
        sys.exit(1)
    sys.exit(0)
