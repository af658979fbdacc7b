"""The tree under an Avalanche data set, resolved: which leaf and index stands at a position, and
which transforms above it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from avalanche.benchmarks.utils.data import _FlatDataWithTransform
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.benchmarks.utils.flat_data import FlatData, LazyIndices, LazyRange
from avalanche.benchmarks.utils.transform_groups import (
    DefaultTransformGroups,
    EmptyTransformGroups,
    TransformGroups,
)
from avalanche.benchmarks.utils.transforms import (
    MultiParamCompose,
    MultiParamTransform,
    TupleTransform,
)

Transforms = tuple[
    tuple[int, Callable], ...
]  # (place in the sample, transform), in the order of application


class NotFlat(ValueError):
    """The data set has a layer that the flat view cannot reproduce."""


def walk(
    node: Any, where: np.ndarray, index: np.ndarray, group: str | None, outer: Transforms
) -> Iterator[tuple]:
    """(positions, leaf, indices in it, transforms inner to outer) for every leaf that `index`
    reaches below `node`.

    `group` is the one chosen by the layer above; None where that layer passes none on and a node
    uses its own.
    """
    if isinstance(node, DataAttribute) and type(node).__getitem__ is DataAttribute.__getitem__:
        node = node.data
    if type(node) is _FlatDataWithTransform:
        group = node._transform_groups.current_group if group is None else group
        outer = (
            *_transforms(node._frozen_transform_groups, group),
            *_transforms(node._transform_groups, group),
            *outer,
        )
    elif type(node) is FlatData:
        group = None
    elif isinstance(node, FlatData):
        raise NotFlat(f"unknown layer {type(node).__name__}.")
    else:
        yield where, node, index, outer
        return
    sizes = [len(child) for child in node._datasets]
    if node._indices is not None:
        index = _lookup(node._indices, index)
    if len(sizes) == 1:
        yield from walk(node._datasets[0], where, index, group, outer)
        return
    ends = np.cumsum(sizes)
    chosen = np.searchsorted(ends, index, side="right")
    if chosen.max() == len(sizes):
        raise NotFlat(f"index {index.max()} in a concatenation of {ends[-1]} samples.")
    for number in np.unique(chosen):
        mine = chosen == number
        start = ends[number] - sizes[number]
        yield from walk(node._datasets[number], where[mine], index[mine] - start, group, outer)


def _lookup(indices: Any, index: np.ndarray) -> np.ndarray:
    if type(indices) is LazyIndices:
        indices._to_eager()
        array = indices._eager_list
    else:
        array = np.array(
            [indices[i] for i in range(len(indices))] if type(indices) is LazyRange else indices,
            dtype=np.int64,
        )
    try:
        return array[index]
    except IndexError as error:
        raise NotFlat(f"a subset of a subset: {error}.") from None


def _transforms(groups: TransformGroups | None, group: str) -> Transforms:
    if groups is None:
        return ()
    if type(groups) not in (TransformGroups, DefaultTransformGroups, EmptyTransformGroups):
        raise NotFlat(f"unknown transform groups {type(groups).__name__}.")
    try:
        return _split(groups.transform_groups[group])
    except KeyError:
        raise NotFlat(f"a layer has no transform group {group!r}.") from None


def _split(transform: Any) -> Transforms:
    """A transform of the whole sample as transforms of its places."""
    if transform is None:
        return ()
    if not isinstance(transform, MultiParamTransform):
        return ((0, transform),)
    if type(transform) is TupleTransform:
        return tuple(
            (index, inner) for index, inner in enumerate(transform.transforms) if inner is not None
        )
    if type(transform) is MultiParamCompose and all(
        type(part) is TupleTransform for part in transform.transforms
    ):  # frozen groups
        return tuple(inner for part in transform.transforms for inner in _split(part))
    raise NotFlat(f"{type(transform).__name__} acts on several parts of a sample at once.")
