"""Class orders, transforms and splits: images in, Avalanche benchmarks out."""

from avalanche_hfc.benchmarks.orders import CLASS_ORDERS, class_order
from avalanche_hfc.benchmarks.positions import PositionDataset, flatten
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
    "PositionDataset",
    "flatten",
]
