"""A linear head on frozen features with herding replay. What training the backbone must beat."""

from typing import Any

from torch import Tensor
from torch.nn import Module

from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies._base.frozen import FrozenBackbone
from avalanche_hfc.strategies._base.heads import check_model
from avalanche_hfc.strategies._base.replay import ReplayMethod


class FrozenReplay(ReplayMethod, FrozenBackbone):
    """Herding replay that trains the head only, on frozen features.

    L = mean CE(z, y; S) on new data and exemplars. All other weights and the statistics of batch
    norm do not change. ``losses="hfc"`` gives L_FC + L_RD; the teacher shares the features and
    differs in its head only.

    Args:
        model: A model with `embed` and `classify`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    def __init__(self, *, model: Module, **kwargs: Any):
        check_model("FrozenReplay", model, "embed", "classify")
        super().__init__(model=model, **kwargs)

    def teacher_logits(self) -> Tensor:
        def forward(model: Any, x: Tensor) -> Tensor:
            return self.gathered(model.classify(self.frozen_embedding()))

        return FrozenTeacher.of(self).output(self.mb_x, forward)
