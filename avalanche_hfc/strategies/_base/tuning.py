"""Balanced tuning: a second phase over the exemplars, as many of every class seen."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from avalanche.benchmarks.utils import concat_datasets
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.checks import checked_count, checked_lr
from avalanche_hfc.strategies._base.groups import FirstGroups
from avalanche_hfc.strategies._base.phases import Phase


class BalancedTuning:
    """A part of a ReplayMethod: what follows the main epochs from the second step on.

    Exemplars of the new classes are chosen; then `tune_epochs` epochs over all exemplars minimise
    the classification loss alone at the constant rate `tune_lr`; None: `tune_fraction` of the rate
    that what is tuned had in the optimizer at construction. Gradient entries stay within
    ±`tune_limit`, if there is one.
    """

    tune_fraction: ClassVar[float]
    tune_limit: ClassVar[float | None] = None
    model: Any
    memory: Any
    num_old: int
    classification: Callable[[Tensor, Tensor, Tensor], Tensor]

    def set_tuning(
        self, model: Any, optimizer: Optimizer, tune_epochs: object, tune_lr: object
    ) -> None:
        """The options, checked. A method with this phase calls it at construction."""
        owner = type(self).__name__
        head = getattr(model, "head", None)
        self.first_groups = FirstGroups(optimizer)
        self.tune_epochs = checked_count(owner, "tune_epochs", tune_epochs)
        of_head = (
            self.first_groups.rate(optimizer, head.parameters() if isinstance(head, Module) else ())
            * self.tune_fraction
        )
        self.tune_lr = checked_lr(owner, "tune_lr", tune_lr, of_head)
        self._own_tune_lr = tune_lr is not None

    def phases(self) -> Sequence[Phase]:
        if not self.num_old:
            return ()
        return (
            Phase(
                "tune",
                num_epochs=self.tune_epochs,
                first_groups=self.first_groups,
                lr=lambda rate: self.tune_lr if self._own_tune_lr else rate * self.tune_fraction,
                module=lambda: self.model,
                data=lambda: concat_datasets(self.memory.exemplars()),
                loss=self.tuning_loss,
                entered=self.tuning,
                start=lambda: self.memory.update(self),
                finish=self.after_tuning,
                limit=self.tune_limit,
            ),
        )

    def tuning(self) -> AbstractContextManager[None]:
        """What trains in this phase, and what rests."""
        raise NotImplementedError

    def after_tuning(self) -> None:
        """A method whose features have moved forgets those that herding found."""

    def tuning_loss(self, x: Tensor, targets: Tensor) -> dict[str, Tensor]:
        logits = self.model(x)
        return {
            "classification": self.classification(
                logits, targets, StepTable.of(self).on(logits)
            ).mean()
        }
