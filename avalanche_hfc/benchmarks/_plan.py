"""How classes are dealt out over steps: checks of a split, and the benchmark made by it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index

import numpy as np
import torch
from numpy.random import RandomState

from avalanche_hfc._names import lookup, shortened
from avalanche_hfc.benchmarks._images import FileImages, Source, TensorImages
from avalanche_hfc.benchmarks._scenario import SplitBenchmark
from avalanche_hfc.benchmarks.orders import class_order as order_by_name
from avalanche_hfc.benchmarks.transforms import (
    ON_TENSORS,
    PADDED_CROP_LIMIT,
    TRANSFORMS,
    build_transforms,
)

ClassOrder = str | Sequence | np.ndarray | None  # a sequence of ids or of names
OFFICIAL_IMAGE_SIZE = 224  # the released code enlarges every image to it, CIFAR's too


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
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be between 0 and 2**32 - 1, got {self.seed}.")
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
        if self.class_order is None:
            return (
                RandomState(self.seed).permutation(num_classes).tolist()
            )  # its own generator: no global one is touched
        given: Sequence | np.ndarray = (
            self.named_order(self.class_order)
            if isinstance(self.class_order, str)
            else self.class_order
        )
        try:
            order = [index(class_id) for class_id in given]
        except TypeError:
            raise ValueError(
                "class_order must be None, a name or a sequence of whole class ids, got "
                f"{self.class_order!r}."
            ) from None
        count = Counter(order)
        faults = {
            "missing": [class_id for class_id in range(num_classes) if class_id not in count],
            "repeated": [class_id for class_id, times in count.items() if times > 1],
            "unknown": [class_id for class_id in count if not 0 <= class_id < num_classes],
        }
        found = "; ".join(f"{fault}: {shortened(ids)}" for fault, ids in faults.items() if ids)
        if found:
            name = repr(self.class_order) if isinstance(self.class_order, str) else "given"
            raise ValueError(
                f"class_order ({name}) must hold each class id from 0 to {num_classes - 1} "
                f"once. {found}."
            )
        return order

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
        size, larger = divmod(spread, self.num_steps)
        after = f" after a base step of {base}" if base else ""
        if larger and not self.uneven:
            allowed = ", ".join(str(steps) for steps in range(1, spread + 1) if spread % steps == 0)
            raise ValueError(
                f"{spread} classes{after} cannot be split evenly over {self.num_steps} "
                f"steps. Allowed num_steps: {allowed}."
            )
        if not size:
            raise ValueError(
                f"{spread} classes{after} are too few for {self.num_steps} steps. Allowed "
                f"num_steps: 1 to {spread}."
            )
        steps = [size + (step < larger) for step in range(self.num_steps)]
        return [base] * bool(base) + steps

    def with_ids(self, class_names: Sequence[str]) -> "Plan":
        """The plan with class ids where `class_order` holds names of classes."""
        given = self.class_order
        if given is None or isinstance(given, (str, np.ndarray)) or not len(given):
            return self
        if not all(isinstance(name, str) for name in given):
            return self
        ids = {name: class_id for class_id, name in enumerate(class_names)}
        count = Counter(given)
        faults: dict[str, list[str]] = {
            "missing": [name for name in class_names if name not in count],
            "repeated": [name for name, times in count.items() if times > 1],
            "unknown": [name for name in count if name not in ids],
        }
        found = "; ".join(
            f"{fault}: {shortened(names)}" for fault, names in faults.items() if names
        )
        if found:
            raise ValueError(f"class_order must name each of the {len(ids)} classes once. {found}.")
        return replace(self, class_order=[ids[str(name)] for name in given])

    def remarks(self, num_classes: int) -> tuple[str, ...]:
        """One line where the classes could not be split evenly."""
        base = (num_classes + 1) // 2 if self.base_fraction else 0
        if (num_classes - base) % self.num_steps == 0 and not (base and num_classes % 2):
            return ()
        sizes = ", ".join(map(str, self.classes_per_step(num_classes)))
        return (f"{num_classes} classes cannot be split evenly: the steps bring {sizes}.",)


def steps_asked(
    num_steps: int | None, n_experiences: int | None, base_fraction: int | float
) -> int:
    """`num_steps`, or what `n_experiences` means, in which a base step is counted."""
    if num_steps is not None and n_experiences is not None:
        raise ValueError(
            f"num_steps={num_steps} and n_experiences={n_experiences} are both given: pass one."
        )
    if num_steps is not None:
        return num_steps
    least = 2 if base_fraction else 1
    if not isinstance(n_experiences, int) or n_experiences < least:
        raise ValueError(
            "num_steps is not specified."
            if n_experiences is None
            else f"n_experiences must be a whole number of at least {least}, got {n_experiences!r}."
        )
    return n_experiences - least + 1


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
