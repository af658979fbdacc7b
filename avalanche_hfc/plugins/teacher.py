"""The frozen model of the step before, shared by all plugins of a strategy."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from avalanche_hfc._types import Strategy


class FrozenTeacher:
    """Θ^{t-1}: a copy in eval mode, without gradients. One forward per batch however many plugins
    ask.
    """

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.taken_after: int | None = None  # the step whose end this model is
        self._batch: tuple[Tensor, Any] | None = None

    @classmethod
    def of(cls, strategy: Strategy) -> "FrozenTeacher":
        """The strategy's one teacher, made when first asked for."""
        if not hasattr(strategy, "frozen_teacher"):
            strategy.frozen_teacher = cls()
        return strategy.frozen_teacher

    def take(self, strategy: Strategy) -> None:
        """Copy the model at the end of a step; the second plugin that says so changes nothing."""
        if self.taken_after != strategy.clock.train_exp_counter:
            self.model = None  # before the copy: two teachers at once are memory for nothing
            self.hold(copy.deepcopy(strategy.model), strategy.clock.train_exp_counter)

    def hold(self, model: nn.Module, step: int | None) -> None:
        """Freeze this model and teach with it. `train()` first: a head padded by an evaluation
        drops its padding.
        """
        self.model = model.train().eval().requires_grad_(False)
        self.taken_after = step
        self.forget_batch()

    def logits(
        self, x: Tensor, forward: Callable[[nn.Module, Tensor], Tensor]
    ) -> Float[Tensor, "b K"]:
        """The teacher's logits of this batch. `forward` is how the host asks a model for logits."""
        return self.output(x, forward)

    @torch.no_grad()
    def output(self, x: Tensor, forward: Callable[[nn.Module, Tensor], Any]) -> Any:
        """What `forward(teacher, x)` gives for this batch: logits, features, whatever the host
        needs. Asked again, it is not run again.
        """
        assert self.model is not None
        if self._batch is None or self._batch[0] is not x:
            self._batch = (x, forward(self.model, x))
        return self._batch[1]

    def forget_batch(self) -> None:
        self._batch = None
