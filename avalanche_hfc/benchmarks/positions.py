"""A flat view of an Avalanche data set: a batch of positions in, a collated batch out, without
Avalanche's layers in between.

The tree of subsets, concatenations and transform groups is resolved once. A *leaf* is a data set
under Avalanche's layers; a *source* is a leaf and the transforms above it. All images of one split
share their source, exemplars included.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks.utils.classification_dataset import lookup
from avalanche.benchmarks.utils.data import AvalancheDataset, _FlatDataWithTransform
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.benchmarks.utils.flat_data import ConstantSequence, FlatData
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
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# (place in the sample, transform), in the order of application
Transforms = tuple[tuple[int, Callable], ...]


class NotFlat(ValueError):
    """The data set has a layer that the flat view cannot reproduce."""


def collate(batch: list) -> list:
    """The `collate_fn` for a loader over a `PositionDataset`, whose batches are collated already.

    Args:
        batch: A collated batch.

    Returns:
        The same batch.
    """
    return batch


def flatten(dataset: object) -> "PositionDataset | None":
    """The flat view of an Avalanche data set, for loading whole batches by position.

    Args:
        dataset: A data set of Avalanche.

    Returns:
        The view, or None if the structure of the data set is not supported: use Avalanche's loader
        then.
    """
    try:
        return PositionDataset(dataset)
    except NotFlat:
        return None


class PositionDataset(Dataset):
    """A flat view of an Avalanche data set that loads whole batches by position.

    ``view.__getitems__(positions)`` equals ``default_collate([dataset[p] for p in positions])`` in
    values, dtypes and order. Structure, current transform group, data attributes and class mapping
    are fixed at construction, which reads one sample of each underlying data set and restores the
    global random generators. Random transforms draw in the order of a loop over ``dataset[p]``.
    With `copies` above 1, position p + c·n is copy c of sample p, with its own random draws (see
    `seed_draws`).

    Args:
        dataset: A data set of Avalanche.

    Raises:
        NotFlat: A ValueError, if the structure of the data set is not supported; `flatten` returns
            None instead.
    """

    collate_fn = staticmethod(collate)  # where Avalanche's loaders look for it

    def __init__(self, dataset: Any):
        if (
            not isinstance(dataset, AvalancheDataset)
            or type(dataset).__getitem__ is not AvalancheDataset.__getitem__
            or dataset.collate_fn is not default_collate
            or len(dataset) == 0
        ):
            raise NotFlat(
                f"{type(dataset).__name__}: the flat view needs an AvalancheDataset with at least "
                "one sample, its own __getitem__ and torch's default_collate."
            )
        self.dataset = dataset
        self.copies = 1
        self.sources: list[_Source] = []
        self._source = np.empty(len(dataset), dtype=np.int64)  # (n,) which source
        self._index = np.empty(len(dataset), dtype=np.int64)  # (n,) index in its leaf
        self._key: Tensor | None = None  # (1,) its hash, in memory that loader processes share
        self._random: bool | None = None  # whether a transform draws; looked at when first asked
        keys: dict[tuple, int] = {}
        with generators_kept():
            for where, leaf, index, transforms in _leaves(dataset._flat_data, len(dataset)):
                key = (id(leaf), *((field, id(transform)) for field, transform in transforms))
                if key not in keys:
                    keys[key] = len(keys)
                    self.sources.append(_Source(leaf, transforms, int(index[0])))
                self._source[where], self._index[where] = keys[key], index
            self._attributes = [
                _values(attribute)
                for attribute in dataset._data_attributes.values()
                if attribute.use_in_getitem
            ]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def in_memory(self) -> bool:
        """Whether a batch is a lookup in tensors, with nothing to do for a loader process."""
        return all(source.columns and not source.left for source in self.sources)

    def seed_draws(self, *key: int | str) -> None:
        """Make the random draws of transforms depend on a key and the position of a sample only.

        The draws then do not depend on the order of the samples or on the number of loader
        processes, and the global random generators are not used. Copy 0 of a sample has the draws
        of a sample without copies. Loader processes that already run follow from their next batch
        on.

        Args:
            *key: Integers and strings that the seed of each sample is derived from.
        """
        if self._random is None:
            first = np.unique(self._source, return_index=True)[1].tolist()
            self._random = any(draws(partial(self.dataset.__getitem__, p)) for p in first)
        if self._random:
            if self._key is None:
                self._key = torch.zeros(1, dtype=torch.int64).share_memory_()
            self._key.copy_(torch.from_numpy(_key_hash(key).view(np.int64).copy()))

    def __getitem__(self, position: int) -> Sequence:
        """One sample, as the Avalanche data set gives it."""
        where, seeds = self._checked([position])
        with nullcontext() if seeds is None else generators_kept():
            if seeds is not None:
                seed_generators(seeds[0])
            return self.dataset[int(where[0])]

    def __getitems__(self, positions: Sequence) -> list:
        """[x, y, …] collated; torch's loader asks for it by this name."""
        where, seeds = self._checked(positions)
        with nullcontext() if seeds is None else generators_kept():
            columns = self._read(self._source[where], self._index[where], seeds)
        for values in self._attributes:
            if isinstance(values, Tensor):
                columns.append(values[torch.from_numpy(where)])
            else:
                columns.append(tuple(values[p] for p in where.tolist()))
        return [
            column if isinstance(column, Tensor) else default_collate(column) for column in columns
        ]

    def _checked(self, positions: Sequence) -> tuple[np.ndarray, list | None]:
        """Positions without their copies, and the seeds of their draws."""
        where = np.asarray(positions, dtype=np.int64)
        last = self.copies * len(self) - 1
        if not len(where) or where.min() < 0 or where.max() > last:
            raise IndexError(
                f"PositionDataset: positions must be one or more in 0..{last}, got "
                f"{where.tolist()}."
            )
        seeds = None if self._key is None else _seeds(self._key.numpy().view(np.uint64), where)
        return where % len(self), seeds

    def _read(self, source: np.ndarray, index: np.ndarray, seeds: list | None) -> list:
        if len(self.sources) == 1:
            return self.sources[0].read(index, seeds)
        samples = zip(source.tolist(), index.tolist(), seeds or repeat(None), strict=False)
        return _transposed([self.sources[number].sample(i, seed) for number, i, seed in samples])


class _Source:
    """A leaf and the transforms above it.

    Where the samples of the leaf are rows of tensors, `columns` are these tensors under the class
    mappings, and `left` are the transforms of the image that remain to be run, sample by sample.
    """

    def __init__(self, leaf: Any, transforms: Transforms, index: int):
        self.leaf, self.transforms = leaf, transforms
        sample = leaf[index]
        width = max([1, *(field for field, _ in transforms)])
        if type(sample) not in (tuple, list) or len(sample) <= width:
            raise NotFlat(
                f"{type(leaf).__name__} gives a {type(sample).__name__} of {len(sample)}, not an "
                "(x, y, …) with a value for each transform."
            )
        self.left = tuple(transform for field, transform in transforms if field == 0)
        self.columns: tuple[Tensor, ...] = ()
        if _is_tensors(leaf):
            columns = [
                _mapped(column, [one for at, one in transforms if at == field and field])
                for field, column in enumerate(leaf.tensors)
            ]
            if all(column is not None for column in columns):
                self.columns = tuple(columns)  # type: ignore[arg-type]

    def sample(self, index: int, seed: int | None = None) -> list:
        if seed is not None:
            seed_generators(seed)
        sample = list(self.leaf[index])
        for field, transform in self.transforms:
            sample[field] = transform(sample[field])
        return sample

    def read(self, index: np.ndarray, seeds: list | None) -> list:
        """The columns of a batch: tensors, or tuples of values to collate."""
        with_seeds = zip(index.tolist(), seeds or repeat(None), strict=False)
        if not self.columns:
            return _transposed([self.sample(i, seed) for i, seed in with_seeds])
        rows = torch.from_numpy(index % len(self.columns[0]))  # a subset may count from the end
        # index_select is 2-3 times faster than column[rows]
        batch: list = [column.index_select(0, rows.to(column.device)) for column in self.columns]
        if self.left:
            images = []
            for image, (_, seed) in zip(batch[0].unbind(), with_seeds, strict=True):
                if seed is not None:
                    seed_generators(seed)
                for transform in self.left:
                    image = transform(image)
                images.append(image)
            batch[0] = images
        return batch


def _transposed(samples: Sequence) -> list:
    return list(zip(*samples, strict=True))


def _is_tensors(leaf: Any) -> bool:
    """Whether the samples of a leaf are the rows of its `tensors`; it may say so itself."""
    if hasattr(leaf, "gives_tensors"):
        return leaf.gives_tensors
    return type(leaf) is TensorDataset and all(type(column) is Tensor for column in leaf.tensors)


def _mapped(column: Tensor, transforms: list[Callable]) -> Tensor | None:
    """Labels under Avalanche's class mappings, `partial(lookup, mapping)`; None if a transform is
    anything else.
    """
    for transform in transforms:
        if not isinstance(transform, partial) or transform.func is not lookup:
            return None
        mapping = torch.as_tensor(transform.args[0], device=column.device)
        if column.is_floating_point() or column.min() < 0 or column.max() >= len(mapping):
            return None
        column = mapping[column.long()]
    return column


def _values(attribute: Any) -> Tensor | list:
    """A data attribute by position: int64 if all values are ints, else as they are."""
    if isinstance(attribute.data, ConstantSequence) and type(attribute.data[0]) is int:
        return torch.full((len(attribute),), attribute.data[0])
    values: list = [None] * len(attribute)
    for where, leaf, index, _ in _leaves(attribute, len(attribute)):
        for position, i in zip(where.tolist(), index.tolist(), strict=True):
            values[position] = leaf[i]
    return torch.tensor(values) if all(type(value) is int for value in values) else values


# What stands under a data set: the leaf and the index at each position, and the transforms above it


def _leaves(root: Any, length: int) -> Iterator[tuple[np.ndarray, Any, np.ndarray, Transforms]]:
    """(positions, leaf, indices in it, transforms inner to outer) for every leaf below `root`."""
    return _walk(root, np.arange(length), np.arange(length), None, ())


def _walk(
    node: Any, where: np.ndarray, index: np.ndarray, group: str | None, outer: Transforms
) -> Iterator[tuple[np.ndarray, Any, np.ndarray, Transforms]]:
    """As `_leaves`, of the leaves that `index` reaches. `group` is the one chosen by the layer
    above; None where that layer passes none on and a node uses its own.
    """
    if isinstance(node, DataAttribute) and type(node).__getitem__ is DataAttribute.__getitem__:
        node = node.data
    if type(node) is _FlatDataWithTransform:
        group = node._transform_groups.current_group if group is None else group
        frozen, current = node._frozen_transform_groups, node._transform_groups
        outer = (*_transforms(frozen, group), *_transforms(current, group), *outer)
    elif type(node) is FlatData:
        group = None
    elif isinstance(node, FlatData):
        raise NotFlat(f"unknown layer {type(node).__name__}.")
    else:
        yield where, node, index, outer
        return
    if node._indices is not None:
        index = np.fromiter(node._indices, dtype=np.int64)[index]
    sizes = [len(child) for child in node._datasets]
    ends = np.cumsum(sizes)
    children = np.searchsorted(ends, index, side="right") if len(sizes) > 1 else 0 * index
    for number in np.unique(children):
        mine = children == number
        start = ends[number] - sizes[number]
        yield from _walk(node._datasets[number], where[mine], index[mine] - start, group, outer)


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
        return tuple((place, one) for place, one in enumerate(transform.transforms) if one)
    if type(transform) is MultiParamCompose:  # frozen groups
        return tuple(inner for one in transform.transforms for inner in _split(one))
    raise NotFlat(f"{type(transform).__name__} acts on several parts of a sample at once.")


# Random draws from a seed for each sample: the same in any order, in any process.
# Annotations name no items (`list`, not `list[int]`): the type checker of the tests would draw from
# python's generator to look at one.


def sample_seeds(key: tuple, positions: np.ndarray) -> list:
    """A seed in [0, 2⁶³) for each position, by `key` and position alone: splitmix64 from a hash of
    the key.
    """
    return _seeds(_key_hash(key), positions)


def _key_hash(key: tuple) -> np.ndarray:
    """64 bits of a key, as one number."""
    return np.frombuffer(blake2b(repr(key).encode(), digest_size=8).digest(), dtype=np.uint64)


def _seeds(start: np.ndarray, positions: np.ndarray) -> list:
    """`sample_seeds` of the key with this hash."""
    mixed = start + (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).tolist()


def seed_generators(seed: int) -> None:
    """Seed what transforms draw from: the global generators of torch (CPU), numpy and python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
    random.seed(seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Inside, draws from the global generators leave no trace."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 (the global one is what leaves draw from)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def draws(read: Callable[[], object]) -> bool:
    """Whether `read` draws from a global generator."""
    with generators_kept():
        seed_generators(0)
        expected = torch.rand(()).item(), np.random.random(), random.random()  # noqa: NPY002
        seed_generators(0)
        read()
        return (torch.rand(()).item(), np.random.random(), random.random()) != expected  # noqa: NPY002
