"""AFC: distillation of maps weighted by channel importance, and importance from gradients.

Maps are (b, channels, h, w); importance is one number for each channel of each map.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc._compiled import compilable
from avalanche_hfc.losses._common import (
    Maps,
    full_precision,
    outside_autocast,
    squared_pairs,
    unit_distance,
)

Importance = Sequence[Float[Tensor, "_"]]


@compilable
def importance_distillation(
    maps: Maps, teacher_maps: Maps, importance: Importance
) -> Float[Tensor, ""]:
    """AFC's distillation of feature maps, weighted by the importance of each channel.

    The mean over maps, samples and channels of I_c ‖â_c - â°_c‖₂, where a_c holds the squared
    values of a channel over h·w, scaled to unit length.

    Args:
        maps: Feature maps of the model, each of shape ``(b, channels, h, w)``.
        teacher_maps: Feature maps of the teacher, of the same shapes.
        importance: For each map the importance of its channels, shape ``(channels,)``; see
            `normalised_importance`.

    Returns:
        A scalar. Gradients flow to `maps` only.

    Raises:
        ValueError: If shapes or numbers of channels differ, or if no map is given.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import importance_distillation
        >>> maps = [torch.eye(2).reshape(1, 1, 2, 2)]
        >>> importance_distillation(maps, [torch.ones(1, 1, 2, 2)], [torch.tensor([2.0])])
        tensor(1.5307)
    """
    pairs = squared_pairs(maps, teacher_maps, "importance_distillation")
    channels, known = [a.shape[1] for a in maps], [len(i) for i in importance]
    if channels != known:
        raise ValueError(
            f"importance_distillation: maps have {channels} channels, importance has {known}."
        )
    with outside_autocast(maps[0]):
        # (b, channels) of each map
        distances = [unit_distance(a.flatten(2), b.flatten(2)) for a, b in pairs]
        return torch.stack(
            [(i.detach() * d).mean() for i, d in zip(importance, distances, strict=True)]
        ).mean()


def add_importance(gradients: Maps, sums: Importance | None = None) -> list[Tensor]:
    """Add the squared gradients of one batch to the running channel importance of AFC.

    Sums (∂ℓ/∂A_ichw)² over samples and positions for each channel of each map. With gradients of
    the *sum* of the sample losses every sample counts equally; gradients of a mean give a smaller
    last batch more weight.

    Args:
        gradients: Gradients with respect to each map, each of shape ``(b, channels, h, w)``.
        sums: The result of earlier batches, or None for the first batch.

    Returns:
        One tensor of shape ``(channels,)`` per map, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import add_importance
        >>> sums = add_importance([torch.ones(2, 3, 4, 4)])
        >>> add_importance([torch.ones(2, 3, 4, 4)], sums)
        [tensor([64., 64., 64.])]
    """
    squares = [full_precision(g.detach()).square().sum((0, 2, 3)) for g in gradients]
    return squares if sums is None else [a + b for a, b in zip(sums, squares, strict=True)]


def normalised_importance(sums: Importance) -> list[Tensor]:
    """Scale the importance of each map to mean 1 over its channels.

    Args:
        sums: Importance of the channels of each map, as `add_importance` returns it.

    Returns:
        One tensor of shape ``(channels,)`` per map; all ones for a map whose sums are all 0.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import normalised_importance
        >>> normalised_importance([torch.tensor([1.0, 3.0]), torch.zeros(2)])
        [tensor([0.5000, 1.5000]), tensor([1., 1.])]
    """
    return [torch.where(i.any(), i / i.mean(), 1.0) for i in sums]
