"""What torch's random generators have drawn."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def generator_state(device: torch.device) -> bytes:
    """The state of torch's default generators, of the CPU and of a GPU.

    Args:
        device: Where the model is.

    Returns:
        The same bytes as long as nothing is drawn.

    Example:
        >>> import torch
        >>> from avalanche_hfc.parallel.draws import generator_state
        >>> before = generator_state(torch.device("cpu"))
        >>> generator_state(torch.device("cpu")) == before
        True
    """
    state = torch.get_rng_state().numpy().tobytes()
    if device.type == "cuda":
        state += torch.cuda.get_rng_state(device).numpy().tobytes()
    return state


@contextmanager
def nothing_drawn(owner: str, device: torch.device) -> Iterator[None]:
    """A context for the pieces of a batch, in which nothing may be drawn.

    Args:
        owner: The strategy, for the message.
        device: Where the model is.

    Raises:
        ValueError: At the end, if a generator of torch has moved: the pieces are computed again in
            the backward pass, where the draws would be others.
    """
    before = generator_state(device)
    yield
    if generator_state(device) != before:
        raise ValueError(
            f"{owner}: micro_batch is not exact with this model, which draws random numbers in its "
            "forward pass. Use a model that draws none in training, or leave out micro_batch."
        )
