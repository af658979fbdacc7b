"""RanPAC (McDonnell et al., NeurIPS 2023) without its adapters: ridge regression on random features
of the model as it was given.
"""

from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from avalanche_hfc.models import GrowingLinear, RandomFeatureHead
from avalanche_hfc.models.closed_form import RidgeSums, best_ridge
from avalanche_hfc.strategies._base.checks import checked_count, checked_lr
from avalanche_hfc.strategies._base.frozen import OnePass

HELD_OUT = 5  # one of five images


class RanPAC(OnePass):
    """RanPAC without adapters: ridge regression on random features of a frozen model.

    The logits are W h with h = ReLU(f R), where R is random and drawn once, and W minimises
    Σ ‖y - W h‖² + λ ‖W‖² over all training images so far, with one-hot y. Only sums over images are
    kept: there is no memory, and W does not depend on the order of the classes. The head of the
    model becomes a `RandomFeatureHead`.

    Args:
        model: A model with `embed` and `classify`.
        optimizer: An optimizer over the parameters of the model, as Avalanche requires; not
            used.
        criterion: The loss that is logged; nothing is trained by it.
        num_features: Number of random features M; 10000 in the authors' code. The state contains
            an M x M matrix, two if λ is chosen.
        ridge: λ. By default it is chosen after each step, as the power of ten from 1e-8 to 1e8 with
            the smallest error on every fifth image of each class, when fitted to the others; W is
            then fitted to all images. `chosen_ridge` holds the current value.
        **kwargs: Further arguments of `NCM`.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("num_features", "ridge")
    head_kind = RandomFeatureHead

    def __init__(
        self, *, num_features: int = 2000, ridge: float | int | None = None, **kwargs: Any
    ):
        self.num_features = checked_count("RanPAC", "num_features", num_features)
        self.ridge = None if ridge is None else checked_lr("RanPAC", "ridge", ridge)
        super().__init__(**kwargs)
        self.fit = RidgeSums(num_features, self.device)
        self.held_out = RidgeSums(num_features, self.device) if ridge is None else None
        self.chosen_ridge = self.ridge

    def make_head(self, linear: GrowingLinear) -> RandomFeatureHead:
        return RandomFeatureHead(linear.in_features, num_features=self.num_features)

    def learn(self, embedding: Float[Tensor, "b D"], targets: Int[Tensor, "b"]) -> None:
        head = self.model.head
        features, num_classes = head.expand(embedding), head.out_features
        if self.held_out is None:
            self.fit.add(features, targets, num_classes=num_classes)
            return
        before = [
            F.pad(sums.counts, (0, num_classes - len(sums.counts)))
            for sums in (self.fit, self.held_out)
        ]
        judged = to_hold_out(targets, before[0] + before[1])
        for sums, chosen in ((self.fit, ~judged), (self.held_out, judged)):
            sums.add(features[chosen], targets[chosen], num_classes=num_classes)

    def end_step(self, **kwargs: Any) -> None:
        head, total, ridge = self.model.head, self.fit, self.ridge
        if self.held_out is not None:
            total = self.fit.plus(self.held_out)
            ridge = best_ridge(self.fit, self.held_out)
        assert ridge is not None  # it was given, or there are held-out sums
        head.rows = total.weights(ridge).to(head.rows)
        self.chosen_ridge = ridge
        super().end_step(**kwargs)

    def method_state(self) -> dict[str, Any]:
        return {
            "fit": self.fit.state_dict(),
            "held_out": None if self.held_out is None else self.held_out.state_dict(),
            "chosen_ridge": self.chosen_ridge,
        }

    def load_method_state(self, state: dict[str, Any]) -> None:
        self.fit.load_state_dict(state["fit"])
        if self.held_out is not None:
            self.held_out.load_state_dict(state["held_out"])
        self.chosen_ridge = state["chosen_ridge"]


def to_hold_out(targets: Int[Tensor, "b"], before: Float[Tensor, "C"]) -> Bool[Tensor, "b"]:
    """The samples of a batch that λ is chosen by: the second of a class and every fifth after it.

    Args:
        targets: Class ids, shape ``(b,)``.
        before: Number of earlier samples of each class, shape ``(C,)``.

    Returns:
        True for a held-out sample, shape ``(b,)``.
    """
    same = (targets[:, None] == targets).tril(-1)
    return (before[targets] + same.sum(1)) % HELD_OUT == 1
