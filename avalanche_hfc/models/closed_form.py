"""Heads whose rows are computed from features instead of trained: class means, and ridge regression
on random features.

`b` samples, `D` features, `M` random features, `C` columns; a column is a class id.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any, SupportsIndex

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.models.heads import UNSEEN_LOGIT, ClassColumns, closeness

RIDGES = tuple(10.0**power for power in range(-8, 9))


class ClosedFormHead(ClassColumns):
    """`rows (C, width)`, one for each class id up to the largest seen, and no parameters.

    `seen (C,)` marks the classes that have arrived. The columns of the others are exactly -1000. A
    row is zero until it is computed.
    """

    rows: Tensor
    seen: Tensor

    def __init__(self, in_features: int, width: int):
        super().__init__()
        self.in_features = in_features
        self.register_buffer("rows", torch.empty(0, width))
        self.register_buffer("seen", torch.empty(0, dtype=torch.bool))

    @property
    def out_features(self) -> int:
        """C, the number of rows."""
        return len(self.rows)

    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Add a zero row for each class that arrives; rows of classes seen keep their bits.

        Args:
            class_ids: Class ids, in any order.
        """
        arriving = self._checked(class_ids)
        missing = max(arriving, default=-1) + 1 - self.out_features
        if missing > 0:
            self.rows = F.pad(self.rows, (0, 0, 0, missing))
            self.seen = F.pad(self.seen, (0, missing))
        self.seen[arriving] = True

    def scores(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        """What a sample has in each column, in the precision of the rows.

        Args:
            embedding: Features, shape ``(b, D)``.

        Returns:
            Scores, shape ``(b, C)``; those of classes not seen yet have no meaning.
        """
        raise NotImplementedError

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        with torch.autocast(embedding.device.type, enabled=False):
            scores = self.scores(embedding.to(self.rows.dtype))
        return self.padded(scores.masked_fill(~self.seen, UNSEEN_LOGIT))


class ClassMeanHead(ClosedFormHead):
    """Nearest class mean: -‖f̂ - c_k‖² in the column of class k.

    f̂ is the unit feature, c_k the unit mean of the unit features added for the class. A row is
    the sum of these features, which has the direction of their mean.

    Args:
        in_features: D.

    Example:
        >>> head = ClassMeanHead(2)
        >>> head.grow([0, 1])
        >>> head.add(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 1]))
        >>> head(torch.tensor([[5.0, 0.0]])).tolist()
        [[0.0, -2.0]]
    """

    def __init__(self, in_features: int):
        super().__init__(in_features, in_features)

    def add(self, embedding: Float[Tensor, "b D"], targets: Int[Tensor, "b"]) -> None:
        """Include samples of classes that have arrived in their means.

        Args:
            embedding: Features, shape ``(b, D)``.
            targets: Class ids, shape ``(b,)``.
        """
        with torch.autocast(embedding.device.type, enabled=False):
            members = F.one_hot(targets, self.out_features).to(self.rows.dtype)
            self.rows = self.rows + members.T @ F.normalize(embedding.to(self.rows.dtype))

    def means(self) -> dict[int, Float[Tensor, "D"]]:
        """The means of the classes that have arrived.

        Returns:
            c_k, shape ``(D,)``, by class id.
        """
        unit = F.normalize(self.rows)
        return {class_id: unit[class_id] for class_id in self.seen.nonzero()[:, 0].tolist()}

    def scores(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return closeness(F.normalize(embedding) @ F.normalize(self.rows).T)


class RandomFeatureHead(ClosedFormHead):
    """h Wᵀ with h = ReLU(f R): R (D, M) is drawn from N(0, 1) once, the rows of W are computed.

    Args:
        in_features: D.
        num_features: M, the number of random features.

    Example:
        >>> head = RandomFeatureHead(4, num_features=16)
        >>> head.grow([0, 2])
        >>> head.expand(torch.ones(3, 4)).shape, head(torch.ones(1, 4)).tolist()
        (torch.Size([3, 16]), [[0.0, -1000.0, 0.0]])
    """

    projection: Tensor

    def __init__(self, in_features: int, *, num_features: int):
        super().__init__(in_features, num_features)
        self.register_buffer("projection", torch.randn(in_features, num_features))

    def expand(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b M"]:
        """Random features.

        Args:
            embedding: Features, shape ``(b, D)``.

        Returns:
            h of each sample, shape ``(b, M)``.
        """
        with torch.autocast(embedding.device.type, enabled=False):
            return F.relu(embedding.to(self.projection.dtype) @ self.projection)

    def scores(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.expand(embedding) @ self.rows.T


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
