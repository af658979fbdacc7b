"""Where the values of a recipe come from: layers of (source, values by path). A later layer
replaces what an earlier one says.
"""

from collections.abc import Iterable, Iterator, Mapping

from avalanche_hfc.lab.names import Spec
from avalanche_hfc.lab.options import (
    HARDWARE,
    ONE_PASS,
    UPPER_BOUNDS,
    WITHOUT_MEMORY,
    Value,
)
from avalanche_hfc.lab.published import (
    PUBLISHED_METHODS,
    PUBLISHED_MODELS,
    PUBLISHED_TRAIN,
    TRAINED_AS,
)
from avalanche_hfc.lab.schema import Recipe
from avalanche_hfc.lab.signatures import method_options, model_options
from avalanche_hfc.lab.tuned import TUNED

Layer = tuple[str, Mapping[str, Value]]
OURS = "our choice"
TABLE = "the paper's tables"
SMALL = "our choice, docs/protocol.md"
# so that the first step is learned and a seed takes a minute or two; none was tuned for a method
TINY = "our choice, that of `hfc demo`"
OF_SCALE = {"small": SMALL, "medium": SMALL, "demo": TINY}
RELEASED = "released code of HFC"
EVERY = "released code of HFC; the paper names no setting of this method with ViT-Base"

SMALL_WEIGHTS = "small-mae"  # as `models.packaged_weights` names them
SMALL_CLASSES = 20
SMALL_EPOCHS = 5
MEM_SIZES = {"small": 200, "medium": 1000}  # ten images of each class in the end
KEEP_A_TENTH_MORE = ("avalanche-bic", "avalanche-bic-fixed")  # images of their correction
DEMO_EPOCHS = 20
"""Training epochs of a step at scale ``demo``."""
DEMO_MEMORY = 20
"""Exemplars of all classes together at scale ``demo``: two of each class in the end."""

NEUTRAL = {
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
VITS: dict[str, dict[str, Value]] = {
    scale: {
        "backbone": "vit_tiny_patch16_224",
        "patch_size": patch_size,
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "weights": weights,
    }
    for scale, patch_size, embed_dim, num_heads, weights in (
        ("small", 8, 192, 3, SMALL_WEIGHTS),
        ("medium", 8, 192, 3, SMALL_WEIGHTS),
        ("demo", 4, 64, 4, None),
    )
}
SMALL_CONVIT: dict[str, Value] = {
    "patch_size": 8,
    "embed_dim": 144,
    "num_blocks": 4,
    "num_heads": 9,
}
CONVITS: dict[str, dict[str, Value]] = {
    "small": SMALL_CONVIT,
    "medium": SMALL_CONVIT,
    "demo": {"patch_size": 4, "embed_dim": 64, "num_blocks": 2, "num_heads": 4},
}
MSA_BLOCKS = {
    "small": 5,
    "medium": 5,
    "demo": 2,
}  # of a TSAViT; a plain ViT has one block more, so that the depth is the same
VARIANTS: dict[str, dict[str, Value]] = {
    "random": {"model.weights": None},
    "orders": {"data.class_order": None},
}


def from_layers(name: str, scale: str, layers: Iterable[Layer]) -> Recipe:
    """The recipe that layers of values give, each value with its source."""
    leaves: dict[str, Value] = {}
    sources: dict[str, str] = {}
    for source, values in layers:
        leaves |= values
        sources |= dict.fromkeys(values, source)
    return Recipe.of(name, scale, leaves, sources)


def layers(spec: Spec, *, tuned: bool = True) -> Iterator[Layer]:
    """All layers of a recipe, in order; without `tuned`, those before anything was tuned."""
    for section in (data, model, train, memory, method):
        yield from section(spec)
    if tuned and spec.scale in MEM_SIZES:
        host = spec.row.split("+")[0]  # a row with parts of HFC inside has the method's values
        values_of_row = TUNED.get(spec.row, TUNED.get(host, {}))
        yield "tuned on held-out images of CIFAR-100", values_of_row
    if spec.variant:
        yield "the recipe's name", VARIANTS[spec.variant]


def data(spec: Spec) -> Iterator[Layer]:
    joint = spec.parts.method in UPPER_BOUNDS
    protocol = {"data.num_steps": spec.num_steps, "data.base_fraction": spec.base_fraction}
    yield (
        "the whole data set",
        values("data", train_per_class=None, test_per_class=None, num_classes=None, hold_out=None),
    )
    yield (
        (OURS + ": one training, which the paper prints under every T" if joint else TABLE),
        protocol,
    )
    if spec.scale == "demo":
        yield (
            TINY,
            {
                "data.dataset": "digits",
                "data.image_size": 8,
                "data.transforms": "plain",
                "data.class_order": None,
            },
        )
        return
    yield TABLE if spec.scale == "paper" else SMALL, {"data.dataset": spec.dataset}
    yield RELEASED, {"data.class_order": "paper"}
    if spec.scale in MEM_SIZES:
        yield (
            SMALL,
            values(
                "data",
                image_size=32,
                transforms="plain",
                num_classes=SMALL_CLASSES if spec.scale == "small" else None,
                train_per_class=250,
                test_per_class=50,
            ),
        )
        return
    yield "Sec. 4.1: as DyTox, without mixup", {"data.transforms": "dytox"}
    low = spec.dataset == "cifar100" and spec.backbone != "vit-base"
    yield ("the data's own" if low else RELEASED), {"data.image_size": 32 if low else 224}
    if spec.row == "hfc-official":
        yield RELEASED + ": with random erasing", {"data.transforms": "official"}


def model(spec: Spec) -> Iterator[Layer]:
    defaults = {name: option.default for name, option in model_options(spec.model).items()}
    yield "default of the model", values("model", kind=spec.model, **defaults)
    if spec.scale == "demo":
        yield "the data's own", {"model.in_channels": 1}
    if spec.backbone == "vit-base":
        yield from vit(spec)
    elif spec.backbone != "vit-tiny":
        source, published = PUBLISHED_MODELS.get((spec.parts.method, spec.model), ("", {}))
        yield source, values("model", **published)
    elif spec.scale != "paper":
        yield OF_SCALE[spec.scale], values("model", **CONVITS[spec.scale])
    elif spec.dataset != "cifar100":
        yield "published: DyTox, 224 px", {"model.patch_size": 16}


def vit(spec: Spec) -> Iterator[Layer]:
    if spec.scale != "paper":
        blocks = MSA_BLOCKS[spec.scale] + (spec.model == "vit")
        yield OF_SCALE[spec.scale], values("model", **VITS[spec.scale], msa_blocks=blocks)
        return
    yield (
        "Sec. 4.1: ViT-Base from MAE",
        {"model.backbone": "vit_base_patch16_224.mae", "model.weights": "timm"},
    )
    yield (
        "Sec. 4.1: 11 blocks and one that attends by a token"
        if spec.model != "vit"
        else "Sec. 4.1: ViT-Base, 12 blocks",
        {"model.msa_blocks": 12 if spec.model == "vit" else 11},
    )
    if spec.row == "hfc-official":
        yield (
            RELEASED,
            values(
                "model",
                residual=True,
                adapter_dim=64,
                frozen_blocks=5,
                drop_path=0.1,
                embedding_std=0.0,
            ),
        )


def train(spec: Spec) -> Iterator[Layer]:
    yield "not specified", NEUTRAL
    if spec.scale == "demo":
        yield (
            TINY,
            values(
                "train",
                optimizer="adamw",
                lr=1e-3,
                weight_decay=0.01,
                batch_size=32,
                epochs=DEMO_EPOCHS,
            ),
        )
        if spec.backbone == "resnet-32":
            yield "our choice: a ResNet takes longer and learns sooner", values("train", epochs=5)
    elif spec.scale in MEM_SIZES:
        yield (
            SMALL,
            values("train", optimizer="adamw", lr=5e-4, weight_decay=0.01, batch_size=64),
        )
        yield SMALL, values("train", epochs=SMALL_EPOCHS, schedule="cosine", lowest_lr=1e-5)
    elif spec.backbone == "vit-base":
        whose = RELEASED if spec.parts.method == "hfc" else EVERY
        yield f"{whose}; the text says SGD", values("train", optimizer="adamw")
        yield "Sec. 4.1" if spec.parts.method == "hfc" else EVERY, values("train", lr=6.25e-5)
        yield (
            whose,
            values(
                "train",
                head_lr_factor=5.0,
                weight_decay=1e-5,
                epochs=30,
                batch_size=64,
                eval_batch_size=128,
            ),
        )
        yield whose, values("train", schedule="cosine", lowest_lr=1e-5, warm_up_epochs=3)
    else:
        family = "cifar100" if spec.dataset == "cifar100" else "imagenet"
        key = TRAINED_AS.get(spec.backbone, spec.parts.method)
        for source, published in PUBLISHED_TRAIN[key, family]:
            yield source, values("train", **published)
    if spec.parts.method in ONE_PASS:
        yield (
            "the method sees each image once; nothing is trained by gradients",
            values("train", epochs=1, schedule="constant", lowest_lr=None, warm_up_epochs=0),
        )


def memory(spec: Spec) -> Iterator[Layer]:
    neither = {"memory.mem_size": None, "memory.per_class": None}
    if spec.parts.method in WITHOUT_MEMORY:
        yield "the method keeps no memory", neither
        return
    total = {
        **MEM_SIZES,
        "demo": DEMO_MEMORY,
        "paper": 20000 if spec.dataset == "imagenet1000" else 2000,
    }[spec.scale]
    if spec.scale in MEM_SIZES and spec.parts.method in KEEP_A_TENTH_MORE:
        total = next(size for size in range(total, 0, -1) if size + size // 10 <= total)
    yield (
        OF_SCALE.get(spec.scale, TABLE),
        {
            **neither,
            **(
                {"memory.mem_size": total}
                if spec.per_class is None
                else {"memory.per_class": spec.per_class}
            ),
        },
    )


def method(spec: Spec) -> Iterator[Layer]:
    key = spec.parts.method
    options = method_options(key)
    yield "the recipe's name", {"method.name": key}
    yield (
        "default of the strategy",
        values("method", **{name: option.default for name, option in options.items()}),
    )
    if spec.scale != "paper":  # so that `hfc show` names the difference
        for source, published in PUBLISHED_METHODS.get((key, "paper"), ()):
            for name, theirs in published.items():
                default = options[name].default
                told = f"default of the strategy; {source}: {str(theirs).lower()}"
                yield told, values("method", **{name: default})
    for condition in conditions(spec):
        for source, published in PUBLISHED_METHODS.get((key, condition), ()):
            yield source, values("method", **published)
    if (
        spec.scale == "paper"
        and "drop_last" in options
        and key not in ONE_PASS
        and spec.backbone in ("vit-base", "vit-tiny")
    ):
        whose = (
            "published: DyTox"
            if spec.backbone == "vit-tiny"
            else RELEASED
            if key == "hfc"
            else EVERY
        )
        yield whose, values("method", drop_last=True)
    if spec.scale in MEM_SIZES and "tune_epochs" in options:
        yield SMALL, values("method", tune_epochs=3)
    yield (
        "the recipe's name",
        values(
            "method",
            **dict(spec.parts.options),
            **({"losses": "hfc"} if spec.losses == "hfc" else {}),
        ),
    )


def conditions(spec: Spec) -> Iterator[str]:
    """Those of PUBLISHED_METHODS that a recipe meets."""
    yield spec.scale
    if spec.scale == "paper":
        yield "cifar100" if spec.dataset == "cifar100" else "imagenet"
        if spec.backbone.startswith("resnet"):
            yield from ("cnn", f"cnn-{spec.dataset}")
    if spec.scale != "demo":
        yield f"{spec.dataset}-b{round(100 * spec.base_fraction)}-t{spec.num_steps}"


def values(section: str, **options: Value) -> dict[str, Value]:
    """The options as leaves of a part of a recipe."""
    return {f"{section}.{name}": value for name, value in options.items()}
