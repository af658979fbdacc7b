"""Class orders, transforms and splits: images in, Avalanche benchmarks out.

Public names load when first used, so that checking images needs neither torch nor Avalanche.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from avalanche_hfc.benchmarks.orders import CLASS_ORDERS, class_order
    from avalanche_hfc.benchmarks.positions import PositionDataset, flatten
    from avalanche_hfc.benchmarks.scenario import SplitBenchmark
    from avalanche_hfc.benchmarks.splits import (
        split_cifar100,
        split_digits,
        split_folder,
        split_imagenet100,
        split_imagenet1000,
        split_npz,
    )
    from avalanche_hfc.benchmarks.transforms import TRANSFORMS, build_transforms

_HOME = {
    "CLASS_ORDERS": "orders",
    "class_order": "orders",
    "TRANSFORMS": "transforms",
    "build_transforms": "transforms",
    "split_cifar100": "splits",
    "split_imagenet100": "splits",
    "split_imagenet1000": "splits",
    "split_digits": "splits",
    "split_npz": "splits",
    "split_folder": "splits",
    "SplitBenchmark": "scenario",
    "PositionDataset": "positions",
    "flatten": "positions",
}

__all__ = [
    "CLASS_ORDERS",
    "class_order",
    "TRANSFORMS",
    "build_transforms",
    "split_cifar100",
    "split_imagenet100",
    "split_imagenet1000",
    "split_digits",
    "split_npz",
    "split_folder",
    "SplitBenchmark",
    "PositionDataset",
    "flatten",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"avalanche_hfc.benchmarks.{_HOME[name]}"), name)
    raise AttributeError(f"module 'avalanche_hfc.benchmarks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
