"""BiC's bias correction: one pair (α, β) for the columns of the newest step."""

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.heads import GrowingLinear, take_rows


class BiasLayer(DynamicModule):
    """BiC's bias correction: α z_k + β for the classes of the newest step, z_k for the others.

    α = 1 and β = 0 until they are fitted. Both parameters start frozen; the phase that fits them
    calls ``requires_grad_()``. In training mode the classes of another step start a new pair, in
    the same parameters.

    Shape:
        Logits ``(b, C)`` in, ``(b, C)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import BiasLayer
        >>> layer = BiasLayer()
        >>> layer.start([2])
        >>> _ = layer.alpha.fill_(0.5)
        >>> layer(torch.tensor([[1.0, 2.0, 4.0]]))
        tensor([[1., 2., 2.]])
    """

    class_ids: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(()), requires_grad=False)
        self.beta = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.register_buffer("class_ids", torch.empty(0, dtype=torch.long))
        self._held: list[int] = []  # the same, without asking the device

    def adaptation(self, experience: Any) -> None:
        """In training mode, start a new pair for the classes of the experience unless it is theirs.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.
        """
        if self.training:
            class_ids = _sorted(experience.classes_in_this_experience)
            if class_ids != self._held:
                self.start(class_ids)

    @torch.no_grad()
    def start(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Reset α to 1 and β to 0 for these classes, and freeze both.

        Args:
            class_ids: Class ids of the newest step.
        """
        self._held = _sorted(class_ids)
        self.class_ids = self.class_ids.new_tensor(self._held)
        self.alpha.fill_(1.0)
        self.beta.fill_(0.0)
        self.requires_grad_(False)

    def forward(self, logits: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
        newest = self.alpha * logits.index_select(1, self.class_ids) + self.beta
        return logits.index_copy(1, self.class_ids, newest.to(logits.dtype))

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Accept any number of class ids."""
        take_rows(self, state_dict, prefix)
        if prefix + "class_ids" in state_dict:
            self._held = state_dict[prefix + "class_ids"].tolist()
        super()._load_from_state_dict(state_dict, prefix, *args)


class CorrectedHead(DynamicModule):
    """A linear head whose logits are corrected by a `BiasLayer` in evaluation only.

    A frozen teacher in eval mode is therefore corrected, a student in training is not.

    Args:
        linear: The head.

    Shape:
        Embeddings ``(b, D)`` in, logits ``(b, C)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import CorrectedHead, GrowingLinear
        >>> head = CorrectedHead(GrowingLinear(4))
        >>> head.linear.grow([0, 1, 2])
        >>> head(torch.zeros(1, 4)).shape
        torch.Size([1, 3])
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
