"""Plugins that are exact on several ranks."""

from typing import Any

from avalanche.training.plugins import SupervisedPlugin


class RankedPlugin(SupervisedPlugin):
    """A plugin of a strategy that trains on several ranks: Avalanche's `supports_distributed` is
    True for it and its subclasses.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**{"supports_distributed": True, **kwargs})
