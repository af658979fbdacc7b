"""What a run is: frozen dataclasses of plain values, each value with the place it comes from.

`Recipe` is a training run, `PretrainRecipe` a pre-training. No torch until a recipe is made, which
reads the options of its method and model from their classes.
"""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Json, Record
from avalanche_hfc.lab.names import SCALES
from avalanche_hfc.lab.options import (
    HARDWARE,
    Option,
    Value,
    allowed_by,
    check,
    method_class,
    method_options,
    model_options,
    parameters,
    total_only,
    without_memory,
)


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
    """

    dataset: Literal["cifar100", "imagenet100", "imagenet1000", "digits", "npz", "folder"]
    num_steps: int
    base_fraction: float | int
    class_order: str | tuple | None
    transforms: Literal["dytox", "official", "plain", "flip-crop"]
    image_size: int
    train_per_class: int | None
    test_per_class: int | None
    num_classes: int | None
    hold_out: int | None

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
        compile: Compile the forward pass of the model and the losses with torch.compile.
        tf32: Multiply float32 numbers as TF32 in training; needs a GPU.
        channels_last: Keep weights and images of a convolutional network with the channels last.
    """

    optimizer: Literal["adamw", "sgd"]
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
    schedule: Literal["constant", "cosine", "drops"]
    lowest_lr: float | int | None
    drops_at: tuple
    drop_factor: float | int | None
    warm_up_epochs: int
    warm_up_lr: float | int | None
    schedule_delay: int
    checkpoint_activations: bool
    precision: Literal["float32", "bfloat16", "float16"]
    compile: bool
    tf32: bool
    channels_last: bool


@dataclass(frozen=True)
class MemoryRecipe:
    """The exemplar memory of a run; both values are None for a method without a memory.

    Attributes:
        mem_size: Number of exemplars of all classes together.
        per_class: Number of exemplars of each class.
    """

    mem_size: int | None
    per_class: int | None


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


SECTIONS: dict[str, type] = {
    "data": DataRecipe,
    "model": ModelRecipe,
    "train": TrainRecipe,
    "memory": MemoryRecipe,
    "method": MethodRecipe,
}
MAY_BE_ZERO = (
    "base_fraction",
    "momentum",
    "weight_decay",
    "lowest_lr",
    "warm_up_epochs",
    "warm_up_lr",
    "schedule_delay",
)  # of the numbers of every recipe; the others must be above 0
NEEDED_WITH = (
    ("momentum", "optimizer", "sgd"),
    ("lowest_lr", "schedule", "cosine"),
    ("drops_at", "schedule", "drops"),
    ("drop_factor", "schedule", "drops"),
)  # needed with this value of another one, and without effect otherwise


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
        for section in ("data", "train", "memory"):
            check_numbers(section, vars(getattr(self, section)))
        check_data(self.data)
        check_train(self.train)
        check_memory(self.method.name, self.memory)
        for leaf, usual in HARDWARE.items():
            name = leaf.removeprefix("train.")
            value = getattr(self.train, name)
            if value != usual and name not in parameters(method_class(self.method.name)):
                raise ValueError(
                    f"{self.method.name} has no option {name}: {leaf} must be "
                    f"{str(usual).lower()}, got {value}."
                )

    def leaves(self) -> dict[str, Value]:
        """All values of the recipe.

        Returns:
            The value of each leaf by its dotted path.
        """
        leaves: dict[str, Value] = {}
        for section in SECTIONS:
            values = vars(getattr(self, section)).copy()
            values |= dict(values.pop("options", ()))
            leaves |= {f"{section}.{name}": value for name, value in values.items()}
        return leaves

    @classmethod
    def of(
        cls,
        name: str,
        scale: str,
        leaves: Mapping[str, Value],
        sources: Mapping[str, str],
        **about: Any,
    ) -> "Recipe":
        """Build a recipe from its leaves.

        Args:
            name: Name of the recipe.
            scale: One of `SCALES`.
            leaves: The value of each leaf by its dotted path.
            sources: Where the value of each leaf comes from.
            about: Further attributes, such as `overrides`.

        Returns:
            The recipe.

        Raises:
            ValueError: If a value is missing or not allowed.
        """
        options = leaf_options(leaves.get("model.kind"), leaves.get("method.name"))
        missing = sorted(options.keys() - leaves.keys())
        if missing:
            raise ValueError(
                f"The recipe {name} lacks {', '.join(missing)}: it was written by another "
                "version of this package. Run it again to use it here."
            )
        data, model, train, memory, method = by_section(leaves).values()
        return cls(
            name=name,
            scale=scale,
            data=DataRecipe(**data),
            model=ModelRecipe(model.pop("kind"), tuple(model.items())),
            train=TrainRecipe(**train),
            memory=MemoryRecipe(**memory),
            method=MethodRecipe(method.pop("name"), tuple(method.items())),
            sources=dict(sources),
            **about,
        )

    def as_dict(self) -> Json:
        """The recipe as plain data that JSON can hold.

        Returns:
            A dict that `from_dict` reads.
        """
        recipe = {"name": self.name, "scale": self.scale, **by_section(self.leaves())}
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
        missing = [key for key in ("name", "scale", *SECTIONS, "sources") if key not in held]
        if missing:
            raise ValueError(f"Not a recipe: it lacks {', '.join(missing)}.")
        leaves = {
            f"{section}.{name}": plain(value)
            for section in SECTIONS
            for name, value in held[section].items()
        }
        known = leaf_options(leaves.get("model.kind"), leaves.get("method.name"))
        return cls.of(
            held["name"],
            held["scale"],
            {leaf: value for leaf, value in leaves.items() if leaf in known},
            held["sources"],
            overrides={leaf: plain(value) for leaf, value in held.get("overrides", {}).items()},
            paths={name: plain(value) for name, value in held.get("own", {}).items()},
            base=held.get("base"),
        )


def by_section(leaves: Mapping[str, Value]) -> dict[str, Json]:
    sections: dict[str, Json] = {section: {} for section in SECTIONS}
    for leaf, value in leaves.items():
        section, name = leaf.split(".", 1)
        sections[section][name] = value
    return sections


def plain(value: Value | list) -> Value:
    return tuple(value) if isinstance(value, list) else value


@cache
def fixed_options() -> dict[str, Option]:
    """What the leaves of every recipe may be."""
    options = {}
    for section, cls in SECTIONS.items():
        for entry in fields(cls):
            if entry.name != "options":
                types, choices = allowed_by(entry.type)
                options[f"{section}.{entry.name}"] = Option(None, tuple(types), choices)
    return options


def leaf_options(model: Value, method: Value) -> dict[str, Option]:
    """What every leaf of a recipe with this model and this method may be; None for either: without
    its options.
    """
    options = dict(fixed_options())
    if model is not None:
        options |= {f"model.{name}": option for name, option in model_options(str(model)).items()}
    if method is not None:
        of_method = method_options(str(method))
        options |= {f"method.{name}": option for name, option in of_method.items()}
    return options


# Checks of values that depend on each other


def check_numbers(section: str, values: Mapping[str, object]) -> None:
    """Refuse numbers that are not finite, negative, or 0 where that makes no sense."""
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            zero = value == 0 and name in MAY_BE_ZERO
            if not zero and not 0 < value < math.inf:
                rule = "0 or more" if name in MAY_BE_ZERO else "a number above 0"
                raise ValueError(f"{section}.{name} must be {rule}, got {value!r}.")


def check_data(data: DataRecipe) -> None:
    if data.base_fraction not in (0, 0.5):
        raise ValueError(f"data.base_fraction must be 0 or 0.5, got {data.base_fraction!r}.")
    if data.hold_out is not None and data.test_per_class is not None:
        raise ValueError(
            f"data.hold_out ({data.hold_out}) replaces the test images: data.test_per_class must "
            f"be none, got {data.test_per_class}."
        )
    if data.hold_out is not None and data.hold_out >= (data.train_per_class or math.inf):
        raise ValueError(
            f"data.hold_out must be below data.train_per_class ({data.train_per_class}), got "
            f"{data.hold_out}."
        )


def check_train(train: TrainRecipe) -> None:
    drops = list(train.drops_at)
    if drops != sorted(drops) or not all(0 < fraction < 1 for fraction in drops):
        raise ValueError(
            "train.drops_at must be increasing fractions of the epochs between 0 and 1, got "
            f"{train.drops_at}."
        )
    for name, other, needed in NEEDED_WITH:
        value, present = getattr(train, name), getattr(train, other)
        if (value in (None, ())) == (present == needed):
            rule = "is needed with" if present == needed else "has no effect without"
            raise ValueError(
                f"train.{name} {rule} {other}={needed}; got {name}={value}, {other}={present}."
            )
    if train.warm_up_lr is not None and not train.warm_up_epochs:
        raise ValueError("train.warm_up_lr has no effect without warm_up_epochs of 1 or more.")
    if train.schedule_delay and train.schedule == "constant" and not train.warm_up_epochs:
        raise ValueError(
            f"train.schedule_delay is {train.schedule_delay}, but a constant rate without warm-up "
            "has nothing to delay."
        )


def check_memory(method: str, memory: MemoryRecipe) -> None:
    mem_size, per_class = memory.mem_size, memory.per_class
    if mem_size is not None and per_class is not None:
        raise ValueError(
            f"memory: give mem_size or per_class, not both; got {mem_size} and {per_class}."
        )
    if without_memory(method) != (mem_size is None and per_class is None):
        rule = "keeps no memory" if without_memory(method) else "needs mem_size or per_class"
        raise ValueError(f"{method} {rule}; got {memory}.")
    if total_only(method) and per_class is not None:
        raise ValueError(f"{method} takes mem_size, not per_class; got per_class={per_class}.")


# Pre-training

DTYPES = ("float16", "float32")
WARM_UP = 3  # epochs, if there are more


def setting(default: Any, help: str) -> Any:
    """A value of the recipe, with a sentence for the command line."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe:
    """A masked-autoencoder pre-training. The defaults are those of the weights `small-mae`; the
    warm-up takes three epochs, or all but one if there are fewer.

    Raises:
        ValueError: A value is out of its range.

    Example:
        >>> PretrainRecipe(epochs=100).lr
        0.001
    """

    epochs: int = setting(40, "Number of passes over the images.")
    backbone: str = setting("vit_tiny_patch16_224", "Name of a plain ViT of timm.")
    image_size: int = setting(32, "Images are resized to squares of this side, in pixels.")
    patch_size: int = setting(8, "Side of a patch, in pixels.")
    msa_blocks: int = setting(6, "Number of blocks of the encoder.")
    mask_ratio: float = setting(0.75, "Share of the patches that is masked.")
    decoder_blocks: int = setting(2, "Number of blocks of the decoder.")
    decoder_dim: int = setting(96, "Width of the decoder.")
    decoder_heads: int = setting(3, "Number of attention heads of the decoder.")
    batch_size: int = setting(256, "Batch size; an incomplete last batch is left out.")
    lr: float = setting(1e-3, "Highest learning rate of AdamW.")
    weight_decay: float = setting(0.05, "Weight decay of AdamW; not for norms and biases.")
    warm_up_epochs: int = setting(
        None,
        f"Epochs in which the learning rate rises  [default: {WARM_UP}, or epochs - 1 if less]",
    )
    smallest_crop: float = setting(0.4, "Smallest area of a random crop; 1 is the whole image.")
    dtype: str = setting("float32", "Data type of the weights file: float16 or float32.")

    def __post_init__(self) -> None:
        if self.warm_up_epochs is None:
            object.__setattr__(self, "warm_up_epochs", min(WARM_UP, self.epochs - 1))
        check_numbers("pretrain", vars(self))
        lookup(dict.fromkeys(DTYPES), self.dtype, "pretrain.dtype")
        for name in ("mask_ratio", "smallest_crop"):
            if getattr(self, name) > 1:
                raise ValueError(f"pretrain.{name} must be at most 1, got {getattr(self, name)}.")
        if self.warm_up_epochs >= self.epochs:
            raise ValueError(
                f"pretrain.warm_up_epochs must be below epochs ({self.epochs}), got "
                f"{self.warm_up_epochs}."
            )

    def as_dict(self) -> Json:
        """The values by name."""
        return asdict(self)


def is_pretraining(values: Record) -> bool:
    """Whether these are the values of a pre-training, not of a recipe."""
    return "mask_ratio" in values


def pretrain_command(values: Record, seed: int, out: str) -> str:
    """The command of a pre-training in a folder, with DATA for its images."""
    defaults = PretrainRecipe(epochs=values["epochs"]).as_dict() | {"epochs": None}
    changed = {name: values[name] for name in defaults if values[name] != defaults[name]}
    words = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in {"out": out, "seed": seed, **changed}.items()
    ]
    return shlex.join(["hfc", "pretrain", "DATA", *words])
