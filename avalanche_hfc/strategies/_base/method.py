"""What the methods of the paper share: an objective of named terms, the memory, the frozen teacher,
and the places where L_FC and L_RD enter.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that introduced each class,
-1 for classes not seen yet.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from avalanche.core import BasePlugin
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc.losses import (
    compensation_weights,
    cross_entropy,
    relation_distillation,
    softmax_gradient,
    weights_from_gradient,
)
from avalanche_hfc.models import Features
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.hosts import Criterion, check_criterion
from avalanche_hfc.plugins.losses import HostedPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher, TeacherPlugin, teacher_logits
from avalanche_hfc.strategies._base.epoch_log import sum_of
from avalanche_hfc.strategies._base.heads import start_rows
from avalanche_hfc.strategies._base.template import IncrementalTemplate

LOSSES = {"host": "the method's own", "gfc": "with L_FC", "grd": "with L_RD", "hfc": "with both"}
GRADIENTS = {
    "host": "the target-logit gradient of the method's own loss",
    "softmax": "that of the softmax over all classes seen",
}


class Method(IncrementalTemplate):
    """Base class of methods that minimise the sum of `objective()` in their main phase.

    Override `classification`, `distillation`, `further_terms`, `phases` and the other hooks to
    write a method. The losses of HFC can be added to each of them, from the second step on.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        losses: ``"gfc"`` weights the classification loss as L_FC does; ``"grd"`` replaces the
            distillation of logits by L_RD, or adds L_RD if there is none; ``"hfc"`` does both;
            ``"host"`` does neither.
        gradient: Source of the weights of L_FC, a key of `gradients`.
        plugins: Further plugins; the list is not changed.
        memory: A replay plugin.
        own_plugins: Plugins of a subclass, placed after all others.
        **base_kwargs: Arguments of `IncrementalTemplate` and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed or has no effect with the others.
    """

    settings: ClassVar[tuple[str, ...]] = ("hfc_losses", "gradient")
    distils = False  # whether the method needs the model of the step before, without L_RD
    head_start: ClassVar[str | None] = (
        None  # `start` of a GrowingLinear as the method's authors have it; None: the head's own
    )
    gradients: ClassVar[Mapping[str, str]] = GRADIENTS

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        criterion: Criterion = CrossEntropyLoss(),  # noqa: B008  # stateless, and Avalanche's own default
        losses: str = "host",
        gradient: str = "host",
        plugins: Sequence[BasePlugin] | None = None,
        memory: HerdingReplayPlugin | None = None,
        own_plugins: Sequence[BasePlugin] = (),
        **base_kwargs: Any,
    ):
        self.check_options(losses, gradient, criterion, plugins or ())
        start_rows(model, self.head_start)
        self.hfc_losses = losses
        self.gradient = gradient
        self.memory = memory
        parts: list[BasePlugin] = [memory] if memory is not None else []
        if self.distils or self.relates:
            parts.append(TeacherPlugin())
        super().__init__(
            model=model,
            optimizer=optimizer,
            criterion=criterion,
            plugins=[*(plugins or ()), *parts, *own_plugins],
            **base_kwargs,
        )

    def check_options(
        self, losses: str, gradient: str, criterion: Criterion, plugins: Sequence[BasePlugin]
    ) -> None:
        """Reject arguments of the constructor that are not allowed or have no effect.

        Args:
            losses: As in the constructor.
            gradient: As in the constructor.
            criterion: As in the constructor; it must be a plain cross-entropy.
            plugins: Plugins of the user, which must not add the losses of HFC a second time.

        Raises:
            ValueError: If one of them is rejected.
        """
        name = type(self).__name__
        lookup(LOSSES, losses, "losses")
        lookup(self.gradients, gradient, "gradient")
        if gradient != "host" and losses not in ("gfc", "grd", "hfc"):
            raise ValueError(
                f"{name}: gradient={gradient!r} has no effect with losses='host'. Leave it "
                "out, or choose gfc, grd or hfc."
            )
        try:
            check_criterion(criterion)
        except ValueError as error:
            raise ValueError(
                f"{name} trains with its own losses, its criterion serves in evaluation: {error}."
            ) from None
        hosted = next(
            (type(plugin).__name__ for plugin in plugins if isinstance(plugin, HostedPlugin)), None
        )
        if hosted is not None:
            raise ValueError(
                f"{name} takes no {hosted}: it puts the losses in where they belong with "
                "losses='gfc', 'grd' or 'hfc'."
            )

    @property
    def compensates(self) -> bool:
        """Whether the method uses L_FC."""
        return self.hfc_losses in ("gfc", "hfc")

    @property
    def relates(self) -> bool:
        """Whether the method uses L_RD."""
        return self.hfc_losses in ("grd", "hfc")

    # The objective

    def criterion(self) -> Tensor:
        if self.is_eval:
            return super().criterion()
        terms = self.objective(self.mb_output, self.mb_y, StepTable.of(self).on(self.mb_output))
        self.loss_terms = {name: term.detach() for name, term in terms.items()}
        return sum_of(terms)

    def objective(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        """Compute the loss terms of a batch; their sum is minimised.

        In the first step the classification loss is the only term.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            A scalar for each term, by its name.
        """
        losses = self.classification(logits, targets, steps)
        if not self.num_old:
            return {"classification": losses.mean()}
        weights = (
            self.sample_weights(logits, targets, steps)
            if self.compensates or self.relates
            else None
        )
        if weights is not None and self.compensates:
            losses = weights * losses
        terms = {"classification": self.classification_factor * losses.mean()}
        if weights is not None and self.relates:
            terms["relation"] = self.distillation_factor * self.relation(
                logits, targets, steps, weights
            )
        else:
            terms |= {
                name: self.distillation_factor * term
                for name, term in self.distillation(logits, targets, steps).items()
            }
        return terms | self.further_terms(logits, targets, steps)

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        """Hook: the classification loss of each sample. By default the cross-entropy.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            One loss per sample, shape ``(b,)``.
        """
        return cross_entropy(logits, targets, steps)

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        """Hook: the derivative |Γ_i| of `classification` with respect to the logit of the target.

        The weights of L_FC are computed from it. Factors of the loss are not included.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            One absolute value per sample, shape ``(b,)``.
        """
        return softmax_gradient(logits, targets, steps)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        """Hook: the distillation of logits of the method, which L_RD replaces.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            A scalar for each term, by its name. By default there are none.
        """
        return {}

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        """Hook: L_RD in the form that fits the outputs of the method.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.
            weights: The weights of L_FC, shape ``(b,)``.

        Returns:
            A scalar.
        """
        return relation_distillation(logits, targets, self.teacher_logits(), steps, weights=weights)

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        """Hook: loss terms that the losses of HFC do not change.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            A scalar for each term, by its name. By default there are none.
        """
        return {}

    @property
    def classification_factor(self) -> float:
        """Factor of the classification loss from the second step on."""
        return 1.0

    @property
    def distillation_factor(self) -> float:
        """Factor of the distillation of logits, or of L_RD if it replaces it."""
        return 1.0

    @property
    def num_old(self) -> int:
        """K_o, the number of old classes in the current step."""
        return StepTable.of(self).num_old

    @property
    def old_fraction(self) -> float:
        """ρ = K_o/K, the fraction of the classes seen that are old."""
        return StepTable.of(self).old_fraction

    def sample_weights(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        """The weights of L_FC, from the gradient that `gradient` selects.

        Args:
            logits: Logits of the model, shape ``(b, C)``.
            targets: Class ids, shape ``(b,)``.
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            One weight per sample, shape ``(b,)``.
        """
        if self.gradient == "softmax":
            weights = compensation_weights(logits, targets, steps)
        else:
            weights = weights_from_gradient(
                self.own_gradient(logits, targets, steps), targets, steps
            )
        StepTable.of(self).note_weights(weights, steps[targets])
        return weights

    def _after_training_iteration(self, **kwargs: object) -> None:
        super()._after_training_iteration(**kwargs)
        StepTable.of(self).forget_batch()

    # The teacher

    def _before_forward(self, **kwargs: object) -> None:
        """The teacher runs first: while it does, no activations of the student are held."""
        super()._before_forward(**kwargs)
        if self.num_old and (self.distils or self.relates):
            self.teacher_logits()

    def teacher_logits(self) -> Float[Tensor, "b K"]:
        """The logits of the teacher, the model of the previous step, for the current batch.

        They are computed once per batch.

        Returns:
            Logits, shape ``(b, K)`` with one column for each class of the teacher's head.
        """
        return teacher_logits(self, self.mb_x)

    def teacher_features(self) -> tuple[Features, Float[Tensor, "b K"]]:
        """The features and logits of the teacher for the current batch, from one forward.

        Returns:
            The features, of the images of this rank, and the logits, shape ``(b, K)``.
        """

        def forward(model: Any, x: Tensor) -> tuple[Features, Tensor]:
            features = model.features(x)
            return features, self.gathered(model.classify(features.embedding))

        return FrozenTeacher.of(self).output(self.mb_x, forward)
