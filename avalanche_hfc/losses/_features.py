"""Pairs of feature maps of student and teacher, and unit vectors, shared by POD, AFC and CSCCT."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc.losses._common import full_precision

Maps = Sequence[Float[Tensor, "b _ _ _"]]


def squared_pairs(maps: Maps, teacher_maps: Maps, caller: str) -> Iterator[tuple[Tensor, Tensor]]:
    """The squares of each map and of the teacher's map, which carries no gradient.

    Raises a ValueError if the shapes differ.
    """
    shapes, teacher_shapes = [tuple(a.shape) for a in maps], [tuple(a.shape) for a in teacher_maps]
    if not shapes or shapes != teacher_shapes:
        raise ValueError(
            f"{caller}: maps have the shapes {shapes}, teacher_maps {teacher_shapes}. Give "
            "one or more, the same."
        )
    return (
        (full_precision(a).square(), full_precision(b.detach()).square())
        for a, b in zip(maps, teacher_maps, strict=True)
    )


def unit(vectors: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
    """Vectors of length 1; zeros stay."""
    return F.normalize(full_precision(vectors), dim=-1)


def unit_distance(
    vectors: Float[Tensor, "*n D"], teacher: Float[Tensor, "*n D"]
) -> Float[Tensor, "*n"]:
    """‖v̂ - v̂°‖₂, not squared. Its gradient is 0 where both agree."""
    return torch.linalg.vector_norm(unit(vectors) - unit(teacher), dim=-1)
