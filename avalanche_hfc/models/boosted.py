"""FOSTER's heads: one on the new extractor alone, one on the old and the new extractor side by
side.

`b` samples, `D` features of one extractor, `C` columns; a column is a class id.
"""

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc.models.heads import GrowingLinear


class BoostedHead(DynamicModule):
    """`single`: D -> C, the head of the compressed network and, while boosting, the auxiliary head.
    `boosted`: 2D -> C, [φ°; φ] -> z.

    A new row of either is drawn from U(±√(3/n)), n its inputs, with bias 0.
    """

    def __init__(self, in_features: int):
        super().__init__()
        self.in_features = in_features
        self.single = GrowingLinear(in_features, start="uniform")
        self.boosted = GrowingLinear(2 * in_features, start="uniform")

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.single(embedding)

    def boost(self, old: Float[Tensor, "b D"], new: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        """z = W [φ°(x); φ(x)] + c."""
        return self.boosted(torch.cat([old, new], 1))

    @torch.no_grad()
    def begin_boosting(self, teacher: "BoostedHead") -> None:
        """Both heads drawn afresh for all classes; then z starts as the teacher's logits of old
        classes, plus what the fresh part adds.
        """
        for head in (self.single, self.boosted):
            class_ids = head.seen.nonzero()[:, 0].tolist()
            head.seen.zero_()
            head.grow(class_ids)
        old = teacher.single.seen.nonzero()[:, 0]
        self.boosted.weight[old, : self.in_features] = teacher.single.weight[old]
        self.boosted.bias[old] = teacher.single.bias[old]
