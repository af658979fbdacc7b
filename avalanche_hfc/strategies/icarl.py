"""iCaRL (Rebuffi et al., CVPR 2017): sigmoid outputs, the teacher's sigmoids as targets of old
classes, nearest mean of exemplars.
"""

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc.losses import (
    binary_cross_entropy,
    cross_entropy,
    knowledge_distillation,
    later_binary_cross_entropy,
    mixed_binary_cross_entropy,
    sigmoid_gradient,
    sigmoid_relation_distillation,
)
from avalanche_hfc.models import AllClassesLinear, GrowingLinear
from avalanche_hfc.plugins.steps import StepTable, known_classes
from avalanche_hfc.strategies._base.heads import put_head
from avalanche_hfc.strategies._base.replay import NMEMethod

OUTPUTS = {"sigmoid": "the original", "softmax": "cross-entropy and distillation at temperature 2"}
DIVISORS = {"seen": "the classes seen", "all": "all classes of the benchmark"}
COLUMNS = {"seen": "a column comes with its class", "all": "as the original, from the start"}


def all_classes(head: GrowingLinear) -> AllClassesLinear:
    return AllClassesLinear(head.in_features, start=head.start)


class ICaRL(NMEMethod):
    """iCaRL: binary cross-entropy to labels and teacher, and nearest-mean-of-exemplars prediction.

    L = mean BCE(z, q; S), where q is the teacher's sigmoid in old columns and the label in new
    ones; the label of an exemplar is not used. With L_RD, labels are the targets of all columns,
    and the teacher is in L_RD alone. New rows of the head start with N(0, 1/D) and bias
    0, as the original's on CIFAR.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        outputs: ``"sigmoid"``: the loss above. ``"softmax"``: CE(z, y; S) + KD_2(z°, z; O), as in
            some libraries.
        divisor: Divide the binary cross-entropy by the number of classes ``"seen"`` or by ``"all"``
            classes of the benchmark from the first step on, as the original network does.
        columns: ``"seen"``: the head grows with the classes. ``"all"``: it has a column for every
            class of the benchmark from the first step on, as the original network, and those of
            classes to come are trained towards 0; evaluation does not see them.
        inference: ``"nme"``: the nearest mean of exemplars. ``"head"``: the largest logit.
        **kwargs: `flip` (average the means with those of mirrored exemplars); arguments of
            `HerdingReplay` (memory and losses) and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed or has no effect with the others.
    """

    settings: ClassVar[tuple[str, ...]] = ("outputs", "divisor", "columns")
    distils = True
    head_start = "normal"

    def __init__(
        self,
        *,
        outputs: str = "sigmoid",
        divisor: str = "seen",
        columns: str = "seen",
        inference: str = "nme",
        model: Module,
        optimizer: Optimizer,
        **kwargs: Any,
    ):
        lookup(OUTPUTS, outputs, "outputs")
        lookup(DIVISORS, divisor, "divisor")
        lookup(COLUMNS, columns, "columns")
        self.outputs = outputs
        self.divisor = divisor
        self.columns = columns
        self.all_logits: Tensor | None = None  # of the batch, with columns of classes to come
        if columns == "all":
            put_head("ICaRL", model, optimizer, AllClassesLinear, all_classes)
        super().__init__(model=model, optimizer=optimizer, inference=inference, **kwargs)
        self._check_effect("divisor", divisor != "seen", outputs == "sigmoid", "outputs='sigmoid'")
        self._check_effect("columns", columns != "seen", divisor == "all", "divisor='all'")

    def _check_effect(self, option: str, asked: bool, acts: bool, where: str) -> None:
        if asked and not acts:
            raise ValueError(f"ICaRL: {option}={getattr(self, option)!r} acts only with {where}.")

    def _denominator(self) -> int | None:
        return None if self.divisor == "seen" else len(known_classes(self.experience))

    @property
    def seen_share(self) -> float:
        """K / K_all if terms are divided by all classes, else 1."""
        denominator = self._denominator()
        return 1.0 if denominator is None else StepTable.of(self).num_seen / denominator

    @property
    def splits(self) -> bool:
        """Whether labels and teacher are terms of their own."""
        return self.outputs == "softmax" or self.relates

    def _before_training_exp(self, **kwargs: object) -> None:
        if self.columns == "all":
            self.model.head.num_classes = max(known_classes(self.experience)) + 1
        super()._before_training_exp(**kwargs)

    def model_logits(self) -> Tensor:
        logits = super().model_logits()
        self.all_logits = logits if self.columns == "all" else None
        return logits

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        if self.outputs == "softmax":
            return cross_entropy(logits, targets, steps)
        if self.splits and self.divisor == "seen":
            return binary_cross_entropy(logits, targets, steps)
        teacher = None if self.splits or not self.num_old else self.teacher_logits()
        divisor = self._denominator()
        losses = mixed_binary_cross_entropy(logits, targets, teacher, steps, divisor=divisor)
        if self.all_logits is None or divisor is None:
            return losses
        return losses + later_binary_cross_entropy(self.gathered(self.all_logits), steps, divisor)

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        if self.outputs == "softmax":
            return super().own_gradient(logits, targets, steps)
        return sigmoid_gradient(logits, targets)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        if self.outputs == "sigmoid":
            return {}  # inside the mixed targets
        return {"distillation": knowledge_distillation(logits, self.teacher_logits(), steps)}

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        if self.outputs == "softmax":
            return super().relation(logits, targets, steps, weights)
        return self.seen_share * sigmoid_relation_distillation(
            logits, targets, self.teacher_logits(), steps, weights=weights
        )
