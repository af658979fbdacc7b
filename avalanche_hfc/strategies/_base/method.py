"""What the methods of the paper share: an objective of named terms, the memory, the frozen teacher,
and the places where L_FC and L_RD go.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that brought each class, -1
where none has yet.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from avalanche.core import BasePlugin
from avalanche.training.plugins import SupervisedPlugin
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Strategy
from avalanche_hfc.losses import (
    compensation_weights,
    cross_entropy,
    relation_distillation,
    softmax_gradient,
    weights_from_gradient,
)
from avalanche_hfc.models import Features
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.hosts import Criterion, Host
from avalanche_hfc.plugins.losses import HostedPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies._base.heads import start_rows
from avalanche_hfc.strategies._base.phases import sum_of
from avalanche_hfc.strategies._base.template import IncrementalTemplate

LOSSES = {"host": "the method's own", "gfc": "with L_FC", "grd": "with L_RD", "hfc": "with both"}
GRADIENTS = {
    "host": "the target-logit gradient of the method's own loss",
    "softmax": "that of the softmax over all classes seen",
}


class TeacherPlugin(SupervisedPlugin):
    """Keeps the model of the step before as the strategy's teacher."""

    def after_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        FrozenTeacher.of(strategy).forget_batch()

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        FrozenTeacher.of(strategy).take(strategy)


class Method(IncrementalTemplate):
    """A method that minimises the sum of `objective()` in its main phase. `criterion` serves in
    evaluation only.

    `losses` puts the losses of HFC into the method, from the second step on: "gfc" weighs its
    classification loss as L_FC does, "grd" puts L_RD in the place of its distillation of logits, or
    adds it where there is none, "hfc" does both; "host" does neither. `gradient` is where GFC's
    weights come from.
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
        name = type(self).__name__
        lookup(LOSSES, losses, "losses")
        lookup(self.gradients, gradient, "gradient")
        if gradient != "host" and losses not in ("gfc", "grd", "hfc"):
            raise ValueError(
                f"{name}: gradient={gradient!r} has no effect with losses='host'. Leave it "
                "out, or choose gfc, grd or hfc."
            )
        try:
            Host.check_criterion(criterion)
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
        """Whether L_FC is in."""
        return self.hfc_losses in ("gfc", "hfc")

    @property
    def relates(self) -> bool:
        """Whether L_RD is in."""
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
        """The terms whose sum is minimised. In the first step the classification loss alone."""
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
        """ℓ_i of each sample."""
        return cross_entropy(logits, targets, steps)

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        """|Γ_i|: the derivative of ℓ_i with respect to the logit of the true class, before any
        factor.
        """
        return softmax_gradient(logits, targets, steps)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        """The method's own distillation of logits, which L_RD takes the place of."""
        return {}

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        """L_RD in the form that fits the method's outputs."""
        return relation_distillation(logits, targets, self.teacher_logits(), steps, weights=weights)

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        """What neither loss of HFC touches."""
        return {}

    @property
    def classification_factor(self) -> float:
        return 1.0

    @property
    def distillation_factor(self) -> float:
        return 1.0

    @property
    def num_old(self) -> int:
        return StepTable.of(self).num_old

    @property
    def old_fraction(self) -> float:
        """ρ = K_o / K."""
        return StepTable.of(self).old_fraction

    def sample_weights(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        """W_i of L_FC from the gradient asked for."""
        if self.gradient == "softmax":
            weights = compensation_weights(logits, targets, steps)
        else:
            weights = weights_from_gradient(
                self.own_gradient(logits, targets, steps), targets, steps
            )
        StepTable.of(self).note_weights(weights, steps[targets])
        return weights

    # The teacher

    def _before_forward(self, **kwargs: object) -> None:
        """The teacher runs first: while it does, no activations of the student are held."""
        super()._before_forward(**kwargs)
        if self.num_old and (self.distils or self.relates):
            self.teacher_logits()

    def teacher_logits(self) -> Float[Tensor, "b K"]:
        """The teacher's logits of the batch, one forward however often they are asked for."""
        return FrozenTeacher.of(self).output(self.mb_x, self._teacher_forward)

    def _teacher_forward(self, model: Module, x: Tensor) -> Tensor:
        if self.mb_prefix is None:
            return model(x)
        return model.classify(model.embed(x, self.mb_prefix))  # type: ignore[operator]

    def teacher_features(self) -> tuple[Features, Float[Tensor, "b K"]]:
        """The teacher's features and logits of the batch, from one forward."""

        def forward(model: Any, x: Tensor) -> tuple[Features, Tensor]:
            features = model.features(x)
            return features, model.classify(features.embedding)

        return FrozenTeacher.of(self).output(self.mb_x, forward)
