"""HFC (Heterogeneous Forgetting Compensation, ICCV 2023) as a native Avalanche strategy.

Public names load when first used, so that importing the package, and `hfc --help`, need neither
torch nor Avalanche.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from avalanche_hfc._version import __version__

if TYPE_CHECKING:
    from avalanche_hfc.lab.trained_run import load_run
    from avalanche_hfc.losses import forgetting_compensation, official_hfc, relation_distillation
    from avalanche_hfc.models import TSAViT
    from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin
    from avalanche_hfc.strategies import STRATEGIES, HFCStrategy, official_parts

# Avalanche imports qpsolvers, which warns when it is imported and finds no solver
warnings.filterwarnings("ignore", "no QP solver found", UserWarning, "qpsolvers")

_HOME = {
    "HFCStrategy": "strategies",
    "official_parts": "strategies",
    "STRATEGIES": "strategies",
    "GFCPlugin": "plugins",
    "GRDPlugin": "plugins",
    "HerdingReplayPlugin": "plugins",
    "TSAViT": "models",
    "forgetting_compensation": "losses",
    "relation_distillation": "losses",
    "official_hfc": "losses",
    "load_run": "lab.trained_run",
}

__all__ = [
    "__version__",
    "HFCStrategy",
    "official_parts",
    "STRATEGIES",
    "GFCPlugin",
    "GRDPlugin",
    "HerdingReplayPlugin",
    "TSAViT",
    "forgetting_compensation",
    "relation_distillation",
    "official_hfc",
    "load_run",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"avalanche_hfc.{_HOME[name]}"), name)
    raise AttributeError(
        f"module 'avalanche_hfc' has no attribute {name!r}. Public names: {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
