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
from avalanche_hfc.strategies._base.phases import Phase, Phased


class BalancedTuning(Phased):
    """Mix-in for a ReplayMethod: balanced tuning after the main epochs, from the second step on.

    Exemplars of the new classes are chosen first. Then `tune_epochs` epochs over all exemplars
    minimise the classification loss alone, at the constant learning rate `tune_lr`, by default
    `tune_fraction` of the rate that a parameter had at construction. Gradient entries are clipped
    to ±`tune_limit`, if it is not None. With `tune_in_order` the exemplars are read class by class,
    best first.
    """

    tune_fraction: ClassVar[float]
    tune_limit: ClassVar[float | None] = None
    tune_in_order = False
    model: Any
    memory: Any
    num_old: int
    classification: Callable[[Tensor, Tensor, Tensor], Tensor]
    gathered: Callable[[Tensor], Tensor]

    def set_tuning(
        self, model: Any, optimizer: Optimizer, tune_epochs: object, tune_lr: object
    ) -> None:
        """Check and store the options; call it in the constructor of a method.

        Args:
            model: The model to train.
            optimizer: An optimizer over the parameters of the model.
            tune_epochs: Number of epochs of balanced tuning.
            tune_lr: Learning rate of balanced tuning; None for `tune_fraction` of the head's.

        Raises:
            ValueError: If a value is not allowed.
        """
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
        """The tuning phase, from the second step on.

        Returns:
            The phases in the order in which they run.
        """
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
                in_order=self.tune_in_order,
            ),
        )

    def tuning(self) -> AbstractContextManager[None]:
        """Hook: a context in which only the tuned parameters are trained.

        Returns:
            A context manager that freezes the other parameters and restores them at its end.
        """
        raise NotImplementedError

    def after_tuning(self) -> None:
        """Hook: called after the last epoch of tuning."""

    def tuning_loss(self, x: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The classification loss of a batch of exemplars.

        Args:
            x: Images, shape ``(b, c, h, w)``.
            targets: Class ids, shape ``(b,)``.

        Returns:
            A scalar for each term, by its name.
        """
        logits = self.gathered(self.model(x))
        return {
            "classification": self.classification(
                logits, targets, StepTable.of(self).on(logits)
            ).mean()
        }
