"""FOSTER's heads, one on the new extractor alone and one on the old and the new extractor together,
and the network of both extractors.

`b` samples, `D` features of one extractor, `E` = 2D of both, `C` columns; a column is a class id.
"""

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float
from torch import Tensor, nn

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


class BoostedNetwork(nn.Module):
    """FOSTER's network of two extractors, with the head that reads both.

    Args:
        old: The model of the previous step.
        new: The model trained in boosting, with a `BoostedHead` as its head.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Example:
        >>> import copy, torch
        >>> from avalanche_hfc.models import BoostedHead, BoostedNetwork, ResNet32
        >>> model = ResNet32()
        >>> model.head = BoostedHead(model.embed_dim)
        >>> model.head.boosted.grow([0, 1])
        >>> network = BoostedNetwork(copy.deepcopy(model), model)
        >>> network(torch.zeros(3, 3, 32, 32)).shape
        torch.Size([3, 2])
    """

    def __init__(self, old: nn.Module, new: nn.Module):
        super().__init__()
        self.old, self.new = old, new

    def embed(self, x: Tensor) -> Float[Tensor, "b E"]:
        """The features of both extractors.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Features of shape ``(b, E)``, those of the old extractor first.
        """
        return torch.cat([self.old.embed(x), self.new.embed(x)], 1)  # type: ignore[operator]

    def classify(self, embedding: Float[Tensor, "b E"]) -> Float[Tensor, "b C"]:
        """Logits of features.

        Args:
            embedding: What `embed` returned, shape ``(b, E)``.

        Returns:
            Logits of shape ``(b, C)``.
        """
        return self.new.head.boosted(embedding)  # type: ignore[operator, union-attr]

    def forward(self, x: Tensor) -> Float[Tensor, "b C"]:
        return self.classify(self.embed(x))
