"""Exemplar memory: which images of a class are kept, and in which order."""

from avalanche_hfc.memory.exemplars import ExemplarMemory
from avalanche_hfc.memory.herding import RULES, herding_order

__all__ = ["ExemplarMemory", "herding_order", "RULES"]
