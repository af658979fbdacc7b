"""Class orders, transforms and splits: images in, Avalanche benchmarks out.

Public names load when first used, so that checking images needs neither torch nor Avalanche.
"""

from typing import TYPE_CHECKING

from avalanche_hfc._names import imported_when_used

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

__getattr__ = imported_when_used(
    __name__,
    {
        "orders": "CLASS_ORDERS class_order",
        "transforms": "TRANSFORMS build_transforms",
        "splits": "split_cifar100 split_imagenet100 split_imagenet1000 split_digits split_npz "
        "split_folder",
        "scenario": "SplitBenchmark",
        "positions": "PositionDataset flatten",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
