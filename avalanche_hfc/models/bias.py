"""BiC's bias correction: one pair (α, β) for the columns of the newest step."""

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.heads import GrowingLinear


class BiasLayer(DynamicModule):
    """ẑ_k = α z_k + β for the classes of the newest step, ẑ_k = z_k for the others. (b, C) -> (b,
    C).

    α = 1 and β = 0 until fitted. Both start frozen: no phase but the one that fits them may move
    them; that phase calls `requires_grad_()`. In training mode another step's classes start a new
    pair, in the same parameters.
    """

    class_ids: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(()), requires_grad=False)
        self.beta = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.register_buffer("class_ids", torch.empty(0, dtype=torch.long))
        self._held: list[int] = []  # the same, without asking the device

    def adaptation(self, experience: Any) -> None:
        """Training mode: `start` with the experience's classes, unless the pair is theirs already.
        Eval mode: nothing.
        """
        if self.training:
            class_ids = _sorted(experience.classes_in_this_experience)
            if class_ids != self._held:
                self.start(class_ids)

    @torch.no_grad()
    def start(self, class_ids: Iterable[SupportsIndex]) -> None:
        """A fresh pair for these columns; no longer trained until asked for."""
        self._held = _sorted(class_ids)
        self.class_ids = self.class_ids.new_tensor(self._held)
        self.alpha.fill_(1.0)
        self.beta.fill_(0.0)
        self.requires_grad_(False)

    def forward(self, logits: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
        newest = self.alpha * logits.index_select(1, self.class_ids) + self.beta
        return logits.index_copy(1, self.class_ids, newest.to(logits.dtype))

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Take as many class ids as come in."""
        incoming = state_dict.get(prefix + "class_ids")
        if incoming is not None and incoming.ndim == 1:
            self.class_ids = self.class_ids.new_zeros(len(incoming))
            self._held = incoming.tolist()
        super()._load_from_state_dict(state_dict, prefix, *args)


class CorrectedHead(DynamicModule):
    """A head and its BiasLayer: uncorrected in training, corrected in evaluation. So a frozen
    teacher is corrected, a student is not.
    """

    def __init__(self, linear: GrowingLinear):
        super().__init__()
        self.linear = linear
        self.bias = BiasLayer()

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        logits = self.linear(embedding)
        return logits if self.training else self.bias(logits)


def _sorted(class_ids: Iterable[SupportsIndex]) -> list[int]:
    return sorted({operator.index(class_id) for class_id in class_ids})
