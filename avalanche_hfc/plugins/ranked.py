"""Base class of our plugins, and the events that our strategies add to Avalanche's."""

from typing import Any

from avalanche.training.plugins import SupervisedPlugin

from avalanche_hfc._types import Strategy


class RankedPlugin(SupervisedPlugin):
    """A plugin of a strategy that trains on several ranks: Avalanche's `supports_distributed` is
    True for it and its subclasses.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**{"supports_distributed": True, **kwargs})


class PhasePlugin(SupervisedPlugin):
    """A plugin with Avalanche's callbacks and further ones for the phases after the main epochs.

    During a callback `strategy.phase` is the name of the phase and `strategy.phase_running` the
    `Phase`, with its optimizer, epoch and batch.
    """

    def before_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        """Called before each epoch of a phase after the main epochs.

        Args:
            strategy: The strategy that is training.
            **kwargs: The arguments that `train` was given.
        """

    def after_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        """Called after each epoch of a phase after the main epochs.

        Args:
            strategy: The strategy that is training.
            **kwargs: The arguments that `train` was given.
        """

    def before_phase_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        """Called before each batch of such a phase.

        Args:
            strategy: The strategy; `strategy.phase_running.batch` is ``(x, targets)``.
            **kwargs: Not used.
        """

    def after_phase_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        """Called after the update of each batch of such a phase.

        Args:
            strategy: The strategy; `strategy.loss_terms` are the loss terms of the batch.
            **kwargs: Not used.
        """
