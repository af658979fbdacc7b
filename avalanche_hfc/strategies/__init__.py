"""Strategies: which parts, in which order. A method is imported when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from avalanche_hfc._names import lookup

if TYPE_CHECKING:
    from avalanche_hfc.strategies._base.template import IncrementalTemplate
    from avalanche_hfc.strategies.afc import AFC
    from avalanche_hfc.strategies.baseline import Baseline
    from avalanche_hfc.strategies.bic import BiC
    from avalanche_hfc.strategies.dytox import DyTox
    from avalanche_hfc.strategies.finetune import FineTune
    from avalanche_hfc.strategies.foster import FOSTER
    from avalanche_hfc.strategies.frozen_replay import FrozenReplay
    from avalanche_hfc.strategies.herding_replay import HerdingReplay
    from avalanche_hfc.strategies.hfc import HFCStrategy
    from avalanche_hfc.strategies.icarl import ICaRL
    from avalanche_hfc.strategies.joint import JointTraining
    from avalanche_hfc.strategies.ncm import NCM
    from avalanche_hfc.strategies.official import official_parts
    from avalanche_hfc.strategies.podnet import PODNet
    from avalanche_hfc.strategies.podnet_cscct import PODNetCSCCT
    from avalanche_hfc.strategies.ranpac import RanPAC
    from avalanche_hfc.strategies.ssil import SSIL
    from avalanche_hfc.strategies.wa import WA

METHODS = {
    "hfc": ("hfc", "HFCStrategy"),
    "finetune": ("finetune", "FineTune"),
    "herding-replay": ("herding_replay", "HerdingReplay"),
    "joint": ("joint", "JointTraining"),
    "baseline": ("baseline", "Baseline"),
    "icarl": ("icarl", "ICaRL"),
    "bic": ("bic", "BiC"),
    "podnet": ("podnet", "PODNet"),
    "podnet-cscct": ("podnet_cscct", "PODNetCSCCT"),
    "ssil": ("ssil", "SSIL"),
    "foster": ("foster", "FOSTER"),
    "afc": ("afc", "AFC"),
    "dytox": ("dytox", "DyTox"),
    "ncm": ("ncm", "NCM"),
    "ranpac": ("ranpac", "RanPAC"),
    "frozen-replay": ("frozen_replay", "FrozenReplay"),
    "wa": ("wa", "WA"),
    "avalanche-naive": ("shipped", "ShippedNaive"),
    "avalanche-replay": ("shipped", "ShippedReplay"),
    "avalanche-lwf": ("shipped", "ShippedLwF"),
    "avalanche-lwf-fixed": ("shipped", "FixedLwF"),
    "avalanche-ewc": ("shipped", "ShippedEWC"),
    "avalanche-der": ("shipped", "ShippedDER"),
    "avalanche-der-fixed": ("shipped", "FixedDER"),
    "avalanche-er_ace": ("shipped", "ShippedER_ACE"),
    "avalanche-er_ace-fixed": ("shipped", "FixedER_ACE"),
    "avalanche-icarl": ("shipped", "ShippedICaRL"),
    "avalanche-icarl-fixed": ("shipped", "FixedICaRL"),
    "avalanche-bic": ("shipped", "ShippedBiC"),
    "avalanche-bic-fixed": ("shipped", "FixedBiC"),
    "avalanche-cumulative": ("shipped", "ShippedCumulative"),
    "avalanche-joint": ("shipped", "ShippedJointTraining"),
}
"""Module and class of each method: those of the paper, references, Avalanche's own."""


class Strategies(Mapping[str, Any]):
    """The class of each method by its name. An unknown name is answered with all names."""

    def __getitem__(self, name: str) -> Any:
        module, kind = lookup(METHODS, name, "method")
        return getattr(import_module(f"{__name__}.{module}"), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(METHODS)

    def __len__(self) -> int:
        return len(METHODS)


STRATEGIES = Strategies()
"""Every strategy by name."""

__all__ = [
    "STRATEGIES",
    "IncrementalTemplate",
    "HFCStrategy",
    "FineTune",
    "HerdingReplay",
    "JointTraining",
    "Baseline",
    "ICaRL",
    "BiC",
    "PODNet",
    "PODNetCSCCT",
    "SSIL",
    "FOSTER",
    "AFC",
    "DyTox",
    "NCM",
    "RanPAC",
    "FrozenReplay",
    "WA",
    "official_parts",
]
_HOME = {kind: module for module, kind in METHODS.values()} | {
    "IncrementalTemplate": "_base.template",
    "official_parts": "official",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
