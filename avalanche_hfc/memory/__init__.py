"""Exemplar memory: herding order, exemplars as ranked positions."""

from avalanche_hfc.memory.exemplars import ExemplarMemory
from avalanche_hfc.memory.herding import RULES, herding_order

__all__ = ["ExemplarMemory", "herding_order", "RULES"]
