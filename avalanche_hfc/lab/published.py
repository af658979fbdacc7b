"""Published settings of the methods with their own backbones, as (source, values), and the values
tuned on held-out images. SGD has momentum 0.9.

`drops_at` are fractions of the epochs. Where a publication names no value for a data set, that of
the nearest one is taken and said so.
"""

from collections.abc import Mapping
from typing import Any

from avalanche_hfc._types import Options
from avalanche_hfc.lab.options import Value

Layers = tuple[tuple[str, Options], ...]


def sgd(lr: float, epochs: int, batch_size: int, weight_decay: float, **more: Any) -> Options:
    return dict(
        optimizer="sgd",
        momentum=0.9,
        lr=lr,
        epochs=epochs,
        batch_size=batch_size,
        weight_decay=weight_decay,
        **more,
    )


def drops(*epochs: int, of: int, factor: float = 0.1) -> Options:
    return dict(
        schedule="drops", drops_at=tuple(epoch / of for epoch in epochs), drop_factor=factor
    )


COSINE: Options = dict(schedule="cosine", lowest_lr=0.0)
LATE = dict(
    schedule_delay=1
)  # the authors' loop sets the rate at the end of an epoch, by that epoch's number
DYTOX: Layers = (
    ("published: DyTox; 5e-4 · batch/512 on one GPU", dict(lr=1.25e-4)),
    ("published: DyTox", dict(optimizer="adamw", weight_decay=1e-6, batch_size=128, epochs=500)),
    (
        "published: DyTox",
        dict(schedule="cosine", lowest_lr=1e-5, warm_up_epochs=5, warm_up_lr=1e-6, **LATE),
    ),
    ("published: DyTox; timm's rule for its optimizers", dict(decay_all=False)),
)
PODNET_CIFAR, PODNET_IMAGENET = (
    sgd(0.1, 160, 128, 5e-4, **COSINE, **LATE),
    sgd(0.05, 90, 64, 5e-4, **COSINE, **LATE),
)
LIKE_PODNET = "published: PODNet; CSCCT's code has no PODNet host"
FOSTER_EPOCHS = dict(first_epochs=200)
PUBLISHED_TRAIN: dict[tuple[str, str], Layers] = {
    ("icarl", "cifar100"): (
        ("published: iCaRL", sgd(2.0, 70, 128, 2e-5, **drops(49, 63, of=70, factor=0.2))),
    ),
    ("icarl", "imagenet"): (
        (
            "published: iCaRL",
            sgd(2.0, 60, 128, 1e-5, **drops(20, 30, 40, 50, of=60, factor=0.2), **LATE),
        ),
    ),
    ("bic", "cifar100"): (
        ("ports of BiC", sgd(0.1, 250, 128, 2e-4, **drops(100, 150, 200, of=250))),
    ),
    ("bic", "imagenet"): (
        (
            "published: BiC",
            sgd(0.1, 100, 256, 1e-4, decay_by_step=True, **drops(30, 60, 80, 90, of=100)),
        ),
    ),
    ("podnet", "cifar100"): (("published: PODNet", PODNET_CIFAR),),
    ("podnet", "imagenet"): (("published: PODNet", PODNET_IMAGENET),),
    ("podnet-cscct", "cifar100"): ((LIKE_PODNET, PODNET_CIFAR),),
    ("podnet-cscct", "imagenet"): ((LIKE_PODNET, PODNET_IMAGENET),),
    ("ssil", "cifar100"): (
        ("SS-IL's author", sgd(0.1, 200, 128, 1e-3, **drops(80, 120, 160, of=200))),
    ),
    ("ssil", "imagenet"): (
        ("published: SS-IL, ImageNet-1000", sgd(0.1, 100, 128, 1e-4, **drops(40, 80, of=100))),
    ),
    ("foster", "cifar100"): (
        ("published: FOSTER", sgd(0.1, 170, 128, 5e-4, **FOSTER_EPOCHS, **COSINE)),
    ),
    ("foster", "imagenet"): (
        ("published: FOSTER", sgd(0.1, 170, 256, 5e-4, **FOSTER_EPOCHS, **COSINE)),
    ),
    ("afc", "cifar100"): (("published: AFC", PODNET_CIFAR),),
    ("afc", "imagenet"): (("published: AFC", sgd(0.1, 90, 128, 1e-4, **COSINE, **LATE)),),
    ("joint", "cifar100"): (
        (
            "our choice: the first step of PyCIL's methods",
            sgd(0.1, 200, 128, 5e-4, **drops(60, 120, 170, of=200)),
        ),
    ),
    ("joint", "imagenet"): (
        (
            "our choice: the first step of PyCIL's methods",
            sgd(0.1, 200, 128, 5e-4, **drops(60, 120, 170, of=200)),
        ),
    ),
    ("dytox", "cifar100"): DYTOX,
    ("dytox", "imagenet"): DYTOX,
}

POD_RELU = dict(last_relu=False, stage_relu=False, zero_residual=True)  # no ReLU after a map
PUBLISHED_MODELS: dict[tuple[str, str], tuple[str, Options]] = {
    ("icarl", "resnet32"): ("published: iCaRL", dict(last_relu=False, init="fan_in")),
    ("icarl", "resnet18"): ("published: iCaRL", dict(last_relu=False)),
    **{
        (key, "resnet32"): ("published: PODNet, AFC", dict(block_relu=False, **POD_RELU))
        for key in ("podnet", "podnet-cscct", "afc")
    },
    **{
        (key, "resnet18"): (
            "published: PODNet, AFC",
            dict(stem="3x3", max_pool=True, block_relu=True, **POD_RELU),
        )
        for key in ("podnet", "podnet-cscct", "afc")
    },
}

TRAINED_AS = {"vit-tiny": "dytox"}  # backbones that all methods train as the one they come from

# (method, condition): the scale. At scale paper also "cifar100" or "imagenet" by the data, "cnn"
# and "cnn-<data set>" with a ResNet. At all but demo also "<data set>-b<base>-t<steps>".
POD_IMAGENET: Layers = (
    ("published: PODNet, ImageNet", dict(spatial_weight=8.0, flat_weight=10.0, scale_lr=0.05)),
)
POD_RELEASED: Layers = (
    (
        "published: PODNet's code",
        dict(rule="icarl-code", tune_mode="train", herd_again=True, flip=True),
    ),
)
POD_CIFAR: Layers = (
    ("published: PODNet, CIFAR: none is 3, and 5 with inference nme", dict(spatial_weight=None)),
    ("published: PODNet, CIFAR", dict(flat_weight=1.0)),
)
FALLING = "published: FOSTER; one value for each step from the second on"
FOSTER_BETAS: dict[str, tuple[float | tuple[float, ...], str]] = {  # on CIFAR-100
    "b0-t5": ((0.97, 0.96, 0.95, 0.94), FALLING),
    "b0-t10": ((0.98, 0.975, 0.97, 0.965, 0.96, 0.955, 0.95, 0.945, 0.94), FALLING),
    "b0-t20": (0.96, "published: FOSTER"),
    "b0-t25": (0.96, "our choice: no value is published, that of T = 20"),
    "b0-t50": (0.96, "our choice: no value is published, that of T = 20"),
    "b50-t5": (0.94, "published: FOSTER"),
    "b50-t10": (0.94, "published: FOSTER"),
    "b50-t25": (0.95, "published: FOSTER"),
}
PUBLISHED_METHODS: dict[tuple[str, str], Layers] = {
    ("icarl", "cifar100"): (("published: iCaRL, CIFAR code", dict(flip=True)),),
    ("icarl", "cnn"): (
        ("published: iCaRL; the learning rate belongs to it", dict(divisor="all", columns="all")),
        (
            "published: iCaRL; its ImageNet code has as many updates, and takes the rest "
            "into the next epoch",
            dict(drop_last=True),
        ),
    ),
    **{(name, "paper"): POD_RELEASED for name in ("podnet", "podnet-cscct")},
    ("afc", "paper"): (
        *POD_RELEASED,
        ("published: AFC's code", dict(importance_pass="train")),
    ),
    ("icarl", "paper"): (("published: iCaRL's code", dict(rule="icarl-code")),),
    ("podnet", "cifar100"): POD_CIFAR,
    ("podnet", "imagenet"): POD_IMAGENET,
    ("podnet-cscct", "cifar100"): POD_CIFAR,
    ("podnet-cscct", "imagenet"): POD_IMAGENET,
    ("podnet", "cnn-cifar100"): (("published: PODNet", dict(tune_lr=0.05)),),
    ("podnet", "cnn-imagenet100"): (("published: PODNet", dict(tune_lr=0.01)),),
    ("podnet-cscct", "cnn-cifar100"): (("published: PODNet", dict(tune_lr=0.05)),),
    ("podnet-cscct", "cnn-imagenet100"): (("published: PODNet", dict(tune_lr=0.01)),),
    ("afc", "imagenet"): (("published: AFC, ImageNet", dict(importance_weight=10.0)),),
    ("afc", "cnn-cifar100"): (("published: AFC", dict(tune_lr=0.05)),),
    ("afc", "cnn-imagenet100"): (("published: AFC", dict(tune_lr=0.02)),),
    ("ssil", "paper"): (("published: SS-IL's code", dict(replay_draws="repeated")),),
    ("ssil", "cnn"): (("published: SS-IL", dict(replay_mb_size=32)),),
    ("foster", "paper"): (("published: FOSTER's code", dict(network="boosted")),),
    ("foster", "imagenet"): (
        ("published: FOSTER, ImageNet-100", dict(beta=0.97, compress_beta=0.97)),
    ),
    ("foster", "cnn"): (("published: FOSTER", dict(compress_epochs=130)),),
    **{
        ("foster", f"cifar100-{protocol}"): ((source, dict(beta=beta)),)
        for protocol, (beta, source) in FOSTER_BETAS.items()
    },
    ("foster", "cifar100-b50-t50"): (("published: FOSTER", dict(beta=0.95, compress_beta=0.98)),),
    ("foster", "demo"): (
        (
            "our choice: the published values are for 20 exemplars of a class and more, here are "
            "two",
            dict(beta=0.8, compress_beta=0.8),
        ),
    ),
    ("dytox", "demo"): (
        (
            "our choice: images are not augmented here, copies would be the same",
            dict(repeats=1),
        ),
    ),
    **{
        ("dytox", scale): (("our choice: one budget for all methods", dict(repeats=1)),)
        for scale in ("small", "medium")
    },
    ("dytox", "paper"): (("published: DyTox, `ft_no_sampling`", dict(tune_order="by-class")),),
    ("ranpac", "paper"): (("published: RanPAC", dict(num_features=10000)),),
    ("ranpac", "demo"): (("our choice, that of `hfc demo`", dict(num_features=500)),),
}

# The best of the trials of each row or method on held-out training images, for the scales small and
# medium; `experiments/tune.py` makes the trials, and their results are in
# experiments/results/real-images/tuning/trials.csv. A row without an entry keeps the values of the
# protocol; rows with parts of HFC inside have those of their method.
TUNED: Mapping[str, Mapping[str, Value]] = {
    "hfc": {"train.lr": 2e-4, "method.relation_weight": 1.0},
    "hfc-paper": {"train.lr": 2e-4, "method.relation_weight": 2.0},
    "hfc-official": {"train.lr": 5e-4},
    "baseline": {"train.lr": 5e-4},
    "icarl": {"train.lr": 5e-4, "method.outputs": "softmax"},
    "bic": {"train.lr": 1e-3, "method.bias_lr": 0.1},
    "podnet": {"train.lr": 1e-3, "method.spatial_weight": 1.0, "method.tune_epochs": 20},
    "podnet-cscct": {
        "train.lr": 1e-3,
        "method.spatial_weight": 1.0,
        "method.clustering_weight": 3.0,
        "method.tune_epochs": 20,
        "method.tune_lr": 1e-3,
    },
    "ssil": {"train.lr": 1e-3, "method.lr_by_step": False},
    "foster": {"train.lr": 5e-4, "method.beta": 0.96},
    "afc": {"train.lr": 1e-3, "method.importance_weight": 1.0, "method.tune_epochs": 20},
    "dytox": {"train.lr": 2e-4, "method.divergence_weight": 0.1, "method.tune_epochs": 20},
    "finetune": {"train.lr": 5e-4},
    "herding-replay": {"train.lr": 5e-4},
    "joint": {"train.lr": 1e-3},
    "avalanche-replay": {"train.lr": 2e-4},
    "avalanche-lwf-fixed": {"train.lr": 1e-3, "method.alpha": 5.0},
    "avalanche-er_ace-fixed": {"train.lr": 5e-4},
    "avalanche-der-fixed": {"train.lr": 5e-4, "method.alpha": 0.1},
    "avalanche-icarl-fixed": {"train.lr": 5e-4},
    "avalanche-bic-fixed": {"train.lr": 5e-4, "method.lr": 0.01},
    "ranpac": {"method.num_features": 2000, "method.ridge": 100.0},
    "frozen-replay": {"train.lr": 0.2},
    "wa": {"train.lr": 5e-4, "method.clip_weights": False},
}
