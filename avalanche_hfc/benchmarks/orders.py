"""Class orders of the literature, by name, and the ImageNet synsets they are counted in.

`order[j]` is the original class id that is learned j-th. Ids are torchvision's fine labels
(CIFAR-100) and positions in the sorted list of synsets (ImageNet). The tests hold a sha256 of each.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.random import RandomState

from avalanche_hfc._names import lookup

# numpy's legacy RandomState is used throughout: its streams are frozen, those of Generator may
# change between versions.


def _icarl_order() -> np.ndarray:
    """iCaRL, run 0: its loader shuffles the 500 positions of each class before it draws the
    order.
    """
    generator = RandomState(1993)
    for _ in range(100):
        generator.shuffle(np.arange(500))
    return generator.permutation(100)


_CIFAR100_B = (
    58, 30, 93, 69, 21, 77, 3, 78, 12, 71, 65, 40, 16, 49, 89, 46, 24, 66, 19, 41, 5, 29, 15, 73,
    11, 70, 90, 63, 67, 25, 59, 72, 80, 94, 54, 33, 18, 96, 2, 10, 43, 9, 57, 81, 76, 50, 32, 6,
    37, 7, 68, 91, 88, 95, 85, 4, 60, 36, 22, 27, 39, 42, 34, 51, 55, 28, 53, 48, 38, 17, 83, 86,
    56, 35, 45, 79, 99, 84, 97, 82, 98, 26, 47, 44, 62, 13, 31, 0, 75, 14, 52, 74, 8, 20, 1, 92,
    87, 23, 64, 61,
)  # fmt: skip
_CIFAR100_C = (
    71, 54, 45, 32, 4, 8, 48, 66, 1, 91, 28, 82, 29, 22, 80, 27, 86, 23, 37, 47, 55, 9, 14, 68,
    25, 96, 36, 90, 58, 21, 57, 81, 12, 26, 16, 89, 79, 49, 31, 38, 46, 20, 92, 88, 40, 39, 98,
    94, 19, 95, 72, 24, 64, 18, 60, 50, 63, 61, 83, 76, 69, 35, 0, 52, 7, 65, 42, 73, 74, 30, 41,
    3, 6, 53, 13, 56, 70, 77, 34, 97, 75, 2, 17, 93, 33, 84, 99, 51, 62, 87, 5, 15, 10, 78, 67,
    44, 59, 85, 43, 11,
)  # fmt: skip

# Recipes are drawn when asked for, so that importing this file costs nothing.
CLASS_ORDERS: dict[str, Callable[[], np.ndarray] | tuple[int, ...]] = {
    "cifar100-a": _icarl_order,  # the paper; order 1 of PODNet, AFC, DyTox
    "cifar100-b": _CIFAR100_B,  # order 2 of PODNet, AFC, DyTox
    "cifar100-c": _CIFAR100_C,  # order 3
    "seed1993-100": lambda: RandomState(1993).permutation(100),  # LUCIR, FOSTER, PyCIL on CIFAR-100
    "imagenet100": lambda: RandomState(1993).permutation(100),  # the paper
    "imagenet1000": lambda: RandomState(1993).permutation(1000),  # the paper
    "ssil1000": lambda: np.argsort(
        RandomState(0).permutation(1000)
    ),  # SS-IL's permutation maps old to new label: inverted here
}
"""The published class orders by name; `class_order` returns one as a tuple."""


def class_order(name: str) -> tuple[int, ...]:
    """A published class order.

    Args:
        name: A key of `CLASS_ORDERS`.

    Returns:
        All class ids, in the order in which they are learned.

    Raises:
        ValueError: If the name does not exist.

    Example:
        >>> class_order("cifar100-b")[:5]
        (58, 30, 93, 69, 21)
    """
    recipe = lookup(CLASS_ORDERS, name, "class order")
    return tuple(int(class_id) for class_id in (recipe() if callable(recipe) else recipe))


@cache
def imagenet_synsets() -> tuple[str, ...]:
    """The 1000 synsets, sorted; a class id is a position in this list."""
    from timm.data import ImageNetInfo  # loads torch, which a check of images does not need

    return tuple(ImageNetInfo("imagenet-1k").label_names())


def imagenet100_synsets() -> tuple[str, ...]:
    """The first 100 synsets, sorted: the ImageNet-100 of PODNet, AFC, DyTox and HFC."""
    return imagenet_synsets()[:100]
