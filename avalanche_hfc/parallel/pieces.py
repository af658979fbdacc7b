"""A batch that does not fit into memory: its rows are computed piece by piece, and a loss of all
rows is differentiated exactly.

The first pass over the pieces keeps no activations. The gradient of the loss with respect to the
rows is computed once; the backward pass computes each piece again and carries its part back, with
the activations of one piece at a time. It is torch's activation checkpointing, divided by rows
instead of layers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from avalanche_hfc.parallel.layers import depends_on_batch


def in_pieces(
    compute: Callable[..., Any], columns: Sequence[Tensor | None], *, piece_size: int
) -> Any:
    """Compute rows from other rows, a piece at a time.

    Args:
        compute: Maps rows of the columns to a tensor with as many rows, or to tuples and lists of
            such tensors and None. It is called again in the backward pass, so it must not change
            anything.
        columns: Tensors with a row for each image, or None.
        piece_size: Largest number of rows of a piece.

    Returns:
        What `compute` returns for all rows, with gradients.

    Example:
        >>> import torch
        >>> from avalanche_hfc.parallel.pieces import in_pieces
        >>> in_pieces(lambda rows: 2 * rows, [torch.arange(5)], piece_size=2)
        tensor([0, 2, 4, 6, 8])
    """
    size = next(len(column) for column in columns if column is not None)
    spans = [slice(start, start + piece_size) for start in range(0, size, piece_size)]
    if len(spans) == 1:
        return compute(*columns)
    return joined(
        [
            checkpoint(
                compute,
                *(None if column is None else column[span] for column in columns),
                use_reentrant=False,
                preserve_rng_state=False,  # nothing is drawn: `check_divisible`, `nothing_drawn`
            )
            for span in spans
        ]
    )


def joined(parts: Sequence[Any]) -> Any:
    """Outputs of the same structure as one, their rows one after the other."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    members = [joined(each) for each in zip(*parts, strict=True)]
    return type(first)(*members) if hasattr(first, "_fields") else type(first)(members)


def check_divisible(owner: str, model: nn.Module) -> None:
    """Check that the output of a model for an image depends on that image alone.

    Args:
        owner: The strategy, for the message.
        model: The model that is trained.

    Raises:
        ValueError: If it has batch norm, dropout, drop-path or another layer that draws: pieces of
            a batch would then not give what the whole batch gives.
    """
    for name, module in model.named_modules():
        if depends_on_batch(module):
            raise ValueError(
                f"{owner}: micro_batch is not exact with {name or 'the model'} "
                f"({type(module).__name__}), which depends on the whole batch or draws at random. "
                "Use a model without batch norm, dropout and drop-path, or leave out micro_batch."
            )
