"""Who else trains: rank and number of ranks, what they must agree on, and errors that end all of
them alike.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

Result = TypeVar("Result")


class World(NamedTuple):
    """The place of this process among those that train together.

    Args:
        rank: The rank of this process, from 0.
        size: Number of ranks.

    Example:
        >>> from avalanche_hfc.parallel import World
        >>> World(rank=1, size=2).first
        False
    """

    rank: int
    size: int

    @property
    def several(self) -> bool:
        """Whether there is more than one rank."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone writes and prints."""
        return self.rank == 0


def world() -> World:
    """The rank of this process and the number of ranks.

    Returns:
        Rank 0 of 1 unless torch.distributed is initialised.

    Example:
        >>> from avalanche_hfc.parallel import world
        >>> world()
        World(rank=0, size=1)
    """
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World(0, 1)


def backend_for(device: str | torch.device) -> str:
    """The backend of torch.distributed that moves tensors of a device.

    Args:
        device: Where the model is.

    Returns:
        ``"nccl"`` for CUDA, else ``"gloo"``.

    Example:
        >>> from avalanche_hfc.parallel import backend_for
        >>> backend_for("cuda:1"), backend_for("cpu")
        ('nccl', 'gloo')
    """
    return "nccl" if torch.device(device).type == "cuda" else "gloo"


def gather_objects(value: Any) -> list[Any]:
    """The values of all ranks, in their order; every rank must call it.

    Args:
        value: What this rank contributes; it is pickled.

    Returns:
        One value for each rank.

    Example:
        >>> from avalanche_hfc.parallel import gather_objects
        >>> gather_objects("one rank")
        ['one rank']
    """
    if not world().several:
        return [value]
    found: list[Any] = [None] * world().size
    dist.all_gather_object(found, value)
    return found


def broadcast(value: Any) -> Any:
    """The value that rank 0 gives; every rank must call it.

    Args:
        value: Used on rank 0 only; it is pickled.

    Returns:
        The value of rank 0.

    Example:
        >>> from avalanche_hfc.parallel import broadcast
        >>> broadcast({"step": 2})
        {'step': 2}
    """
    if not world().several:
        return value
    held = [value]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def agree(name: str, value: bytes | str) -> None:
    """Check that all ranks have the same value; every rank must call it.

    Args:
        name: What is compared, for the message.
        value: Compared by its SHA-256.

    Raises:
        ValueError: On every rank, with the ranks that differ from most of the others.

    Example:
        >>> from avalanche_hfc.parallel import agree
        >>> agree("recipe", "batch_size=64")
    """
    if not world().several:
        return
    data = value.encode() if isinstance(value, str) else value
    digests = gather_objects(hashlib.sha256(data).hexdigest()[:16])
    usual = Counter(digests).most_common(1)[0][0]
    others = [rank for rank, digest in enumerate(digests) if digest != usual]
    if others:
        found = ", ".join(f"rank {rank} {digest}" for rank, digest in enumerate(digests))
        raise ValueError(
            f"The ranks differ in {name}: {' and '.join(f'rank {rank}' for rank in others)} "
            f"{'has' if len(others) == 1 else 'have'} another than the rest (checksums: {found})."
        )


def on_first(action: Callable[[], Result]) -> Result:
    """Run an action on rank 0 alone, and give its result to all ranks.

    Args:
        action: What rank 0 does. It must not communicate with the others.

    Returns:
        Its result, on every rank; it is pickled.

    Raises:
        ValueError, OSError, FloatingPointError: On every rank, if it fails on rank 0.

    Example:
        >>> from avalanche_hfc.parallel import on_first
        >>> on_first(lambda: "written")
        'written'
    """
    if not world().several:
        return action()
    return broadcast(together(lambda: action() if world().first else None))


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

    Example:
        >>> from avalanche_hfc.parallel import together
        >>> together(lambda: 1 + 1)
        2
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
        raise failed[0] if error is None else error
    return result
