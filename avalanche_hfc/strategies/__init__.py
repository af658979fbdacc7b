"""Strategies: which parts, in which order."""

from avalanche_hfc.strategies.hfc import HFCStrategy
from avalanche_hfc.strategies.official import official_parts
from avalanche_hfc.strategies.template import IncrementalTemplate

STRATEGIES: dict[str, type] = {
    "hfc": HFCStrategy,
}

__all__ = ["HFCStrategy", "IncrementalTemplate", "STRATEGIES", "official_parts"]
