"""Ridge regression to one-hot labels from sums over samples: the same result in whatever order, and
in however many steps, the samples come.

`b` samples, `M` features, `C` columns; a column is a class id.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

RIDGES = tuple(10.0**power for power in range(-8, 9))


class RidgeSums:
    """G = Σ h hᵀ, Q = Σ h yᵀ and the number of samples of each class, of all samples added; y is
    one-hot.

    Args:
        num_features: M.
        device: Where the sums are kept, in float64.

    Example:
        >>> sums = RidgeSums(2)
        >>> sums.add(torch.eye(2), torch.tensor([0, 1]), num_classes=2)
        >>> sums.weights(ridge=1.0).tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """

    def __init__(self, num_features: int, device: torch.device | str = "cpu"):
        like: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.gram: Float[Tensor, "M M"] = torch.zeros(num_features, num_features, **like)
        self.cross: Float[Tensor, "M C"] = torch.zeros(num_features, 0, **like)
        self.counts: Float[Tensor, "C"] = torch.zeros(0, **like)

    def add(
        self, features: Float[Tensor, "b M"], targets: Int[Tensor, "b"], *, num_classes: int
    ) -> None:
        """Take samples in; `num_classes` is C, which may grow from call to call."""
        features = features.double()
        labels = F.one_hot(targets, num_classes).double()
        missing = num_classes - len(self.counts)
        self.gram = self.gram.addmm(features.T, features)
        self.cross = F.pad(self.cross, (0, missing)).addmm(features.T, labels)
        self.counts = F.pad(self.counts, (0, missing)) + labels.sum(0)

    def plus(self, other: "RidgeSums") -> "RidgeSums":
        """The sums over the samples of both."""
        total = copy(self)
        total.gram = self.gram + other.gram
        total.cross = self.cross + other.cross
        total.counts = self.counts + other.counts
        return total

    def weights(self, ridge: float) -> Float[Tensor, "C M"]:
        """Wᵀ = (G + λ I)⁻¹ Q, λ = `ridge`: the minimum of Σ ‖y - W h‖² + λ ‖W‖²."""
        identity = torch.eye(len(self.gram), dtype=self.gram.dtype, device=self.gram.device)
        return torch.linalg.solve(self.gram + ridge * identity, self.cross).T

    def squared_error(self, weights: Float[Tensor, "C M"]) -> Float[Tensor, ""]:
        """Σ ‖y - W h‖² over the samples: tr(W G Wᵀ) - 2 tr(W Q) + n."""
        return (
            (weights @ self.gram * weights).sum()
            - 2 * (weights * self.cross.T).sum()
            + self.counts.sum()
        )

    def state_dict(self) -> dict[str, Tensor]:
        return {"gram": self.gram, "cross": self.cross, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        device = self.gram.device
        self.gram, self.cross, self.counts = (
            state[name].to(device) for name in ("gram", "cross", "counts")
        )


def best_ridge(fit: RidgeSums, held_out: RidgeSums, ridges: Iterable[float] = RIDGES) -> float:
    """The λ whose weights, fitted to the samples of `fit`, have the least squared error on
    `held_out`; the largest of equals.

    Args:
        fit: Sums over the samples to fit.
        held_out: Sums over the samples to judge by.
        ridges: The candidates.

    Example:
        >>> fit, held_out = RidgeSums(1), RidgeSums(1)
        >>> fit.add(torch.ones(4, 1), torch.zeros(4, dtype=torch.long), num_classes=1)
        >>> held_out.add(torch.ones(1, 1), torch.zeros(1, dtype=torch.long), num_classes=1)
        >>> best_ridge(fit, held_out, [0.1, 10.0])
        0.1
    """
    errors = {
        ridge: float(held_out.squared_error(fit.weights(ridge)))
        for ridge in sorted(ridges, reverse=True)
    }
    return min(errors, key=lambda ridge: errors[ridge])
