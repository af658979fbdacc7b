"""A flat view of an Avalanche data set: a batch of positions in, a collated batch out, without
Avalanche's layers in between.

The tree of subsets, concatenations and transform groups is resolved once. `n` positions, `b` of
them in a batch. A *leaf* is a data set under Avalanche's layers; a *source* is a leaf and the
transforms above it. Transforms of one split share their source, exemplars included.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks.utils.classification_dataset import _TensorClassificationDataset, lookup
from avalanche.benchmarks.utils.data import AvalancheDataset
from avalanche.benchmarks.utils.flat_data import ConstantSequence
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from avalanche_hfc.benchmarks._draws import (
    draws,
    generators_kept,
    key_hash,
    seed_generators,
    seeds_from,
)
from avalanche_hfc.benchmarks._layers import NotFlat, Transforms, walk


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
    global random generators. Random transforms draw in the order of a loop over ``dataset[p]``,
    except that draws of an underlying data set with its own `__getitems__` come before those of the
    transforms. With `copies` above 1, position p + c·n is copy c of sample p, with its own random
    draws (see `seed_draws`).

    Args:
        dataset: A data set of Avalanche.

    Raises:
        NotFlat: A ValueError, if the structure of the data set is not supported; `flatten` returns
            None instead.
    """

    collate_fn = staticmethod(collate)  # where Avalanche's loaders look for it

    def __init__(self, dataset: Any):
        _check_dataset(dataset)
        self.dataset = dataset
        self.copies = 1
        self._key: Tensor | None = None  # (1,) its hash, in memory that loader processes share
        self._random: bool | None = None  # whether a transform draws; looked at when first asked
        with generators_kept():
            self._resolve(dataset)

    def _resolve(self, dataset: AvalancheDataset) -> None:
        self._source = np.empty(len(dataset), dtype=np.int64)  # (n,) which source
        self._index = np.empty(len(dataset), dtype=np.int64)  # (n,) index in its leaf
        keys: dict[tuple, int] = {}
        self.sources: list[_TensorSource | _SampleSource] = []
        for where, leaf, index, transforms in walk(
            dataset._flat_data, np.arange(len(dataset)), np.arange(len(dataset)), None, ()
        ):
            key = (id(leaf), tuple((field, id(transform)) for field, transform in transforms))
            if key not in keys:
                keys[key] = len(keys)
                self.sources.append(_make_source(leaf, transforms, int(index[0])))
            self._source[where] = keys[key]
            self._index[where] = index
        self._attributes = [
            _attribute(attribute)
            for attribute in dataset._data_attributes.values()
            if attribute.use_in_getitem
        ]
        self._columns_agree = _columns_agree(self.sources)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def in_memory(self) -> bool:
        """Whether a batch is a lookup in tensors, with nothing to do for a loader process."""
        return all(
            isinstance(source, _TensorSource) and not source.transforms for source in self.sources
        )

    def seed_draws(self, *key: int | str) -> None:
        """Make the random draws of transforms depend on a key and the position of a sample only.

        The draws then do not depend on the order of the samples or on the number of loader
        processes, and the global random generators are not used. Copy 0 of a sample has the draws
        of a sample without copies. Draws of an underlying data set with its own `__getitems__` are
        not affected. Loader processes that already run follow from their next batch on.

        Args:
            *key: Integers and strings that the seed of each sample is derived from.
        """
        if self._random is None:
            places = [
                int(np.flatnonzero(self._source == number)[0])
                for number in range(len(self.sources))
            ]
            self._random = any(draws(partial(self.dataset.__getitem__, place)) for place in places)
        if self._random:
            if self._key is None:
                self._key = torch.zeros(1, dtype=torch.int64).share_memory_()
            self._key.copy_(torch.from_numpy(key_hash(key).view(np.int64).copy()))

    def _seeds(self, positions: np.ndarray) -> list:
        assert self._key is not None
        return seeds_from(self._key.numpy().view(np.uint64), positions)

    def __getitem__(self, position: int) -> Sequence:
        """One sample, as the Avalanche data set gives it."""
        index = position
        if self.copies > 1:
            self._check_positions(np.asarray([position]))
            index = position % len(self)
        if self._key is None:
            return self.dataset[index]
        with generators_kept():
            seed_generators(self._seeds(np.asarray([position]))[0])
            return self.dataset[index]

    def __getitems__(self, positions: Sequence) -> list:
        """[x, y, …] collated; torch's loader asks for it by this name."""
        where = np.asarray(positions, dtype=np.int64)
        self._check_positions(where)
        seeds = None if self._key is None else self._seeds(where)
        where = where % len(self)
        with nullcontext() if seeds is None else generators_kept():
            columns = self._read(self._source[where], self._index[where], seeds)
        for values in self._attributes:
            columns.append(
                values[torch.from_numpy(where)]
                if isinstance(values, Tensor)
                else tuple(values[i] for i in where.tolist())
            )
        return [
            column if isinstance(column, Tensor) else default_collate(column) for column in columns
        ]

    def _check_positions(self, where: np.ndarray) -> None:
        last = self.copies * len(self) - 1
        if not len(where) or where.min() < 0 or where.max() > last:
            raise IndexError(
                f"PositionDataset: positions must be one or more in 0..{last}, got "
                f"{where.tolist()}."
            )

    def _read(self, source: np.ndarray, index: np.ndarray, seeds: list | None) -> list:
        if len(self.sources) == 1:
            return self.sources[0].read(index, seeds)
        if self._columns_agree:
            return self._gather(source, index)
        chosen = zip(source.tolist(), index.tolist(), seeds or repeat(None), strict=False)
        return _transposed([self.sources[number].one(i, seed) for number, i, seed in chosen])

    def _gather(self, source: np.ndarray, index: np.ndarray) -> list:
        """A batch from several sources whose columns are all tensors of one form."""
        first = self.sources[0].columns
        batch = [
            torch.empty((len(index), *column.shape[1:]), dtype=column.dtype, device=column.device)
            for column in first
        ]
        for number in np.unique(source):
            chosen = np.flatnonzero(source == number)
            for column, part in zip(batch, self.sources[number].read(index[chosen]), strict=True):
                column[torch.from_numpy(chosen)] = part
        return batch


class _TensorSource:
    """A TensorDataset with at most one column under transforms that must run sample by sample; the
    others are looked up at once.
    """

    def __init__(
        self,
        columns: tuple[Tensor, ...],
        transforms: Transforms,
        leaf: Dataset,
        all_transforms: Transforms,
    ):
        self.columns = columns  # (leaf size, …) each, class mappings applied
        self.transforms = transforms  # what is left to run
        self.one = _SampleSource(leaf, all_transforms).one

    def read(self, index: np.ndarray, seeds: list | None = None) -> list:
        chosen = torch.from_numpy(np.where(index < 0, index + len(self.columns[0]), index))
        batch: list = [
            column.index_select(0, chosen.to(column.device)) for column in self.columns
        ]  # 2-3 times faster than column[chosen]
        if self.transforms:
            field = self.transforms[0][0]
            values = []
            for value, seed in zip(batch[field].unbind(), seeds or repeat(None), strict=False):
                if seed is not None:
                    seed_generators(seed)
                for _, transform in self.transforms:
                    value = transform(value)
                values.append(value)
            batch[field] = tuple(values)
        return batch


class _SampleSource:
    """Any other leaf: samples one by one, or a list of them where the leaf reads a batch itself
    (`batched`).
    """

    columns: tuple[Tensor, ...] = ()

    def __init__(self, leaf: Any, transforms: Transforms, batched: bool = False):
        self.leaf = leaf
        self.transforms = transforms
        self.batched = batched

    def one(self, index: int, seed: int | None = None) -> list:
        if seed is not None:
            seed_generators(seed)
        sample = list(self.leaf[index])
        for field, transform in self.transforms:
            sample[field] = transform(sample[field])
        return sample

    def read(self, index: np.ndarray, seeds: list | None = None) -> list:
        if not self.batched:
            return _transposed(
                [
                    self.one(i, seed)
                    for i, seed in zip(index.tolist(), seeds or repeat(None), strict=False)
                ]
            )
        samples = self.leaf.__getitems__(index.tolist())
        if len(samples) != len(index):
            raise ValueError(
                f"{type(self.leaf).__name__}.__getitems__ gave {len(samples)} samples for "
                f"{len(index)} indices."
            )
        if self.transforms:
            samples = [list(sample) for sample in samples]
            transforms = self.transforms
            for sample, seed in zip(samples, seeds or repeat(None), strict=False):
                if seed is not None:
                    seed_generators(seed)
                for field, transform in transforms:
                    sample[field] = transform(sample[field])
        return _transposed(samples)


def _transposed(samples: Sequence) -> list:
    return list(zip(*samples, strict=True))


def _check_dataset(dataset: Any) -> None:
    if (
        not isinstance(dataset, AvalancheDataset)
        or type(dataset).__getitem__ is not AvalancheDataset.__getitem__
    ):
        raise NotFlat(
            f"{type(dataset).__name__} is no AvalancheDataset, or reads its samples in a way "
            "of its own."
        )
    if dataset.collate_fn is not default_collate:
        raise NotFlat(
            f"the data set collates with {dataset.collate_fn!r}, not with torch's default_collate."
        )
    if len(dataset) == 0:
        raise NotFlat("the data set is empty: there is no sample to see its form.")


def _make_source(leaf: Any, transforms: Transforms, index: int) -> _TensorSource | _SampleSource:
    sample = leaf[index]
    _check_sample(leaf, sample, transforms)
    batched = (
        hasattr(leaf, "__getitems__")
        and not (transforms and isinstance(leaf, Subset))
        and _reads_batches(leaf, index, len(sample))
    )
    if _in_tensors(leaf):
        columns = [
            _fold(leaf, field, [transform for at, transform in transforms if at == field])
            for field in range(len(leaf.tensors))
        ]
        left = {field for field, column in enumerate(columns) if column is None}
        if len(left) <= 1 and not (left == {1} and _has_number_labels(leaf)):
            tensors = tuple(
                leaf.tensors[field] if column is None else column
                for field, column in enumerate(columns)
            )
            return _TensorSource(
                tensors,
                tuple(transform for transform in transforms if transform[0] in left),
                leaf,
                transforms,
            )
    return _SampleSource(leaf, transforms, batched)


def _in_tensors(leaf: Any) -> bool:
    """Whether the samples of a leaf are the rows of its `tensors`; it may say so itself."""
    if hasattr(leaf, "gives_tensors"):
        return leaf.gives_tensors
    return type(leaf) in (TensorDataset, _TensorClassificationDataset) and all(
        type(column) is Tensor for column in leaf.tensors
    )


def _has_number_labels(leaf: Any) -> bool:
    """Whether a leaf gives the rows of its second tensor as python numbers."""
    return type(leaf) is _TensorClassificationDataset or hasattr(leaf, "gives_tensors")


def _check_sample(leaf: Any, sample: Any, transforms: Transforms) -> None:
    if type(sample) not in (tuple, list) or len(sample) < 2:
        raise NotFlat(f"{type(leaf).__name__} gives a {type(sample).__name__}, not an (x, y, …).")
    if any(field >= len(sample) for field, _ in transforms):
        raise NotFlat(
            f"{type(leaf).__name__} gives {len(sample)} values, fewer than there are transforms."
        )


def _reads_batches(leaf: Any, index: int, width: int) -> bool:
    """`__getitems__` gives a list of samples, not a collated batch or something else."""
    samples = leaf.__getitems__([index, index])
    if not isinstance(samples, list) or len(samples) != 2:
        return False
    return all(type(sample) in (tuple, list) and len(sample) == width for sample in samples)


def _fold(leaf: Any, field: int, transforms: list[Callable]) -> Tensor | None:
    """The column after its transforms, if these are class mappings only; None if they must run
    sample by sample.
    """
    column = leaf.tensors[field]
    as_number = field == 1 and _has_number_labels(leaf)
    if not transforms and not as_number:
        return column
    if (
        column.ndim != 1
        or column.is_floating_point()
        or column.is_complex()
        or column.dtype == torch.bool
    ):
        return None
    column = column.long()
    for transform in transforms:
        mapping = _class_mapping(transform)
        if mapping is None or column.min() < -len(mapping) or column.max() >= len(mapping):
            return None
        column = torch.tensor(mapping, device=column.device)[column]
    return column


def _class_mapping(transform: Callable) -> list[int] | None:
    """Avalanche's `partial(lookup, mapping)`: new class id = mapping[class id]."""
    if (
        not isinstance(transform, partial)
        or transform.func is not lookup
        or transform.keywords
        or len(transform.args) != 1
    ):
        return None
    mapping = transform.args[0]
    if not isinstance(mapping, list | tuple) or not all(type(value) is int for value in mapping):
        return None
    return list(mapping)


def _columns_agree(sources: list) -> bool:
    """All sources are tensors without transforms, alike in form: a batch can be filled source by
    source.
    """
    forms = {
        tuple((column.dtype, column.device, column.shape[1:]) for column in source.columns)
        for source in sources
    }
    return len(forms) == 1 and forms != {()} and not any(source.transforms for source in sources)


def _attribute(attribute: Any) -> Tensor | list:
    """A data attribute's values by position: int64 if all are ints, else as they are, for
    `default_collate`.
    """
    if isinstance(attribute.data, ConstantSequence) and type(attribute.data[0]) is int:
        return torch.full((len(attribute),), attribute.data[0])
    values: list = [None] * len(attribute)
    for where, leaf, index, _ in walk(
        attribute, np.arange(len(values)), np.arange(len(values)), None, ()
    ):
        for position, i in zip(where.tolist(), index.tolist(), strict=True):
            values[position] = leaf[i]
    return torch.tensor(values) if all(type(value) is int for value in values) else values
