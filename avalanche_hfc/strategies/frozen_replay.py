"""A linear head on frozen features with herding replay. What training the backbone must beat."""

from typing import Any

from torch import Tensor
from torch.nn import Module

from avalanche_hfc.strategies._base.frozen import FrozenBackbone
from avalanche_hfc.strategies._base.heads import check_model
from avalanche_hfc.strategies._base.replay import ReplayMethod


class FrozenReplay(ReplayMethod, FrozenBackbone):
    """L = mean CE(z, y; S) on new data and exemplars, minimised by the head alone: all other
    weights, and the statistics of batch norm, stay as they were given.

    With losses="hfc": L_FC + L_RD. A teacher differs in its head only: features are shared with it.
    """

    def __init__(self, *, model: Module, **kwargs: Any):
        check_model("FrozenReplay", model, "embed", "classify")
        super().__init__(model=model, **kwargs)

    def _teacher_forward(self, model: Module, x: Tensor) -> Tensor:
        return model.classify(self.frozen_embedding())  # type: ignore[operator]
