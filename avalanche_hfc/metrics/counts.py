"""The counts of one evaluation, and how the logits of a batch become counts.

`b` images, `N` images of the whole evaluation, `C` columns; a column is a class id. `steps (C,)`
holds the step that introduced each class, -1 for classes not seen yet. Only seen columns compete.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses import target_gradient


@dataclass(frozen=True)
class StepCounts:
    """What one evaluation counted for each class, as tensors on the CPU.

    A class without images, or not seen yet, has a total of 0.

    Attributes:
        confusion: Number of images of each class (row) predicted as each class (column) by the
            head, shape ``(C, C)``, int64.
        correct_nme: Correct predictions of each class by the nearest class mean, shape ``(C,)``;
            None if no class means were given.
        total: Number of images of each class, shape ``(C,)``.
        gradient_sum: Sum of the gradient magnitudes |Γ_i| (Eq. 6) over the images of each class,
            shape ``(C,)``, float64. The softmax runs over the columns of seen classes.
        gradient_square_sum: Sum of |Γ_i|², shape ``(C,)``, float64.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import StepCounts
        >>> confusion, zeros = torch.tensor([[9, 1], [2, 8]]), torch.zeros(2, dtype=torch.float64)
        >>> StepCounts(confusion, None, torch.tensor([10, 10]), zeros, zeros).correct
        tensor([9, 8])
    """

    confusion: Int[Tensor, "C C"]
    correct_nme: Int[Tensor, "C"] | None
    total: Int[Tensor, "C"]
    gradient_sum: Float[Tensor, "C"]
    gradient_square_sum: Float[Tensor, "C"]

    @property
    def correct(self) -> Int[Tensor, "C"]:
        """Correct predictions of each class by the head, shape ``(C,)``."""
        return self.confusion.diagonal()


class SeenColumns:
    """The seen columns of a head, selected by `steps` and never by a logit's value."""

    def __init__(self, steps: Int[Tensor, "C"], device: torch.device):
        seen = steps.to(device) >= 0
        self.ids = seen.nonzero().flatten()
        self.rank = seen.cumsum(0) - 1  # class id -> place among the seen columns
        if not len(self.ids):
            raise ValueError(
                f"No class has been seen: all {len(steps)} entries of steps are below 0."
            )
        self.largest = int(self.ids[-1])  # read once: a batch must not wait for it

    def judge(
        self, logits: Float[Tensor, "b W"], targets: Int[Tensor, "b"]
    ) -> tuple[Int[Tensor, "b"], Float[Tensor, "b"]]:
        """Predicted class ids and |Γ| of a batch, on its device. Targets are of seen classes."""
        if logits.shape[1] <= self.largest:
            raise ValueError(
                f"The model gives {logits.shape[1]} columns, but class {self.largest} has "
                "been seen. A column is a class id."
            )
        competing = logits.index_select(1, self.ids)
        return self.ids[competing.argmax(1)], target_gradient(competing, self.rank[targets])


def count(
    targets: Int[Tensor, "N"],
    predicted: Int[Tensor, "N"],
    gradient: Float[Tensor, "N"],
    num_columns: int,
    nearest: Int[Tensor, "N"] | None = None,
) -> StepCounts:
    """The counts of all images of an evaluation, at least one.

    Computed on the host, where sums in float64 have one order and therefore one result.
    """
    gradient = gradient.double()
    cells = torch.bincount(targets * num_columns + predicted, minlength=num_columns**2)
    return StepCounts(
        confusion=cells.view(num_columns, num_columns),
        correct_nme=None
        if nearest is None
        else torch.bincount(targets[nearest == targets], minlength=num_columns),
        total=torch.bincount(targets, minlength=num_columns),
        gradient_sum=torch.bincount(targets, gradient, num_columns),
        gradient_square_sum=torch.bincount(targets, gradient**2, num_columns),
    )
