"""FOSTER's heads: one on the new extractor alone, one on the old and the new extractor together.

`b` samples, `D` features of one extractor, `C` columns; a column is a class id.
"""

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc.models.heads import GrowingLinear


class BoostedHead(DynamicModule):
    """FOSTER's two heads: `single` for one extractor, `boosted` for the old and the new one.

    `single` (D → C) is the head of the compressed network and, during boosting, the auxiliary head.
    `boosted` (2D → C) reads [φ°; φ]. New rows are drawn from U(±√(3/n)) for n inputs, with bias 0.

    Args:
        in_features: Width D of an extractor's feature.

    Shape:
        Features ``(b, D)`` in, logits ``(b, C)`` of `single` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import BoostedHead
        >>> head = BoostedHead(4)
        >>> head.single.grow([0, 1]); head.boosted.grow([0, 1])
        >>> head.boost(torch.zeros(1, 4), torch.zeros(1, 4))
        tensor([[0., 0.]], grad_fn=<MaskedFillBackward0>)
    """

    def __init__(self, in_features: int):
        super().__init__()
        self.in_features = in_features
        self.single = GrowingLinear(in_features, start="uniform")
        self.boosted = GrowingLinear(2 * in_features, start="uniform")

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.single(embedding)

    def boost(self, old: Float[Tensor, "b D"], new: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        """Logits from the features of both extractors: W [φ°(x); φ(x)] + c.

        Args:
            old: Features of the old extractor, shape ``(b, D)``.
            new: Features of the new extractor, shape ``(b, D)``.

        Returns:
            Logits of shape ``(b, C)``.
        """
        return self.boosted(torch.cat([old, new], 1))

    @torch.no_grad()
    def begin_boosting(self, teacher: "BoostedHead") -> None:
        """Initialise both heads again, `boosted` so that it starts with the teacher's logits.

        For old classes the part that reads the old extractor is copied from the teacher's `single`;
        the part that reads the new extractor is random.

        Args:
            teacher: The head of the previous step.
        """
        for head in (self.single, self.boosted):
            class_ids = head.seen.nonzero()[:, 0].tolist()
            head.seen.zero_()
            head.grow(class_ids)
        old = teacher.single.seen.nonzero()[:, 0]
        self.boosted.weight[old, : self.in_features] = teacher.single.weight[old]
        self.boosted.bias[old] = teacher.single.bias[old]
