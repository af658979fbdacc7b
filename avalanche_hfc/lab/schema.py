"""What a run is: frozen dataclasses of plain values, each value with the place it comes from."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import get_args, get_type_hints

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Json, Record
from avalanche_hfc.lab.options import HARDWARE, Option, Value, check
from avalanche_hfc.lab.signatures import (
    accepts,
    method_options,
    model_options,
    total_only,
    without_memory,
)

SCALES = {
    "paper": "the paper's data and models; a GPU",
    "small": "20 classes of CIFAR-100, a small pre-trained ViT; minutes on one core",
    "medium": "100 classes of CIFAR-100, the same ViT; half an hour on one core",
    "demo": "digits, tiny networks; seconds",
}
"""What each scale of recipes trains on, and how long a run takes."""
CHOICES = {
    "data.dataset": ("cifar100", "imagenet100", "imagenet1000", "digits", "npz", "folder"),
    "data.transforms": ("dytox", "official", "plain", "flip-crop"),
    "train.optimizer": ("adamw", "sgd"),
    "train.schedule": ("constant", "cosine", "drops"),
    "train.precision": ("float32", "bfloat16", "float16"),
}


def positive(section: str, **numbers: float | int | None) -> None:
    """Refuse numbers that are not above 0 and finite; None passes."""
    for name, value in numbers.items():
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{section}.{name} must be a number above 0, got {value!r}.")


@dataclass(frozen=True)
class DataRecipe:
    """The data of a run and its split into steps.

    Attributes:
        dataset: Name of the data set, such as ``"cifar100"``, or ``"folder"`` or ``"npz"`` for your
            images.
        num_steps: Number of steps, the base step not counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes.
        class_order: ``"paper"``, a key of `CLASS_ORDERS`, the names of all classes, or None for a
            random order drawn by the seed of the run.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels.
        train_per_class: Number of training images of each class, the first ones in the order of the
            data; None for all.
        test_per_class: The same for test images.
        num_classes: Take the first classes of the order; None for all. Where the seed draws the
            order, those of the paper's order, or of the data where it has none.
        hold_out: Number of training images of each class, the last ones, that become the test
            images; the test images of the data are then not used. None for the data's own test
            images.

    Raises:
        ValueError: If a value is not allowed.
    """

    dataset: str
    num_steps: int
    base_fraction: float | int
    class_order: str | tuple | None
    transforms: str
    image_size: int
    train_per_class: int | None
    test_per_class: int | None
    num_classes: int | None
    hold_out: int | None

    def __post_init__(self) -> None:
        positive(
            "data",
            num_steps=self.num_steps,
            image_size=self.image_size,
            train_per_class=self.train_per_class,
            test_per_class=self.test_per_class,
            num_classes=self.num_classes,
            hold_out=self.hold_out,
        )
        if self.hold_out is not None and self.test_per_class is not None:
            raise ValueError(
                f"data.hold_out ({self.hold_out}) takes the place of the test images: "
                f"data.test_per_class must be none, got {self.test_per_class}."
            )
        if self.hold_out is not None and self.hold_out >= (self.train_per_class or math.inf):
            raise ValueError(
                f"data.hold_out must be below data.train_per_class ({self.train_per_class}), got "
                f"{self.hold_out}."
            )
        if self.base_fraction not in (0, 0.5):
            raise ValueError(f"data.base_fraction must be 0 or 0.5, got {self.base_fraction!r}.")

    @property
    def total_steps(self) -> int:
        """Number of steps of the run, the base step included."""
        return self.num_steps + (self.base_fraction > 0)


@dataclass(frozen=True)
class TrainRecipe:
    """Optimizer, learning rates, batches and epochs of a run; the same in every step.

    Attributes:
        optimizer: ``"adamw"`` or ``"sgd"``.
        lr: Learning rate at the start of a step.
        head_lr_factor: Factor of the learning rate of head and TSA (or task-attention) block.
        momentum: Momentum of SGD; None with AdamW.
        weight_decay: Weight decay.
        decay_by_step: Multiply the weight decay of step t, from 1, by (number of steps)/t.
        decay_all: Apply weight decay to norms and biases as well.
        batch_size: Batch size of training.
        eval_batch_size: Batch size of evaluation.
        epochs: Number of epochs of each step.
        first_epochs: Number of epochs of the first step; None for `epochs`.
        schedule: ``"constant"``; ``"cosine"`` over the epochs of the step, down to `lowest_lr`; or
            ``"drops"``, by `drop_factor` at each of `drops_at`.
        lowest_lr: Learning rate at the end of the cosine; None with other schedules.
        drops_at: Fractions of the epochs at which the learning rate drops.
        drop_factor: Factor of a drop; None with other schedules.
        warm_up_epochs: Number of epochs e = 0, 1, … of warm-up at the start of each step, with the
            learning rate lr·(e+1)/(warm_up_epochs+1).
        warm_up_lr: Learning rate of epoch 0, from which the warm-up rises linearly instead; None
            for the rule above.
        schedule_delay: Epoch e has the learning rate of epoch e - schedule_delay, but at least of
            epoch 0. 1 reproduces loops that set the rate after an epoch.
        checkpoint_activations: Compute the activations of the model's blocks again in the backward
            pass instead of keeping them.
        precision: ``"float32"``, or ``"bfloat16"`` or ``"float16"`` for forward passes of the
            training under torch's autocast.
        compile: Compile the blocks of the network with torch.compile.
        tf32: Multiply float32 numbers as TF32 in training; needs a GPU.
        channels_last: Keep weights and images of a convolutional network with the channels last.

    Raises:
        ValueError: If a value is not allowed or has no effect with the others.
    """

    optimizer: str
    lr: float | int
    head_lr_factor: float | int
    momentum: float | int | None
    weight_decay: float | int
    decay_by_step: bool
    decay_all: bool
    batch_size: int
    eval_batch_size: int
    epochs: int
    first_epochs: int | None
    schedule: str
    lowest_lr: float | int | None
    drops_at: tuple
    drop_factor: float | int | None
    warm_up_epochs: int
    warm_up_lr: float | int | None
    schedule_delay: int
    checkpoint_activations: bool
    precision: str
    compile: bool
    tf32: bool
    channels_last: bool

    def __post_init__(self) -> None:
        positive(
            "train",
            lr=self.lr,
            head_lr_factor=self.head_lr_factor,
            batch_size=self.batch_size,
            eval_batch_size=self.eval_batch_size,
            epochs=self.epochs,
            first_epochs=self.first_epochs,
            drop_factor=self.drop_factor,
        )
        if self.weight_decay < 0 or self.warm_up_epochs < 0:
            raise ValueError(
                f"train: weight_decay {self.weight_decay} and warm_up_epochs "
                f"{self.warm_up_epochs} must be 0 or more."
            )
        if any(not 0 < fraction < 1 for fraction in self.drops_at) or list(self.drops_at) != sorted(
            self.drops_at
        ):
            raise ValueError(
                "train.drops_at must be rising fractions of the epochs between 0 and 1, got "
                f"{self.drops_at}."
            )
        self._only_with("momentum", "optimizer", "sgd", self.momentum is not None)
        self._only_with("lowest_lr", "schedule", "cosine", self.lowest_lr is not None)
        self._only_with("drops_at", "schedule", "drops", bool(self.drops_at))
        self._only_with("drop_factor", "schedule", "drops", self.drop_factor is not None)
        if self.warm_up_lr is not None and not self.warm_up_epochs:
            raise ValueError("train.warm_up_lr acts only with warm_up_epochs of 1 or more.")
        if self.schedule_delay < 0:
            raise ValueError(f"train.schedule_delay must be 0 or more, got {self.schedule_delay}.")
        if self.schedule_delay and self.schedule == "constant" and not self.warm_up_epochs:
            raise ValueError(
                f"train.schedule_delay is {self.schedule_delay}, but a constant rate without "
                "warm-up has nothing to delay."
            )

    def _only_with(self, name: str, other: str, needed: str, given: bool) -> None:
        if given != (getattr(self, other) == needed):
            verb = "acts only" if given else "must be given"
            raise ValueError(
                f"train.{name} {verb} with {other}={needed}; {name} is "
                f"{getattr(self, name)}, {other} {getattr(self, other)}."
            )


@dataclass(frozen=True)
class MemoryRecipe:
    """The exemplar memory of a run; both values are None for a method without a memory.

    Attributes:
        mem_size: Number of exemplars of all classes together.
        per_class: Number of exemplars of each class.

    Raises:
        ValueError: If both are given, or one is not above 0.
    """

    mem_size: int | None
    per_class: int | None

    def __post_init__(self) -> None:
        positive("memory", mem_size=self.mem_size, per_class=self.per_class)
        if self.mem_size is not None and self.per_class is not None:
            raise ValueError(
                f"memory: give mem_size or per_class, not both; got {self.mem_size} and "
                f"{self.per_class}."
            )


Options = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class ModelRecipe:
    """The model of a run.

    Attributes:
        kind: One of `MODELS`.
        options: All options of the model, as pairs of name and value.
    """

    kind: str
    options: Options


@dataclass(frozen=True)
class MethodRecipe:
    """The method of a run.

    Attributes:
        name: A key of `STRATEGIES`, or ``"module:Class"`` for your method.
        options: All options of the method, as pairs of name and value.
    """

    name: str
    options: Options


PARTS: dict[str, type] = {
    "data": DataRecipe,
    "model": ModelRecipe,
    "train": TrainRecipe,
    "memory": MemoryRecipe,
    "method": MethodRecipe,
}
CHOSEN = {"model": "kind", "method": "name"}  # what their options depend on


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a run, apart from its seed.

    A leaf is a single value, named by its dotted path, such as ``train.lr``.

    Attributes:
        name: Name of the recipe.
        scale: One of `SCALES`.
        data: Data and split.
        model: Model.
        train: Training.
        memory: Exemplar memory.
        method: Method.
        sources: Where the value of each leaf comes from.
        overrides: The leaves that the user has changed, with their values.
        paths: Where your data is, and which folders `hfc learn` has added.
        base: Name of the recipe before the user changed it, if that is another.

    Raises:
        ValueError: If a value is not allowed, or memory and method do not fit.

    Example:
        >>> from avalanche_hfc.lab import recipe
        >>> recipe("digits-b0-t5-hfc@demo").leaves()["train.optimizer"]
        'adamw'
    """

    name: str
    scale: str
    data: DataRecipe
    model: ModelRecipe
    train: TrainRecipe
    memory: MemoryRecipe
    method: MethodRecipe
    sources: Mapping[str, str]
    overrides: Mapping[str, Value] = field(default_factory=dict)
    paths: Mapping[str, Value] = field(default_factory=dict)
    base: str | None = None

    def __post_init__(self) -> None:
        lookup(SCALES, self.scale, "scale")
        options = leaf_options(self.model.kind, self.method.name)
        for leaf, value in self.leaves().items():
            check(leaf, options[leaf], value)
        method, memory = self.method.name, self.memory
        if without_memory(method) != (memory.mem_size is None and memory.per_class is None):
            allowed = "keeps no memory" if without_memory(method) else "needs mem_size or per_class"
            raise ValueError(f"{method} {allowed}; got {memory}.")
        if total_only(method) and memory.per_class is not None:
            raise ValueError(
                f"{method} takes mem_size, not per_class; got per_class={memory.per_class}."
            )
        for leaf, usual in HARDWARE.items():
            name = leaf.removeprefix("train.")
            value = getattr(self.train, name)
            if value != usual and not accepts(method, name):
                raise ValueError(
                    f"{method} has no {name}: {leaf} must be {str(usual).lower()}, got {value}."
                )

    def leaves(self) -> dict[str, Value]:
        """All values of the recipe.

        Returns:
            The value of each leaf by its dotted path.
        """
        leaves: dict[str, Value] = {}
        for section in PARTS:
            values = vars(getattr(self, section)).copy()
            values |= dict(values.pop("options", ()))
            leaves |= {f"{section}.{name}": value for name, value in values.items()}
        return leaves

    def option(self, leaf: str) -> Option:
        """The types and choices that a leaf allows.

        Args:
            leaf: Dotted path of the leaf.

        Returns:
            The option that describes the leaf.

        Raises:
            KeyError: If the recipe has no such leaf.
        """
        return leaf_options(self.model.kind, self.method.name)[leaf]

    @classmethod
    def of(
        cls,
        name: str,
        scale: str,
        leaves: Mapping[str, Value],
        sources: Mapping[str, str],
        overrides: Mapping[str, Value] | None = None,
    ) -> "Recipe":
        """Build a recipe from its leaves.

        Args:
            name: Name of the recipe.
            scale: One of `SCALES`.
            leaves: The value of each leaf by its dotted path.
            sources: Where the value of each leaf comes from.
            overrides: The leaves that the user has changed. By default none.

        Returns:
            The recipe.

        Raises:
            ValueError: If a value is not allowed.
        """
        chosen = (leaves.get(f"{section}.{key}") for section, key in CHOSEN.items())
        expected = set(leaf_options(*chosen))
        missing = sorted(expected - set(leaves))
        if missing:
            raise ValueError(
                f"The recipe {name} lacks {', '.join(missing)}: it was written by another "
                "version of this package. Run it again to use it here."
            )
        parts = by_part(leaves)
        for section, key in CHOSEN.items():
            kind = parts[section].pop(key)
            parts[section] = {key: kind, "options": tuple(parts[section].items())}
        made = {section: PARTS[section](**values) for section, values in parts.items()}
        return cls(
            name=name, scale=scale, sources=dict(sources), overrides=dict(overrides or {}), **made
        )

    def as_dict(self) -> Json:
        """The recipe as plain data that JSON can hold.

        Returns:
            A dict that `from_dict` reads.
        """
        recipe = {"name": self.name, "scale": self.scale, **by_part(self.leaves())}
        recipe |= {"sources": dict(self.sources), "overrides": dict(self.overrides)}
        if self.paths:
            recipe["own"] = dict(self.paths)
        if self.base is not None:
            recipe["base"] = self.base
        return json.loads(json.dumps(recipe))

    @classmethod
    def from_dict(cls, held: Record) -> "Recipe":
        """Build a recipe from plain data.

        Args:
            held: A return value of `as_dict`. Options that are constants today are left out.

        Returns:
            The recipe.

        Raises:
            ValueError: If values are missing or not allowed.
        """
        missing = [key for key in ("name", "scale", *PARTS, "sources") if key not in held]
        if missing:
            raise ValueError(f"Not a recipe: it lacks {', '.join(missing)}.")
        leaves = {
            f"{section}.{name}": plain(value)
            for section in PARTS
            for name, value in held[section].items()
        }
        known = leaf_options(*(leaves.get(f"{section}.{key}") for section, key in CHOSEN.items()))
        leaves = {leaf: value for leaf, value in leaves.items() if leaf in known}
        overrides, paths = (
            {leaf: plain(value) for leaf, value in held.get(key, {}).items()}
            for key in ("overrides", "own")
        )
        return replace(
            cls.of(held["name"], held["scale"], leaves, held["sources"], overrides),
            paths=paths,
            base=held.get("base"),
        )


def by_part(leaves: Mapping[str, Value]) -> dict[str, Json]:
    parts: dict[str, Json] = {section: {} for section in PARTS}
    for leaf, value in leaves.items():
        section, name = leaf.split(".", 1)
        parts[section][name] = value
    return parts


def plain(value: Value | list) -> Value:
    return tuple(value) if isinstance(value, list) else value


@cache
def fixed_options() -> dict[str, Option]:
    """What the leaves may be that every recipe has."""
    options = {}
    for section, cls in PARTS.items():
        for name, annotation in get_type_hints(cls).items():
            if name != "options":
                types = get_args(annotation) or (annotation,)
                if float in types:
                    types = tuple(one for one in types if one is not int)  # 0 for 0.0
                leaf = f"{section}.{name}"
                options[leaf] = Option(None, types, CHOICES.get(leaf, ()))
    return options


def leaf_options(model: Value, method: Value) -> dict[str, Option]:
    """What every leaf of a recipe with this model and this method may be; None for either: without
    its options.
    """
    options = dict(fixed_options())
    for section, chosen, read in (
        ("model", model, model_options),
        ("method", method, method_options),
    ):
        if chosen is not None:
            options |= {f"{section}.{name}": option for name, option in read(str(chosen)).items()}
    return options
