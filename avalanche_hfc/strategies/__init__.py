"""Strategies: which parts, in which order."""

from avalanche_hfc._names import Registry
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
from avalanche_hfc.strategies.shipped import (
    FixedBiC,
    FixedDER,
    FixedER_ACE,
    FixedICaRL,
    FixedLwF,
    ShippedBiC,
    ShippedCumulative,
    ShippedDER,
    ShippedER_ACE,
    ShippedEWC,
    ShippedICaRL,
    ShippedJointTraining,
    ShippedLwF,
    ShippedNaive,
    ShippedReplay,
)
from avalanche_hfc.strategies.ssil import SSIL
from avalanche_hfc.strategies.wa import WA

STRATEGIES: Registry[type] = Registry(
    {
        "hfc": HFCStrategy,
        "finetune": FineTune,
        "herding-replay": HerdingReplay,
        "joint": JointTraining,
        "baseline": Baseline,
        "icarl": ICaRL,
        "bic": BiC,
        "podnet": PODNet,
        "podnet-cscct": PODNetCSCCT,
        "ssil": SSIL,
        "foster": FOSTER,
        "afc": AFC,
        "dytox": DyTox,
        "ncm": NCM,
        "ranpac": RanPAC,
        "frozen-replay": FrozenReplay,
        "wa": WA,
        "avalanche-naive": ShippedNaive,
        "avalanche-replay": ShippedReplay,
        "avalanche-lwf": ShippedLwF,
        "avalanche-lwf-fixed": FixedLwF,
        "avalanche-ewc": ShippedEWC,
        "avalanche-der": ShippedDER,
        "avalanche-der-fixed": FixedDER,
        "avalanche-er_ace": ShippedER_ACE,
        "avalanche-er_ace-fixed": FixedER_ACE,
        "avalanche-icarl": ShippedICaRL,
        "avalanche-icarl-fixed": FixedICaRL,
        "avalanche-bic": ShippedBiC,
        "avalanche-bic-fixed": FixedBiC,
        "avalanche-cumulative": ShippedCumulative,
        "avalanche-joint": ShippedJointTraining,
    },
    kind="method",
)
"""Every strategy by name: the methods of the paper, references, and Avalanche's own."""

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
