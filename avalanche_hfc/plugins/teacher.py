"""The frozen model of the previous step, shared by all plugins of a strategy."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from avalanche.models import TrainEvalModel
from jaxtyping import Float
from torch import Tensor, nn

from avalanche_hfc._types import Strategy
from avalanche_hfc.plugins.ranked import RankedPlugin


class FrozenTeacher:
    """The model of the previous step, frozen: a copy in eval mode without gradients.

    Its output is computed once per batch, however many plugins use it. `model` is None before the
    first step has ended; `taken_after` is the step at whose end the model was copied.

    Example:
        >>> import torch
        >>> from avalanche_hfc.plugins import FrozenTeacher
        >>> teacher = FrozenTeacher()
        >>> teacher.hold(torch.nn.Linear(2, 3), step=0)
        >>> teacher.output(torch.zeros(1, 2), lambda model, x: model(x)).requires_grad
        False
    """

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.taken_after: int | None = None  # the step whose end this model is
        self._batch: tuple[Tensor, Any] | None = None

    @classmethod
    def of(cls, strategy: Strategy) -> "FrozenTeacher":
        """The teacher of a strategy, created on first use.

        Args:
            strategy: An Avalanche strategy.

        Returns:
            The teacher, kept as ``strategy.frozen_teacher``.
        """
        if not hasattr(strategy, "frozen_teacher"):
            strategy.frozen_teacher = cls()
        return strategy.frozen_teacher

    def take(self, strategy: Strategy) -> None:
        """Copy the model at the end of a step; a second call in the same step changes nothing.

        Args:
            strategy: An Avalanche strategy.
        """
        if self.taken_after != strategy.clock.train_exp_counter:
            self.model = None  # before the copy: two teachers at once are memory for nothing
            self.hold(copy.deepcopy(strategy.model), strategy.clock.train_exp_counter)

    def hold(self, model: nn.Module, step: int | None) -> None:
        """Use this model as the teacher and freeze it.

        Args:
            model: The model; it is not copied. `train()` is called first, so that a head padded by
                an evaluation drops its padding. A TrainEvalModel answers with the classifier that
                was trained; in eval mode it would give distances to class means.
            step: The step at whose end the model was taken.
        """
        self.model = model.train().eval().requires_grad_(False)
        for module in model.modules():
            if isinstance(module, TrainEvalModel):
                module.training = True  # of the module alone: it chooses the classifier by it
        self.taken_after = step
        self.forget_batch()

    def release(self) -> None:
        """Forget the model."""
        self.model = self.taken_after = None
        self.forget_batch()

    @torch.no_grad()
    def output(self, x: Tensor, forward: Callable[[nn.Module, Tensor], Any]) -> Any:
        """The teacher's output for a batch, for example logits or features.

        Args:
            x: Images of the batch.
            forward: A function of the model and the images.

        Returns:
            The result of `forward`, without gradient. For the same `x` it is computed once.
        """
        assert self.model is not None
        if self._batch is None or self._batch[0] is not x:
            self._batch = (x, forward(self.model, x))
        return self._batch[1]

    def forget_batch(self) -> None:
        """Discard the output of the batch."""
        self._batch = None


class TeacherPlugin(RankedPlugin):
    """Keeps the model of the step before as the strategy's teacher."""

    def after_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        super().after_training_iteration(strategy, **kwargs)
        FrozenTeacher.of(strategy).forget_batch()

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        FrozenTeacher.of(strategy).take(strategy)


def teacher_logits(strategy: Strategy, x: Tensor) -> Float[Tensor, "n K"]:
    """The teacher's logits for the whole batch, that of all ranks; from the frozen first blocks
    that it shares with the student of a strategy of this package.
    """

    def forward(model: Any, x: Tensor) -> Tensor:
        prefix = getattr(strategy, "mb_prefix", None)
        logits = model(x) if prefix is None else model.classify(model.embed(x, prefix))
        return strategy.gathered(logits) if hasattr(strategy, "gathered") else logits

    return FrozenTeacher.of(strategy).output(x, forward)
