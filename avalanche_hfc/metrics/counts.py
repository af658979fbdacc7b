"""The counts of one evaluation, and how the logits of a batch become counts.

`b` images, `N` images of the whole evaluation, `C` columns; a column is a class id. `steps (C,)`
holds the step that introduced each class, -1 for classes not seen yet. Only seen columns compete.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses import target_gradient


@dataclass(frozen=True, init=False)
class StepCounts:
    """What one evaluation counted for each class, as tensors on the CPU.

    A class without images, or not seen yet, has a total of 0. Of the confusion matrix only the
    cells that are not 0 are kept, at most one for each image: `cells` is a coalesced sparse COO
    tensor of shape ``(C, C)``, ordered by class, then by predicted class. `confusion` may be given
    dense or as such a tensor, whose repeated cells are added up; it is dense when it is read.

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

    cells: Int[Tensor, "C C"] = field(init=False)
    correct_nme: Int[Tensor, "C"] | None
    total: Int[Tensor, "C"]
    gradient_sum: Float[Tensor, "C"]
    gradient_square_sum: Float[Tensor, "C"]

    def __init__(
        self,
        confusion: Int[Tensor, "C C"],
        correct_nme: Int[Tensor, "C"] | None,
        total: Int[Tensor, "C"],
        gradient_sum: Float[Tensor, "C"],
        gradient_square_sum: Float[Tensor, "C"],
    ):
        vars(self).update(  # the class is frozen
            cells=confusion.to_sparse().coalesce(),
            correct_nme=correct_nme,
            total=total,
            gradient_sum=gradient_sum,
            gradient_square_sum=gradient_square_sum,
        )

    @property
    def confusion(self) -> Int[Tensor, "C C"]:
        """The confusion matrix, dense, shape ``(C, C)``; made anew whenever it is read."""
        return self.cells.to_dense()

    @property
    def correct(self) -> Int[Tensor, "C"]:
        """Correct predictions of each class by the head, shape ``(C,)``."""
        (classes, predicted), counts = self.cells.indices(), self.cells.values()
        right = classes == predicted
        return counts.new_zeros(len(self.total)).index_put((classes[right],), counts[right])


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

    Computed on the host, where sums in float64 have one order and therefore one result. Time and
    memory grow with N + C.
    """
    gradient = gradient.double()
    return StepCounts(
        confusion=torch.sparse_coo_tensor(
            torch.stack([targets, predicted]),
            torch.ones_like(targets),
            (num_columns, num_columns),
            check_invariants=True,
        ),
        correct_nme=None
        if nearest is None
        else torch.bincount(targets[nearest == targets], minlength=num_columns),
        total=torch.bincount(targets, minlength=num_columns),
        gradient_sum=torch.bincount(targets, gradient, num_columns),
        gradient_square_sum=torch.bincount(targets, gradient**2, num_columns),
    )
