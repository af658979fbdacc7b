"""What every loss needs: precision, the column sets that follow from `steps`, and means over groups of a batch.

`b` samples, `C` columns; a column is a class id. `steps (C,)` holds the step that brought each class, -1 where none has yet; the largest
is the current step. Nothing here reads a tensor's value on the host.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def full_precision(values: Tensor) -> Tensor:
    """The same values in at least float32."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def outside_autocast(like: Tensor) -> AbstractContextManager:
    """A context in which operations keep the precision of their inputs. The meta device knows no autocast."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def seen_columns(steps: Int[Tensor, "C"]) -> Bool[Tensor, "C"]:
    return steps >= 0


def old_columns(steps: Int[Tensor, "C"]) -> Bool[Tensor, "C"]:
    """Columns of all earlier steps: what the teacher knows."""
    return seen_columns(steps) & (steps < steps.amax())


def old_fraction(steps: Int[Tensor, "C"], dtype: torch.dtype) -> Float[Tensor, ""]:
    """z = K^o / (K^o + K^t), the exponent of Eq. 8. 0 in the first step."""
    return old_columns(steps).sum().to(dtype) / seen_columns(steps).sum().to(dtype)


def only(columns: Bool[Tensor, "C"], logits: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
    """The logits with every other column at -inf: it takes part in no softmax."""
    return logits.masked_fill(~columns, float("-inf"))


def one_hot(targets: Int[Tensor, "b"], like: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
    """1 in the column of the label, 0 elsewhere. `F.one_hot` reads the largest label on the host first."""
    return torch.zeros_like(like).scatter(1, targets[:, None], 1.0)


class Groups(NamedTuple):
    """The batch's samples grouped by a label (a class, a step)."""

    first: Int[Tensor, "b"]  # row of the first sample of each sample's group
    size: Float[Tensor, "b"]  # samples in each sample's group

    @staticmethod
    def by(labels: Int[Tensor, "b"], dtype: torch.dtype) -> "Groups":
        same = labels[:, None] == labels[None, :]  # (b, b)
        return Groups(same.to(torch.uint8).argmax(1), same.sum(1).to(dtype))

    def sums(self, rows: Float[Tensor, "b *d"]) -> Float[Tensor, "b *d"]:
        """Sum over each sample's own group. Work b·d."""
        return torch.zeros_like(rows).index_add(0, self.first, rows)[self.first]

    def means(self, rows: Float[Tensor, "b *d"]) -> Float[Tensor, "b *d"]:
        """Mean over each sample's own group."""
        return self.sums(rows) / self.size.view(-1, *[1] * (rows.ndim - 1))

    def sum_of_means(self, values: Float[Tensor, "b"]) -> Float[Tensor, ""]:
        """Σ over the groups of the mean over the group's samples."""
        return (values / self.size).sum()

    @property
    def count(self) -> Int[Tensor, ""]:
        """Number of groups."""
        return (self.first == torch.arange(len(self.first), device=self.first.device)).sum()
