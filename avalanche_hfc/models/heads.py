"""The linear head that grows with the classes: one row per class id, a column is a class id."""

import math
from collections.abc import Iterable
from typing import SupportsIndex

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from avalanche_hfc._names import lookup
from avalanche_hfc._types import State
from avalanche_hfc.models.columns import UNSEEN_LOGIT, ClassColumns

STARTS = {
    "hfc": "as nn.Linear in the first step, then weights N(0, 1/D) and bias U(±1/√D)",
    "linear": "as nn.Linear: weights and bias U(±1/√D)",
    "normal": "weights N(0, 1/D), bias 0",
    "uniform": "weights U(±√(3/D)), bias 0",
}


class GrowingLinear(ClassColumns):
    """A linear head that grows with the classes: D → C, one row per class id.

    C is the largest trained class id + 1; at first there is no row. Columns of classes that were
    never trained are exactly -1000 and give no gradient. Their rows stay zero until the class
    arrives, so that weight decay cannot shrink them before. Growing creates new parameters under
    the same names (`weight`, `bias`); an optimizer must be updated, which Avalanche's strategies
    do. `seen` marks the trained classes, shape ``(C,)``.

    Args:
        in_features: Width D of the embedding.
        start: How a new row is initialised. ``"hfc"``: as `nn.Linear` in the first step, then
            weights N(0, 1/D) and bias U(±1/√D), as in HFC's released code. ``"linear"``: as
            `nn.Linear` (SS-IL). ``"normal"``: weights N(0, 1/D), bias 0 (iCaRL). ``"uniform"``:
            weights U(±√(3/D)), bias 0 (FOSTER).

    Shape:
        Embeddings ``(*b, D)`` in, logits ``(*b, C)`` out.

    Raises:
        ValueError: If `in_features` is below 1 or `start` is unknown.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import GrowingLinear
        >>> head = GrowingLinear(4)
        >>> head.grow([0, 2])
        >>> head(torch.zeros(1, 4))[0, 1].item()
        -1000.0
    """

    seen: Tensor

    def __init__(self, in_features: int, *, start: str = "hfc"):
        super().__init__()
        if in_features < 1:
            raise ValueError(f"GrowingLinear: in_features must be at least 1, got {in_features}.")
        lookup(STARTS, start, "start")
        self.in_features = in_features
        self.start = start
        self.weight = nn.Parameter(torch.empty(0, in_features))
        self.bias = nn.Parameter(torch.empty(0))
        self.register_buffer("seen", torch.empty(0, dtype=torch.bool))

    @property
    def out_features(self) -> int:
        """Number of columns C."""
        return self.weight.shape[0]

    @torch.no_grad()
    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Initialise a row for each new class; rows of classes seen before keep their values.

        Args:
            class_ids: Class ids, new or seen before.

        Raises:
            ValueError: If a class id is negative.
        """
        arriving = self._checked(class_ids)
        if not arriving:
            return
        self._widen(max(self.out_features, arriving[-1] + 1))
        already_seen = [False] * self.out_features if self.seen.is_meta else self.seen.tolist()
        first = not any(already_seen)
        for class_id in arriving:
            if not already_seen[class_id]:
                self._draw(self.weight[class_id], self.bias[class_id], first)
                self.seen[class_id] = True

    def _draw(self, weight: Float[Tensor, "D"], bias: Float[Tensor, ""], first: bool) -> None:
        """Initialise one row in place; `first`: no class was seen before this step."""
        bound = 1 / math.sqrt(self.in_features)
        if self.start == "normal" or (self.start == "hfc" and not first):
            weight.normal_(0, bound)
        else:
            bound_of_weights = math.sqrt(3) * bound if self.start == "uniform" else bound
            weight.uniform_(-bound_of_weights, bound_of_weights)
        if self.start in ("hfc", "linear"):
            bias.uniform_(-bound, bound)
        else:
            bias.zero_()

    def _widen(self, rows: int) -> None:
        """Replace the parameters by wider ones, zero in the added rows."""
        missing = rows - self.out_features
        if missing == 0:
            return
        weight = torch.cat([self.weight.detach(), self.weight.new_zeros(missing, self.in_features)])
        bias = torch.cat([self.bias.detach(), self.bias.new_zeros(missing)])
        self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
        self.bias = nn.Parameter(bias, requires_grad=self.bias.requires_grad)
        self.seen = torch.cat([self.seen, self.seen.new_zeros(missing)])

    def forward(self, embedding: Float[Tensor, "*b D"]) -> Float[Tensor, "*b C"]:
        return self.padded(
            F.linear(embedding, self.weight, self.bias).masked_fill(~self.seen, UNSEEN_LOGIT)
        )

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Accept any number of rows. The parameters are then new ones, as after growing."""
        incoming = state_dict.get(prefix + "weight")
        # a plain linear layer: all its rows are in use
        if incoming is not None and prefix + "seen" not in state_dict:
            state_dict[prefix + "seen"] = torch.ones(len(incoming), dtype=torch.bool)
        if (
            incoming is not None
            and incoming.shape[1:] == (self.in_features,)
            and len(incoming) != self.out_features
        ):
            rows = len(incoming)
            self.weight = nn.Parameter(
                self.weight.new_zeros(rows, self.in_features),
                requires_grad=self.weight.requires_grad,
            )
            self.bias = nn.Parameter(
                self.bias.new_zeros(rows), requires_grad=self.bias.requires_grad
            )
            self.seen = self.seen.new_zeros(rows)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class AllClassesLinear(GrowingLinear):
    """A linear head with a row for every class of the benchmark from the first step on.

    In training mode it gives the logits of classes to come as well, so that they can be trained, in
    eval mode -1000. `num_classes`, the number of rows, is set before the head grows first.

    Args:
        in_features: Width D of the embedding.
        start: As in `GrowingLinear`.

    Shape:
        Embeddings ``(*b, D)`` in, logits ``(*b, num_classes)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import AllClassesLinear
        >>> head = AllClassesLinear(4)
        >>> head.num_classes = 3
        >>> head.grow([0, 2])
        >>> head.eval()(torch.zeros(1, 4))[0, 1].item()
        -1000.0
    """

    num_classes = 0

    @torch.no_grad()
    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        arriving = self._checked(class_ids)
        if arriving and arriving[-1] >= max(self.num_classes, self.out_features):
            raise ValueError(
                f"AllClassesLinear: class {arriving[-1]} is outside num_classes={self.num_classes}."
            )
        if not self.out_features:
            self._widen(self.num_classes)
            for weight, bias in zip(self.weight, self.bias, strict=True):
                self._draw(weight, bias, first=True)
        self.seen[arriving] = True

    def forward(self, embedding: Float[Tensor, "*b D"]) -> Float[Tensor, "*b C"]:
        if not self.training:
            return super().forward(embedding)
        return F.linear(embedding, self.weight, self.bias)
