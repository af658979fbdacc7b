"""WA (Zhao et al., CVPR 2020): distillation balanced by the share of old classes, then the weights
of new classes are scaled to the length of old ones.
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from avalanche_hfc.losses import knowledge_distillation
from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.checks import check_flags
from avalanche_hfc.strategies._base.heads import check_model
from avalanche_hfc.strategies._base.replay import BalancedReplay


class WA(BalancedReplay):
    """WA: replay with distillation, then the rows of new classes are scaled to the length of old.

    L = (1-ρ) mean CE(z, y; S) + ρ mean KD_2(z°, z; O), where ρ is the fraction of old classes.
    After each step but the first, the rows of new classes in the head are multiplied by γ, the mean
    length of old rows divided by that of new rows. Biases are not scaled. New rows of the head
    start with U(±√(3/D)) and bias 0, as in PyCIL.

    Args:
        model: A model with `embed`, `classify` and a `GrowingLinear` as its head.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        clip_weights: Clip the weights of the head at 0 after every update, as in the paper, whose
            features are outputs of a ReLU. Features of a ViT have both signs.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("clip_weights",)
    head_start = "uniform"

    def __init__(self, *, model: Module, clip_weights: bool = False, **kwargs: Any):
        check_model("WA", model, "embed", "classify")
        head = getattr(model, "head", None)
        if not isinstance(head, GrowingLinear):
            raise ValueError(
                "WA needs a model whose head is a GrowingLinear, got a head of "
                f"{type(head).__name__}."
            )
        check_flags("WA", clip_weights=clip_weights)
        self.clip_weights = clip_weights
        super().__init__(model=model, **kwargs)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": knowledge_distillation(logits, self.teacher_logits(), steps)}

    def optimizer_step(self) -> None:
        super().optimizer_step()
        if self.clip_weights:
            self.model.head.weight.data.clamp_(min=0)

    def end_step(self, **kwargs: Any) -> None:
        if self.num_old:
            weight = self.model.head.weight.data
            steps = StepTable.of(self).on(weight.T)
            weight[steps == steps.max()] *= alignment_factor(weight, steps)
        super().end_step(**kwargs)


def alignment_factor(weight: Float[Tensor, "C D"], steps: Int[Tensor, "C"]) -> Float[Tensor, ""]:
    """The factor γ that scales rows of new classes to the mean length of old ones.

    γ = mean_{k∈O} ‖w_k‖ / mean_{k∈N} ‖w_k‖.

    Args:
        weight: Rows of a linear head, one for each class id, shape ``(C, D)``.
        steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``. The
            largest is the current step; there must be an earlier one.

    Returns:
        γ, a scalar.

    Example:
        >>> alignment_factor(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        tensor(2.5000)
    """
    lengths, new = weight.norm(dim=1), steps == steps.max()
    eps = torch.finfo(lengths.dtype).eps
    return lengths[(steps >= 0) & ~new].mean() / lengths[new].mean().clamp(min=eps)
