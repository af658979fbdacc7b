"""AFC: distillation of maps weighted by the importance of each channel, and that importance from
the gradients of a loss.

Maps are (b, channels, h, w); importance is one number for each channel of each map.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc.losses._common import full_precision, outside_autocast
from avalanche_hfc.losses._features import Maps, squared_pairs, unit_distance

Importance = Sequence[Float[Tensor, "_"]]


def importance_distillation(
    maps: Maps, teacher_maps: Maps, importance: Importance
) -> Float[Tensor, ""]:
    """DISC: mean over maps, samples and channels of I_c ‖â_c - â°_c‖₂, a = A² of a channel
    flattened over h·w, of unit length.
    """
    pairs = squared_pairs(maps, teacher_maps, "importance_distillation")
    channels, known = [a.shape[1] for a in maps], [len(i) for i in importance]
    if channels != known:
        raise ValueError(
            f"importance_distillation: maps have {channels} channels, importance has {known}."
        )
    with outside_autocast(maps[0]):
        distances = [
            unit_distance(a.flatten(2), b.flatten(2)) for a, b in pairs
        ]  # (b, channels) of each map
        return torch.stack(
            [(i.detach() * d).mean() for i, d in zip(importance, distances, strict=True)]
        ).mean()


def add_importance(gradients: Maps, sums: Importance | None = None) -> list[Tensor]:
    """The sums so far plus Σ_i Σ_hw (∂ℓ/∂A_ichw)² of a batch, for each channel of each map.
    Detached.

    With gradients of the *sum* of the samples' losses every sample counts alike; those of a mean
    weigh a smaller last batch more.
    """
    squares = [full_precision(g.detach()).square().sum((0, 2, 3)) for g in gradients]
    return squares if sums is None else [a + b for a, b in zip(sums, squares, strict=True)]


def normalised_importance(sums: Importance) -> list[Tensor]:
    """I_c over its mean over channels; 1 everywhere in a map whose sums are all 0."""
    return [torch.where(i.any(), i / i.mean(), 1.0) for i in sums]
