"""Where the values of a recipe come from: layers of (source, values by path). A later layer
replaces what an earlier one says.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache

from avalanche_hfc._names import lookup
from avalanche_hfc.lab.names import MEM_SIZES, SCALES, USER_DATA, Spec, user_spec
from avalanche_hfc.lab.options import (
    HARDWARE,
    ONE_PASS,
    UPPER_BOUNDS,
    Value,
    is_user_method,
    method_options,
    model_options,
    total_only,
    without_memory,
)
from avalanche_hfc.lab.published import (
    PUBLISHED_METHODS,
    PUBLISHED_MODELS,
    PUBLISHED_TRAIN,
    TRAINED_AS,
    TUNED,
)
from avalanche_hfc.lab.schema import Recipe
from avalanche_hfc.lab.tables import SPECS

Layer = tuple[str, Mapping[str, Value]]
NAME = "the recipe's name"
TABLE = "the paper's tables"
SMALL = "our choice, docs/protocol.md"
# so that the first step is learned and a seed takes a minute or two; none was tuned for a method
TINY = "our choice, that of `hfc demo`"
OF_SCALE = {"small": SMALL, "medium": SMALL, "demo": TINY}
RELEASED = "released code of HFC"
EVERY = "released code of HFC; the paper names no setting of this method with ViT-Base"

SMALL_WEIGHTS = "small-mae"  # as `models.packaged_weights` names them
KEEP_A_TENTH_MORE = ("avalanche-bic", "avalanche-bic-fixed")  # images of their correction
DEMO_EPOCHS = 20
"""Training epochs of a step at scale ``demo``."""
DEMO_MEMORY = 20
"""Exemplars of all classes together at scale ``demo``: two of each class in the end."""

NEUTRAL: dict[str, Value] = {
    "train.head_lr_factor": 1.0,
    "train.momentum": None,
    "train.decay_by_step": False,
    "train.decay_all": True,
    "train.eval_batch_size": 256,
    "train.first_epochs": None,
    "train.schedule": "constant",
    "train.lowest_lr": None,
    "train.drops_at": (),
    "train.drop_factor": None,
    "train.warm_up_epochs": 0,
    "train.warm_up_lr": None,
    "train.schedule_delay": 0,
    **HARDWARE,
}
WHOLE: dict[str, Value] = {
    "data.train_per_class": None,
    "data.test_per_class": None,
    "data.num_classes": None,
}
AT_MEDIUM: dict[str, Value] = {
    "data.dataset": "cifar100",
    "data.image_size": 32,
    "data.transforms": "plain",
    "data.num_classes": None,
    "data.train_per_class": 250,
    "data.test_per_class": 50,
    "train.optimizer": "adamw",
    "train.lr": 5e-4,
    "train.weight_decay": 0.01,
    "train.batch_size": 64,
    "train.epochs": 5,
    "train.schedule": "cosine",
    "train.lowest_lr": 1e-5,
}
AT_DEMO: dict[str, Value] = {
    "data.dataset": "digits",
    "data.image_size": 8,
    "data.transforms": "plain",
    "data.class_order": None,
    "train.optimizer": "adamw",
    "train.lr": 1e-3,
    "train.weight_decay": 0.01,
    "train.batch_size": 32,
    "train.epochs": DEMO_EPOCHS,
}
AT_SCALE = {"small": {**AT_MEDIUM, "data.num_classes": 20}, "medium": AT_MEDIUM, "demo": AT_DEMO}
TINY_VIT: dict[str, Value] = {
    "model.backbone": "vit_tiny_patch16_224",
    "model.patch_size": 8,
    "model.embed_dim": 192,
    "model.num_heads": 3,
    "model.msa_blocks": 5,
    "model.weights": SMALL_WEIGHTS,
}
DIGITS_VIT: dict[str, Value] = {
    "model.backbone": "vit_tiny_patch16_224",
    "model.patch_size": 4,
    "model.embed_dim": 64,
    "model.num_heads": 4,
    "model.msa_blocks": 2,
    "model.weights": None,
}
TINY_CONVIT: dict[str, Value] = {
    "model.patch_size": 8,
    "model.embed_dim": 144,
    "model.num_blocks": 4,
    "model.num_heads": 9,
}
DIGITS_CONVIT: dict[str, Value] = {
    "model.patch_size": 4,
    "model.embed_dim": 64,
    "model.num_blocks": 2,
    "model.num_heads": 4,
}
VARIANTS: dict[str, dict[str, Value]] = {
    "random": {"model.weights": None},
    "orders": {"data.class_order": None},
}
PER_CLASS = 20  # exemplars, of your data
SHARE = 5  # of this many training images of a class, one is kept at most
USER_MEMORY = (
    f"our choice for your data: {PER_CLASS} exemplars per class, or a fifth of the training images "
    "of the smallest class if that is less"
)


def all_names(scale: str | None = None) -> list[str]:
    """The names of all recipes, or of those of one scale.

    Args:
        scale: One of `SCALES`. By default all scales.

    Returns:
        The names.

    Raises:
        ValueError: If the scale does not exist.

    Example:
        >>> "digits-b0-t5-hfc@demo" in all_names("demo")
        True
    """
    if scale is not None:
        lookup(SCALES, scale, "scale")
    return [name for name, spec in SPECS.items() if scale in (None, spec.scale)]


@cache
def recipe(name: str) -> Recipe:
    """The recipe of a name.

    Args:
        name: One of `all_names()`, or a name for your data or method, such as `folder-t5-hfc`.

    Returns:
        The recipe, with the source of each of its values.

    Raises:
        ValueError: The name does not exist; with the nearest that do.

    Example:
        >>> recipe("digits-b0-t5-hfc@demo").train.epochs
        20
    """
    spec = SPECS.get(name) or user_spec(name)
    if spec is None:
        near = get_close_matches(name, SPECS, n=4, cutoff=0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"Unknown recipe {name!r}.{hint} `hfc list` shows all.")
    return from_layers(spec)


def untuned(name: str) -> Recipe:
    """The recipe of a name before anything is tuned, from which trials start.

    Args:
        name: One of `all_names()`.

    Returns:
        The recipe with the values of its protocol.

    Example:
        >>> untuned("cifar100-b0-t5-podnet@small").train.lr
        0.0005
    """
    return from_layers(SPECS[name], tuned=False)


def from_layers(spec: Spec, *, tuned: bool = True) -> Recipe:
    """The recipe that the layers of a name give, each value with its source."""
    leaves: dict[str, Value] = {}
    sources: dict[str, str] = {}
    for source, layer in layers(spec, tuned=tuned):
        leaves |= layer
        sources |= dict.fromkeys(layer, source)
    return Recipe.of(spec.name, spec.scale, leaves, sources)


def layers(spec: Spec, *, tuned: bool = True) -> Iterator[Layer]:
    """All layers of a recipe, in order; without `tuned`, those before anything was tuned. A method
    of the user's trains as our baseline does.
    """
    like = spec._replace(row="baseline", losses="host") if is_user_method(spec.row) else spec
    joint = spec.parts.method in UPPER_BOUNDS
    protocol = values("data", num_steps=spec.num_steps, base_fraction=spec.base_fraction)
    defaults = {name: option.default for name, option in model_options(like.model).items()}
    yield "not specified", NEUTRAL
    yield "the whole data set", WHOLE | {"data.hold_out": None}
    yield (
        "our choice: one training, which the paper prints under every T" if joint else TABLE,
        protocol,
    )
    yield RELEASED, {"data.class_order": "paper"}
    yield "default of the model", values("model", kind=like.model, **defaults)
    yield from at_scale_paper(like) if spec.scale == "paper" else at_smaller_scale(like)
    if spec.parts.method in ONE_PASS:
        yield (
            "the method sees each image once; nothing is trained by gradients",
            values("train", epochs=1, schedule="constant", lowest_lr=None, warm_up_epochs=0),
        )
    if spec.dataset in USER_DATA:
        yield NAME, protocol | {"data.dataset": spec.dataset}
        yield from on_user_data(like)
    yield from memory(spec)
    yield from method(spec)
    if tuned and spec.scale in MEM_SIZES:
        host = spec.row.split("+")[0]  # a row with parts of HFC inside has the method's values
        values_of_row = TUNED.get(spec.row, TUNED.get(host, {}))
        yield "tuned on held-out images of CIFAR-100", values_of_row
    if spec.variant:
        yield NAME, VARIANTS[spec.variant]


def at_scale_paper(spec: Spec) -> Iterator[Layer]:
    low = spec.dataset == "cifar100" and spec.backbone != "vit-base"
    yield TABLE, {"data.dataset": spec.dataset}
    yield "Sec. 4.1: as DyTox, without mixup", {"data.transforms": "dytox"}
    yield ("the data's own" if low else RELEASED), {"data.image_size": 32 if low else 224}
    yield from with_vit_base(spec) if spec.backbone == "vit-base" else as_published(spec)
    if spec.row == "hfc-official":
        yield f"{RELEASED}: with random erasing", {"data.transforms": "official"}
        parts = values("model", residual=True, adapter_dim=64, frozen_blocks=5, drop_path=0.1)
        yield RELEASED, parts | {"model.embedding_std": 0.0}


def with_vit_base(spec: Spec) -> Iterator[Layer]:
    plain = spec.model == "vit"
    blocks = "ViT-Base, 12 blocks" if plain else "11 blocks and one that attends by a token"
    whose = RELEASED if spec.parts.method == "hfc" else EVERY
    weights = values("model", backbone="vit_base_patch16_224.mae", weights="timm")
    yield "Sec. 4.1: ViT-Base from MAE", weights
    yield f"Sec. 4.1: {blocks}", {"model.msa_blocks": 12 if plain else 11}
    yield f"{whose}; the text says SGD", {"train.optimizer": "adamw"}
    yield "Sec. 4.1" if spec.parts.method == "hfc" else EVERY, {"train.lr": 6.25e-5}
    yield whose, values("train", head_lr_factor=5.0, weight_decay=1e-5, epochs=30)
    yield whose, values("train", batch_size=64, eval_batch_size=128)
    yield whose, values("train", schedule="cosine", lowest_lr=1e-5, warm_up_epochs=3)


def as_published(spec: Spec) -> Iterator[Layer]:
    """The model and the training of a method with the backbone of its authors."""
    family = "cifar100" if spec.dataset == "cifar100" else "imagenet"
    published = PUBLISHED_TRAIN.get((TRAINED_AS.get(spec.backbone, spec.parts.method), family))
    if published is None:
        raise ValueError(
            f"{spec.name}: no training of {spec.row} with this backbone is published. Use @small "
            "and change its values."
        )
    yield from published_model(spec)
    if spec.backbone == "vit-tiny" and family == "imagenet":
        yield "published: DyTox, 224 px", {"model.patch_size": 16}
    for source, options in published:
        yield source, values("train", **options)


def published_model(spec: Spec) -> Iterator[Layer]:
    if (spec.parts.method, spec.model) in PUBLISHED_MODELS:
        source, options = PUBLISHED_MODELS[spec.parts.method, spec.model]
        yield source, values("model", **options)


def at_smaller_scale(spec: Spec) -> Iterator[Layer]:
    demo = spec.scale == "demo"
    source = OF_SCALE[spec.scale]
    yield source, AT_SCALE[spec.scale]
    if spec.backbone == "vit-base":
        yield source, DIGITS_VIT if demo else TINY_VIT
        if spec.model == "vit":  # as deep as a TSAViT
            yield source, {"model.msa_blocks": 3 if demo else 6}
    elif spec.backbone == "vit-tiny":
        yield source, DIGITS_CONVIT if demo else TINY_CONVIT
    else:
        yield from published_model(spec)
    if demo:
        yield "the data's own", {"model.in_channels": 1}
    if demo and spec.backbone == "resnet-32":
        yield "our choice: a ResNet takes longer and learns sooner", {"train.epochs": 5}


def on_user_data(spec: Spec) -> Iterator[Layer]:
    size = 224 if spec.scale == "paper" and spec.backbone != "resnet-32" else 32
    yield "all of your images", WHOLE
    yield "an order drawn by the seed", {"data.class_order": None}
    yield "our choice: your images are resized to squares of this side", {"data.image_size": size}
    if spec.scale == "demo":
        yield "images are read as RGB", {"model.in_channels": 3}
        if spec.backbone.startswith("vit"):
            yield "our choice for your data; nothing was tuned", {"model.patch_size": 8}


def memory(spec: Spec) -> Iterator[Layer]:
    method = spec.parts.method
    neither: dict[str, Value] = {"memory.mem_size": None, "memory.per_class": None}
    users = spec.dataset in USER_DATA
    source = OF_SCALE.get(spec.scale, TABLE)
    at_paper = 20000 if spec.dataset == "imagenet1000" else 2000
    total = {**MEM_SIZES, "demo": DEMO_MEMORY, "paper": at_paper}[spec.scale]
    if spec.scale in MEM_SIZES and method in KEEP_A_TENTH_MORE:
        total = next(size for size in range(total, 0, -1) if size + size // 10 <= total)
    if without_memory(method):
        yield "the method keeps no memory", neither
    elif spec.per_class is not None:
        yield NAME if users else source, neither | {"memory.per_class": spec.per_class}
    elif users:
        leaf = "memory.mem_size" if total_only(method) else "memory.per_class"
        yield USER_MEMORY, neither | {leaf: PER_CLASS}
    else:
        yield source, neither | {"memory.mem_size": total}


def method(spec: Spec) -> Iterator[Layer]:
    key = spec.parts.method
    options = method_options(key)
    defaults = {name: option.default for name, option in options.items()}
    yield NAME, {"method.name": key}
    if is_user_method(key):
        yield "default of the class", values("method", **defaults)
    else:
        yield "default of the strategy", values("method", **defaults)
        yield from published_method(spec)
    yield NAME, values("method", **dict(spec.parts.options))
    if spec.losses == "hfc":
        yield NAME, {"method.losses": "hfc"}


def published_method(spec: Spec) -> Iterator[Layer]:
    key = spec.parts.method
    options = method_options(key)
    if spec.scale != "paper":  # so that `hfc show` names the difference
        for source, published in PUBLISHED_METHODS.get((key, "paper"), ()):
            for name, theirs in published.items():
                told = f"default of the strategy; {source}: {str(theirs).lower()}"
                yield told, {f"method.{name}": options[name].default}
    for condition in conditions(spec):
        for source, published in PUBLISHED_METHODS.get((key, condition), ()):
            yield source, values("method", **published)
    if "drop_last" in options and spec.scale == "paper" and key not in ONE_PASS:
        released = RELEASED if key == "hfc" else EVERY
        sources = {"vit-tiny": "published: DyTox", "vit-base": released}
        if spec.backbone in sources:
            yield sources[spec.backbone], {"method.drop_last": True}
    if spec.scale in MEM_SIZES and "tune_epochs" in options:
        yield SMALL, {"method.tune_epochs": 3}


def conditions(spec: Spec) -> Iterator[str]:
    """Those of PUBLISHED_METHODS that a recipe meets."""
    users = spec.dataset in USER_DATA
    if not (users and spec.scale == "demo" and spec.row == "foster"):
        yield spec.scale  # the values of FOSTER are for the two exemplars per class of `hfc demo`
    if spec.scale == "paper":
        yield "cifar100" if spec.dataset == "cifar100" else "imagenet"
        if spec.backbone.startswith("resnet"):
            yield from ("cnn", f"cnn-{'imagenet100' if users else spec.dataset}")
    if spec.scale != "demo":
        yield f"{spec.dataset}-b{round(100 * spec.base_fraction)}-t{spec.num_steps}"


def values(section: str, **options: Value) -> dict[str, Value]:
    """The options as leaves of a section of a recipe."""
    return {f"{section}.{name}": value for name, value in options.items()}
