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
    """D -> C with bias, C = largest trained class id + 1; starts with no row.

    `seen (C,)` marks the classes trained. The columns of the others are exactly -1000 and give no
    gradient. Their rows are zero until the class arrives and the row is drawn, so that weight decay
    cannot shrink it before. Growth makes new parameters under the old names (`weight`, `bias`): an
    optimizer must be told. Avalanche's strategies do so.

    `start` is what a new row is drawn from. "hfc", HFC's released code: U(±1/√D), weights and bias,
    as nn.Linear does, while no class was seen; later weights N(0, 1/D), bias U(±1/√D). "linear": as
    nn.Linear in every step (SS-IL). "normal": N(0, 1/D), bias 0 (iCaRL). "uniform": U(±√(3/D)),
    bias 0 (FOSTER). A strategy sets that of its method.
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
        """C, the number of rows."""
        return self.weight.shape[0]

    @torch.no_grad()
    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Draw a row for each class that arrives, by the rule of `start`. Rows of classes seen keep
        their bits.
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
        """One row in place; `first`: no class was seen before these."""
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
        """New parameters of `rows` rows, zero where there was none; the old ones stay when the
        number is the same.
        """
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
        """Take as many rows as come in. The parameters are then new ones, as after growth."""
        incoming = state_dict.get(prefix + "weight")
        if (
            incoming is not None and prefix + "seen" not in state_dict
        ):  # a plain linear layer: all its rows are in use
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
