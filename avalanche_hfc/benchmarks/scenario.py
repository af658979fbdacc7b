"""A benchmark of class-incremental steps: how classes are dealt out over them, and the Avalanche
benchmark made by it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import index
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks import CLScenario, EagerCLStream, with_classes_timeline
from avalanche.benchmarks.scenarios.dataset_scenario import DatasetExperience
from avalanche.benchmarks.scenarios.task_aware import with_task_labels
from avalanche.benchmarks.utils import (
    AvalancheDataset,
    ConstantSequence,
    DataAttribute,
    TaskAwareSupervisedClassificationDataset,
    TaskLabels,
    TransformGroups,
)
from numpy.random import RandomState

from avalanche_hfc._names import lookup, shortened
from avalanche_hfc.benchmarks.files import fingerprint
from avalanche_hfc.benchmarks.orders import class_order as order_by_name
from avalanche_hfc.benchmarks.sources import FileImages, Source, TensorImages, listing_digest
from avalanche_hfc.benchmarks.transforms import (
    ON_TENSORS,
    PADDED_CROP_LIMIT,
    TRANSFORMS,
    Transform,
    build_transforms,
)

ClassOrder = str | Sequence | np.ndarray | None  # a sequence of ids or of names
OFFICIAL_IMAGE_SIZE = 224  # the released code enlarges every image to it, CIFAR's too


class SplitExperience(DatasetExperience):
    """An experience that knows its benchmark and whose data can be replaced.

    Avalanche's ICaRL reads `benchmark`, and its BiC writes `dataset`.
    """

    @property
    def dataset(self) -> AvalancheDataset:
        """The images of the experience."""
        return self._dataset

    @dataset.setter
    def dataset(self, dataset: AvalancheDataset) -> None:
        self._dataset = dataset

    @property
    def benchmark(self) -> "SplitBenchmark":
        """The benchmark that the experience is part of."""
        return self.origin_stream.benchmark


class SplitStream(EagerCLStream):
    """A stream that returns copies of its experiences: what a strategy writes there does not stay.

    Experiences are indexed and sliced as in a list.
    """

    def _make_experience(self, experience_idx: int) -> SplitExperience:
        return copy(self._exps[experience_idx])


class SplitBenchmark(CLScenario):
    """A data set split by class into steps: a `CLScenario` with a train and a test stream.

    `train_stream` and `test_stream` have an experience for each step, with a class timeline and the
    task label 0; batches are (x, y, task label). `classes_order`, `n_classes`, `n_classes_per_exp`
    and `n_experiences` are as in Avalanche's `nc_benchmark`. `class_names` has the name of each
    class id. `records` identifies the files of your data and `left_out` names those that are not
    readable images. The `split_*` functions build benchmarks.

    Args:
        source: The images, as read.
        order: All class ids in order of arrival.
        per_step: Number of classes of each step.
        image_shape: Channels, height and width of an image after the transforms.
        train_transform: Transform of the ``"train"`` group; None for none.
        eval_transform: Transform of the ``"eval"`` group; None for none.
        remarks: Lines for whoever starts a run.

    Example:
        >>> from avalanche_hfc.benchmarks import split_digits
        >>> benchmark = split_digits(num_steps=5, class_order=range(10))
        >>> benchmark.n_classes_per_exp, benchmark.image_shape
        ([2, 2, 2, 2, 2], (1, 8, 8))
    """

    train_stream: SplitStream
    test_stream: SplitStream

    def __init__(
        self,
        source: Source,
        order: Sequence[int],
        per_step: Sequence[int],
        *,
        image_shape: tuple[int, int, int],
        train_transform: Transform | None,
        eval_transform: Transform | None,
        remarks: tuple[str, ...],
    ):
        transforms = TransformGroups(
            {"train": (train_transform, None), "eval": (eval_transform, None)}
        )
        steps = [order[start:end] for start, end in pairwise(accumulate(per_step, initial=0))]
        streams = [
            EagerCLStream(name, experiences(images, steps, transforms, group))
            for name, images, group in (
                ("train", source.train, "train"),
                ("test", source.test, "eval"),
            )
        ]
        labelled = with_task_labels(with_classes_timeline(CLScenario(streams)))
        super().__init__(
            [SplitStream(name, stream.exps, self) for name, stream in labelled.streams.items()]
        )
        self.classes_order, self.n_classes = list(order), len(order)
        self.n_classes_per_exp, self.n_experiences = list(per_step), len(per_step)
        self.class_names, self.image_shape = source.class_names, image_shape
        self.records, self.left_out, self.remarks = source.records, source.left_out, remarks
        self._parts = (source.train, source.test)

    def fingerprint(self) -> str:
        """What identifies the data.

        It is the content of your files; of other data it is the class ids and, of images in files,
        their paths and sizes, so that no image is read.

        Returns:
            A SHA-256.

        Example:
            >>> from avalanche_hfc.benchmarks import split_digits
            >>> one, other = (split_digits(num_steps=5).fingerprint() for _ in range(2))
            >>> one == other
            True
        """
        return fingerprint(self.records) if self.records else listing_digest(self._parts)


def experiences(
    images: TensorImages | FileImages,
    steps: Sequence[Sequence[int]],
    transforms: TransformGroups,
    group: str,
) -> list[SplitExperience]:
    """An experience for each list of class ids, under the transforms of a group.

    Images of a step come class by class in the order of a Python set, as in Avalanche's
    `nc_benchmark`: stored exemplars are positions in that order.
    """
    targets = DataAttribute(images.targets, "targets")
    data: TaskAwareSupervisedClassificationDataset = TaskAwareSupervisedClassificationDataset(
        [images],
        data_attributes=[targets, TaskLabels(ConstantSequence(0, len(images)))],
        transform_groups=transforms,
    ).with_transforms(group)  # the constructor starts with "train" whatever the groups say
    return [
        SplitExperience(
            dataset=data.subset(
                [index for class_id in set(step) for index in targets.val_to_idx[class_id]]
            )
        )
        for step in steps
    ]


@dataclass(frozen=True)
class Plan:
    """The arguments that all splits share. What can be refused without the data is refused here,
    before it is read.
    """

    num_steps: int
    base_fraction: int | float
    class_order: ClassOrder
    transforms: str
    image_size: int | None
    seed: int
    num_classes: int | None = None  # where it is known before the data is read
    paper_order: str | None = None  # the name behind class_order="paper"
    uneven: bool = False  # steps may differ by one class

    def __post_init__(self) -> None:
        if not isinstance(self.num_steps, int) or self.num_steps < 1:
            raise ValueError(
                f"num_steps must be a whole number of at least 1, got {self.num_steps!r}."
            )
        if self.base_fraction not in (0, 0.5):
            raise ValueError(
                "base_fraction must be 0 (equal steps) or 0.5 (half of the classes first), "
                f"got {self.base_fraction}."
            )
        if self.image_size is not None and self.image_size < 1:
            raise ValueError(f"image_size must be at least 1 pixel or None, got {self.image_size}.")
        lookup(TRANSFORMS, self.transforms, "transforms")
        if isinstance(self.class_order, str):
            self.named_order(self.class_order)
        if self.num_classes is not None:
            self.order(self.num_classes)
            self.classes_per_step(self.num_classes)

    def named_order(self, name: str) -> tuple[int, ...]:
        if name != "paper":
            return order_by_name(name)
        if self.paper_order is None:
            raise ValueError(
                "class_order 'paper' exists for CIFAR-100 and ImageNet only. Pass None, a "
                "name or all class ids."
            )
        return order_by_name(self.paper_order)

    def order(self, num_classes: int) -> list[int]:
        """The class ids in order of arrival: every id below `num_classes` once."""
        if self.class_order is None:  # a generator that is not the global one
            return RandomState(self.seed).permutation(num_classes).tolist()
        ids: Any = self.class_order
        if isinstance(ids, str):
            ids = self.named_order(ids)
        try:
            order = [index(class_id) for class_id in ids]
        except TypeError:
            raise ValueError(
                "class_order must be None, a name or a sequence of whole class ids, got "
                f"{self.class_order!r}."
            ) from None
        faults = _faults(order, range(num_classes))
        if faults:
            name = repr(self.class_order) if isinstance(self.class_order, str) else "given"
            raise ValueError(
                f"class_order ({name}) must hold each class id from 0 to {num_classes - 1} "
                f"once. {faults}."
            )
        return order

    def with_ids(self, class_names: Sequence[str]) -> "Plan":
        """The plan with class ids where `class_order` is a sequence of names."""
        names = self.class_order
        if not isinstance(names, Sequence) or isinstance(names, str) or not names:
            return self
        if not all(isinstance(name, str) for name in names):
            return self
        faults = _faults(names, class_names)
        if faults:
            raise ValueError(
                f"class_order must name each of the {len(class_names)} classes once. {faults}."
            )
        ids = {name: class_id for class_id, name in enumerate(class_names)}
        return replace(self, class_order=[ids[name] for name in names])

    def classes_per_step(self, num_classes: int) -> list[int]:
        """Number of classes of every step; the base step first. Larger steps come first where they
        are `uneven`.
        """
        base = (num_classes + 1) // 2 if self.base_fraction else 0
        spread = num_classes - base
        if self.base_fraction and num_classes % 2 and not self.uneven:
            raise ValueError(
                f"base_fraction=0.5 needs an even number of classes, the data has {num_classes}."
            )
        allowed = [n for n in range(1, spread + 1) if self.uneven or spread % n == 0]
        if self.num_steps not in allowed:
            after = f" after a base step of {base}" if base else ""
            raise ValueError(
                f"{spread} classes{after} cannot be split over {self.num_steps} steps. Allowed "
                f"num_steps: {shortened(allowed, 20)}."
            )
        size, larger = divmod(spread, self.num_steps)
        steps = [size + (step < larger) for step in range(self.num_steps)]
        return [base, *steps] if base else steps

    def remarks(self, num_classes: int) -> tuple[str, ...]:
        """One line where the classes could not be split evenly."""
        sizes = self.classes_per_step(num_classes)
        even = len(set(sizes[-self.num_steps :])) == 1
        if even and not (self.base_fraction and num_classes % 2):
            return ()
        listed = ", ".join(map(str, sizes))
        return (f"{num_classes} classes cannot be split evenly: the steps bring {listed}.",)


def _faults(entries: Iterable[Hashable], allowed: Sequence[Hashable]) -> str:
    """Which of the allowed entries are missing or repeated, and what else there is."""
    count: Counter[Hashable] = Counter(entries)
    known = set(allowed)
    faults = {
        "missing": [entry for entry in allowed if entry not in count],
        "repeated": [entry for entry, times in count.items() if times > 1],
        "unknown": [entry for entry in count if entry not in known],
    }
    return "; ".join(f"{fault}: {shortened(found)}" for fault, found in faults.items() if found)


def steps_asked(num_steps: Any, n_experiences: Any, base_fraction: float) -> int:
    """`num_steps`, or what `n_experiences` means, in which a base step is counted."""
    if (num_steps is None) == (n_experiences is None):
        raise ValueError(
            f"Pass either num_steps or n_experiences, got {num_steps} and {n_experiences}."
        )
    if n_experiences is None:
        return num_steps
    return n_experiences - bool(base_fraction)


def make_benchmark(source: Source, plan: Plan) -> SplitBenchmark:
    """The benchmark of `source` by `plan`, with the original class ids and no global generator
    touched.
    """
    num_classes = len(source.class_names)
    plan = plan.with_ids(source.class_names)
    order, per_step = plan.order(num_classes), plan.classes_per_step(num_classes)
    image_size = plan.image_size or (
        OFFICIAL_IMAGE_SIZE if plan.transforms == "official" else source.image_size
    )
    if image_size is None:
        raise ValueError(
            "The images are not square, (width, height) "
            f"{shortened(sorted(source.train.sizes))}. Name an image_size."
        )
    if plan.transforms not in ON_TENSORS:
        for part in (source.train, source.test):
            fit_to_augmentation(part, plan.transforms, image_size)
    train_transform, eval_transform = build_transforms(
        plan.transforms, image_size, statistics=source.statistics
    )
    return SplitBenchmark(
        source,
        order,
        per_step,
        image_shape=(source.num_channels, image_size, image_size),
        train_transform=train_transform,
        eval_transform=eval_transform,
        remarks=(*source.remarks, *plan.remarks(num_classes)),
    )


def fit_to_augmentation(
    images: TensorImages | FileImages, transforms: str, image_size: int
) -> None:
    """Hand out PIL images, of the size that the padded crop needs."""
    if isinstance(images, TensorImages):
        if images.images.dtype != torch.uint8:
            raise ValueError(
                f"transforms {transforms!r} need uint8 images, these are float. Use "
                "transforms='plain' or convert them."
            )
        images.as_pil = True
    if image_size <= PADDED_CROP_LIMIT and images.sizes != {(image_size, image_size)}:
        raise ValueError(
            f"transforms {transforms!r} do not resize up to {PADDED_CROP_LIMIT} px: image_size "
            f"is {image_size}, "
            f"the images are (width, height) {shortened(sorted(images.sizes))}. Use "
            "transforms='plain' or a larger image_size."
        )
