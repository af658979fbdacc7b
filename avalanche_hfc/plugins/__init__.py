"""Avalanche plugins: HFC's two losses, herding replay, and what they share in a strategy."""

from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.losses import GFCPlugin, GRDPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher

__all__ = ["GFCPlugin", "GRDPlugin", "HerdingReplayPlugin", "FrozenTeacher", "StepTable"]
