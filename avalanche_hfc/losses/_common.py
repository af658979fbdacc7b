"""Helpers of every loss: precision, column sets derived from `steps`, means over groups, and
unit vectors.

`b` samples, `C` columns; a column is a class id. `steps (C,)` holds the step that introduced each
class, -1 for classes not seen yet; the largest is the current step. Nothing here copies a tensor's
value to the host.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Maps = Sequence[Float[Tensor, "b _ _ _"]]


def check_choice(caller: str, name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise a ValueError that names the allowed values."""
    if value not in allowed:
        raise ValueError(
            f"{caller}: {name} must be {' or '.join(map(repr, allowed))}, got {value!r}."
        )


def full_precision(values: Tensor) -> Tensor:
    """The same values in at least float32."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def outside_autocast(like: Tensor) -> AbstractContextManager:
    """A context in which operations keep the precision of their inputs.

    The meta device has no autocast.
    """
    device_type = like.device.type
    return nullcontext() if device_type == "meta" else torch.autocast(device_type, enabled=False)


def seen_columns(steps: Int[Tensor, "C"]) -> Bool[Tensor, "C"]:
    """Columns of all classes seen so far."""
    return steps >= 0


def old_columns(steps: Int[Tensor, "C"]) -> Bool[Tensor, "C"]:
    """Columns of all earlier steps: what the teacher knows."""
    return seen_columns(steps) & (steps < steps.amax())


def old_fraction(steps: Int[Tensor, "C"], dtype: torch.dtype) -> Float[Tensor, ""]:
    """z = K^o / (K^o + K^t), the exponent of Eq. 8. 0 in the first step."""
    return old_columns(steps).sum() / seen_columns(steps).sum().to(dtype)


def new_columns(steps: Int[Tensor, "C"]) -> Bool[Tensor, "C"]:
    """Columns of the current step."""
    return steps == steps.amax()


def only(columns: Bool[Tensor, "... C"], logits: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
    """The logits with every other column at -inf, which excludes it from a softmax."""
    return logits.masked_fill(~columns, float("-inf"))


def log_probabilities(
    columns: Bool[Tensor, "... C"], logits: Float[Tensor, "b C"]
) -> Float[Tensor, "b C"]:
    """log softmax over the given columns, 0 in the others.

    The others then add nothing to a sum of p log q. All values are 0 if no column is given.
    """
    return full_precision(only(columns, logits)).log_softmax(1).where(columns, 0.0)


def cross_entropy_over(
    columns: Bool[Tensor, "... C"], logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]
) -> Float[Tensor, "b"]:
    """CE(z_i, y_i; A) of each sample."""
    return F.cross_entropy(full_precision(only(columns, logits)), targets, reduction="none")


def one_hot(targets: Int[Tensor, "b"], like: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
    """1 in the column of the label, 0 elsewhere.

    `F.one_hot` would copy the largest label to the host first.
    """
    return torch.zeros_like(like).scatter(1, targets[:, None], 1.0)


def step_means(values: Float[Tensor, "b"], sample_steps: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Mean over the samples that share each sample's step.

    Takes b² operations: a step may be any number, so it cannot serve as an index.
    """
    same = (sample_steps[:, None] == sample_steps[None, :]).to(values.dtype)
    return (same * values).sum(1) / same.sum(1)


class ClassGroups(NamedTuple):
    """The samples of a batch grouped by class, in b + C operations; a mean takes b·d."""

    first: Int[Tensor, "b"]  # row of the first sample of each sample's class
    size: Float[Tensor, "b"]  # samples of each sample's class

    @staticmethod
    def of(targets: Int[Tensor, "b"], like: Float[Tensor, "b C"]) -> "ClassGroups":
        """Group the samples of a batch."""
        rows = torch.arange(len(targets), device=targets.device)
        first = rows.new_full((like.shape[1],), len(targets)).scatter_reduce(
            0, targets, rows, "amin"
        )
        size = like.new_zeros(like.shape[1]).scatter_add(0, targets, torch.ones_like(like[:, 0]))
        return ClassGroups(first[targets], size[targets])

    @staticmethod
    def single(like: Float[Tensor, "b C"]) -> "ClassGroups":
        """Each sample as a group of its own."""
        rows = torch.arange(len(like), device=like.device)
        return ClassGroups(rows, like.new_ones(len(like)))

    def means(self, rows: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
        """Mean over the samples of each sample's class."""
        sums = torch.zeros_like(rows).index_add(0, self.first, rows)
        return sums.index_select(0, self.first) / self.size[:, None]

    def maxima(self, rows: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
        """Largest value of each column over the samples of each sample's class."""
        return rows.scatter_reduce(
            0, self.first[:, None].expand_as(rows), rows, "amax"
        ).index_select(0, self.first)

    def sum_of_means(self, values: Float[Tensor, "b"]) -> Float[Tensor, ""]:
        """Σ over the classes present of the mean over their samples."""
        return (values / self.size).sum()

    def num_present(self) -> Int[Tensor, ""]:
        """Number of classes present."""
        return (self.first == torch.arange(len(self.first), device=self.first.device)).sum()


# Pairs of feature maps of student and teacher, and unit vectors: POD, AFC and CSCCT


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
