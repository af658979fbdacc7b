"""GFC and GRD as additive plugins: they add to the host's loss, wherever the host computes it."""

from numbers import Real
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._types import State, Strategy
from avalanche_hfc.losses import relation_distillation
from avalanche_hfc.plugins.hosts import Host, host_of
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.steps import StepTable, check_ranks, check_single_head
from avalanche_hfc.plugins.teacher import FrozenTeacher, TeacherPlugin, teacher_logits

Weight = float | int | Literal["balanced"]


class HostedPlugin(RankedPlugin):
    """A loss term in a host: finds the host's adapter and maintains the step table.

    It adds nothing in the first step (Eq. 14: t ≥ 2).
    """

    host: Host
    loss_terms: dict[str, Tensor]

    def __init__(self, weight: Weight, gradient_weights: bool):
        super().__init__()
        self.weight = checked_weight(type(self).__name__, weight)
        self.gradient_weights = gradient_weights
        self.loss_terms = {}

    def before_training(self, strategy: Strategy, **kwargs: object) -> None:
        check_single_head(type(self).__name__, strategy.model)
        check_ranks(type(self).__name__, strategy)
        self.host = host_of(strategy, self)

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        self.table = StepTable.of(strategy)
        self.table.learn(strategy.experience, strategy.clock.train_exp_counter)
        self.loss_terms = {}

    def after_forward(self, strategy: Strategy, **kwargs: object) -> None:
        # raises before the first update, in the first step too, if a class is outside the head
        self.table.on(strategy.mb_output)
        self.host.after_forward()

    def before_backward(self, strategy: Strategy, **kwargs: object) -> None:
        if self.table.num_old:
            name, term = self.term()
            self.loss_terms = {name: term.detach()}
            strategy.loss = strategy.loss + term / self.host.later_factor(self)

    def sample_weights(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]
    ) -> Float[Tensor, "b"]:
        """The weight of each sample in the term.

        Args:
            logits: Logits of shape ``(b, C)``.
            targets: Class ids of shape ``(b,)``.

        Returns:
            The weights of Eq. 9, shape ``(b,)``; ones without `gradient_weights`.
        """
        weights = self.table.weights(logits, targets)
        return weights if self.gradient_weights else torch.ones_like(weights)

    def term(self) -> tuple[str, Tensor]:
        """Name and value of what is added to the loss of this batch.

        Returns:
            The name of the loss term and a scalar.
        """
        raise NotImplementedError

    def after_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        super().after_training_iteration(strategy, **kwargs)
        self.table.forget_batch()

    def state_dict(self) -> State:
        """The settings, for `load_state_dict`.

        Returns:
            The constructor's arguments; no other value outlives a batch.
        """
        return {"weight": self.weight, "gradient_weights": self.gradient_weights}

    def load_state_dict(self, state: State) -> None:
        """Check the settings; there is nothing to restore.

        Args:
            state: A dictionary from `state_dict`.

        Raises:
            ValueError: If the settings differ.
        """
        self.check_state(state)

    def check_state(self, state: State) -> None:
        """Check that a state was made with the same settings.

        Args:
            state: A dictionary from `state_dict`.

        Raises:
            ValueError: If the settings differ.
        """
        if state != self.state_dict():
            raise ValueError(
                f"{type(self).__name__}: the state was trained with {state}, this plugin has "
                f"{self.state_dict()}."
            )


class GFCPlugin(HostedPlugin):
    """Gradient-balanced forgetting compensation: the host minimises weight · L_FC (Eq. 9).

    The plugin adds c · mean((weight · w - 1) · CE) to the loss, where c is the factor of the
    cross-entropy in the host's loss and w the weights of `compensation_weights`. With weight · w =
    1 nothing changes, bit for bit. It acts from the second step on, in Naive, Replay, LwF, EWC,
    Cumulative, BiC, ICaRL, DER, ER_ACE and other hosts that minimise the criterion on `mb_output`.

    Args:
        weight: α_1 of Eq. 14: a number above 0, or ``"balanced"`` for 1 - K^o/(K^o+K^t).
        gradient_weights: False sets w to 1 for all samples: the plain cross-entropy, times weight.

    Raises:
        ValueError: If a value is not allowed.

    Example:
        >>> import torch
        >>> from avalanche.training import Naive
        >>> from avalanche_hfc.plugins import GFCPlugin
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> strategy = Naive(model=model, optimizer=optimizer, plugins=[GFCPlugin()])
    """

    def __init__(self, *, weight: Weight = 1.0, gradient_weights: bool = True):
        super().__init__(weight, gradient_weights)

    def term(self) -> tuple[str, Tensor]:
        weight = 1 - self.table.old_fraction if self.weight == "balanced" else self.weight
        added = []
        for logits, targets, losses, scale in self.host.terms():
            excess = weight * self.sample_weights(logits, targets) - 1
            added.append(scale * (excess * losses).mean())
        return "compensation", sum(added[1:], start=added[0])


class GRDPlugin(HostedPlugin, TeacherPlugin):
    """Gradient-balanced relation distillation: adds weight · L_RD (Eq. 13) to the host's loss.

    The teacher is the model at the end of the previous step. It acts from the second step on, in
    the same hosts as `GFCPlugin`.

    Args:
        weight: α_2 of Eq. 14: a number above 0, or ``"balanced"`` for K^o/(K^o+K^t).
        normalise: Divide each row of the relation targets by its sum, see `relation_distillation`.
            False is the equation as printed.
        average: Mean over the classes ``"present"`` in the batch, or over all classes ``"seen"`` as
            printed.
        prototypes: Compare class prototypes; False compares each sample with its own target.
        gradient_weights: False weights all classes alike, instead of by Eq. 12.

    Raises:
        ValueError: If a value is not allowed.

    Example:
        >>> import torch
        >>> from avalanche.training import Naive
        >>> from avalanche_hfc.plugins import GRDPlugin
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> strategy = Naive(model=model, optimizer=optimizer, plugins=[GRDPlugin()])
    """

    def __init__(
        self,
        *,
        weight: Weight = 1.0,
        normalise: bool = True,
        average: Literal["present", "seen"] = "present",
        prototypes: bool = True,
        gradient_weights: bool = True,
    ):
        super().__init__(weight, gradient_weights)
        if average not in ("present", "seen"):
            raise ValueError(f"GRDPlugin: average must be 'present' or 'seen', got {average!r}.")
        self.normalise = normalise
        self.prototypes = prototypes
        self.average: Literal["present", "seen"] = average

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        super().before_training_exp(strategy, **kwargs)
        if self.table.num_old and FrozenTeacher.of(strategy).model is None:
            raise ValueError(
                "GRDPlugin has no teacher: it must be in the strategy from the first step on."
            )

    def before_forward(self, strategy: Strategy, **kwargs: object) -> None:
        """The teacher runs first: while it does, no activations of the student are held."""
        if self.table.num_old and self.host.sees_whole_batch:
            teacher_logits(strategy, strategy.mb_x)

    def term(self) -> tuple[str, Tensor]:
        x, logits, targets = self.host.batch()
        weight = self.table.old_fraction if self.weight == "balanced" else self.weight
        relation = relation_distillation(
            logits,
            targets,
            teacher_logits(self.host.strategy, x),
            self.table.on(logits),
            normalise=self.normalise,
            average=self.average,
            prototypes=self.prototypes,
            weights=self.sample_weights(logits, targets),
        )
        return "relation", weight * relation

    def state_dict(self) -> State:
        return super().state_dict() | {
            "normalise": self.normalise,
            "average": self.average,
            "prototypes": self.prototypes,
        }


def checked_weight(owner: str, weight: Weight) -> Weight:
    """The weight, or a ValueError if it is neither a positive number nor "balanced"."""
    number = isinstance(weight, Real) and not isinstance(weight, bool)
    if weight == "balanced" or (number and 0 < weight < float("inf")):
        return weight
    raise ValueError(
        f"{owner}: weight must be a number above 0 or 'balanced', got {weight!r}. To do "
        "without it, leave it out."
    )
