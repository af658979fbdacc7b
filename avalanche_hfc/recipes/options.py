"""The keys of `STRATEGIES` and what each takes, without torch: names, defaults and kinds of values.
Tests compare with the classes.
"""

from typing import NamedTuple

Value = str | int | float | bool | None | tuple


class Option(NamedTuple):
    """A value that a part of a run takes. `kinds` are the types it may have, `choices` the words
    where only some are allowed.
    """

    default: Value
    kinds: tuple[type, ...]
    choices: tuple[str, ...] = ()


def number(default: float | int | None, *more: type) -> Option:
    return Option(default, (float, *more, *([type(None)] if default is None else [])))


def count(default: int | None) -> Option:
    return Option(default, (int, *([type(None)] if default is None else [])))


def word(default: str | None, *choices: str) -> Option:
    return Option(default, (str, *([type(None)] if default is None else [])), choices)


def flag(default: bool | None) -> Option:
    return Option(default, (bool, *([type(None)] if default is None else [])))


WEIGHT = Option(None, (float, str, type(None)), ("balanced",))  # a number, or a word
LOSSES = word("host", "host", "gfc", "grd", "hfc")
TRAINING = {"reset_optimizer": flag(True), "drop_last": flag(False)}
HOST = {**TRAINING, "losses": LOSSES, "gradient": word("host", "host", "softmax")}
REPLAY = {**HOST, "rule": word(None, "greedy", "icarl-code", "closest", "first", "raw")}
PROXIES = {
    **REPLAY,
    "gradient": word("host", "host", "softmax", "nca"),
    "nca": word("code", "code", "paper"),
    "num_proxies": count(10),
    "tune_epochs": count(20),
    "tune_lr": number(None),
    "scale_lr": number(0.1),
    "inference": word("head", "head", "nme"),
    "flip": flag(False),
}
PODNET = {**PROXIES, "spatial_weight": number(None), "flat_weight": number(1.0)}
LWF = {"alpha": number(1.0), "temperature": number(2.0)}
DER = {"alpha": number(0.1), "beta": number(0.5), "batch_size_mem": count(None)}
BIC_ROW = {
    "val_percentage": number(0.1),
    "T": number(2),
    "stage_2_epochs": count(200),
    "lamb": number(-1),
    "lr": number(0.1),
}

METHODS: dict[str, dict[str, Option]] = {
    "hfc": {
        **TRAINING,
        "form": word("default", "default", "paper", "official"),
        "compensation_weight": WEIGHT,
        "relation_weight": WEIGHT,
        "optimizer_quirks": flag(False),
        "drop_last": flag(None),  # None: true with form=official
    },
    "finetune": HOST,
    "herding-replay": REPLAY,
    "joint": {**TRAINING, "from_scratch": flag(True)},
    "baseline": REPLAY,
    "icarl": {
        **REPLAY,
        "outputs": word("sigmoid", "sigmoid", "softmax"),
        "divisor": word("seen", "seen", "all"),
        "form": word("split", "split", "mixed"),
        "inference": word("nme", "head", "nme"),
        "flip": flag(False),
    },
    "bic": {**REPLAY, "bias_rounds": count(200), "bias_lr": number(0.1)},
    "podnet": PODNET,
    "podnet-cscct": {
        **PODNET,
        "clustering_weight": number(3.0),
        "transfer_weight": number(1.5),
        "reduction": word("elements", "elements", "rows"),
    },
    "ssil": {
        **REPLAY,
        "reset_optimizer": flag(False),
        "drop_last": flag(True),
        "replay_mb_size": count(None),
        "lr_by_step": flag(True),
        "relation": word("separated", "separated", "joint"),
    },
    "foster": {
        **REPLAY,
        "beta": number(0.96, tuple),  # one for all steps, or one for each from the second on
        "compress_beta": number(0.97, tuple),
        "distillation_weight": number(1.0),
        "compress_epochs": count(None),
        "compress_lr": number(None),
    },
    "afc": {**PROXIES, "importance_weight": number(4.0)},
    "dytox": {
        **REPLAY,
        "divergence_weight": number(0.1),
        "tune_epochs": count(20),
        "tune_lr": number(None),
        "relation": word("sigmoid", "sigmoid", "softmax"),
        "repeats": count(3),
    },
    "ncm": TRAINING,
    "ranpac": {**TRAINING, "num_features": count(2000), "ridge": number(None)},
    "frozen-replay": REPLAY,
    "wa": {**REPLAY, "clip_weights": flag(False)},
    "avalanche-naive": {},
    "avalanche-replay": {},
    "avalanche-lwf": LWF,
    "avalanche-lwf-fixed": LWF,
    "avalanche-ewc": {
        "ewc_lambda": number(1.0),
        "mode": word("separate", "separate", "online"),
        "decay_factor": number(None),
        "keep_importance_data": flag(False),
    },
    "avalanche-der": DER,
    "avalanche-der-fixed": DER,
    "avalanche-er_ace": {"batch_size_mem": count(None)},
    "avalanche-er_ace-fixed": {"batch_size_mem": count(None)},
    "avalanche-icarl": {"fixed_memory": flag(True)},
    "avalanche-icarl-fixed": {"fixed_memory": flag(True)},
    "avalanche-bic": BIC_ROW,
    "avalanche-bic-fixed": BIC_ROW,
    "avalanche-cumulative": {},
    "avalanche-joint": {},
}
CANNOT_RUN = ("avalanche-der", "avalanche-bic")  # `cannot_run` of the classes says why
WITHOUT_MEMORY = (
    "finetune",
    "joint",
    "ncm",
    "ranpac",
    "avalanche-naive",
    "avalanche-lwf",
    "avalanche-lwf-fixed",
    "avalanche-ewc",
    "avalanche-cumulative",
    "avalanche-joint",
)
UPPER_BOUNDS = ("joint", "avalanche-joint")  # `upper_bound` of the classes
ON_ALL_SEEN = ("joint", "avalanche-cumulative")  # `trains_on_all_seen` of the classes
ONE_PASS = ("ncm", "ranpac")  # nothing is trained by gradients
TOTAL_ONLY = tuple(name for name in METHODS if name.startswith("avalanche-"))  # no `per_class`
# Options that count the epochs of a phase after the main one, and what an epoch of it goes over:
# the exemplars, or all that the main epochs do. None is as many as those.
LATER_EPOCHS = {"tune_epochs": "exemplars", "compress_epochs": "all"}
CORRECTION_ROUNDS = ("bias_rounds", "stage_2_epochs")  # over a few images that were held out

ENCODER = {
    "backbone": word("vit_base_patch16_224.mae"),
    "weights": word(None),  # None: random; "timm": those of the backbone's tag; the
    # name of a packaged file, "small-mae"; a path
    "patch_size": count(None),
    "msa_blocks": count(None),
    "embed_dim": count(None),  # None: the backbone's own
    "num_heads": count(None),
    "in_channels": count(3),
    "adapter_dim": count(0),
    "frozen_blocks": count(0),
}
RESNET = {
    "last_relu": flag(True),
    "stage_relu": flag(None),  # None: as block_relu
    "block_relu": flag(True),
    "zero_residual": flag(False),
    "in_channels": count(3),
}
MODELS: dict[str, dict[str, Option]] = {
    "tsavit": {
        **ENCODER,
        "tsa_blocks": count(1),
        "residual": flag(False),
        "drop_path": number(0.0),
        "embedding_std": number(0.02),
    },
    "vit": ENCODER,
    "dytox": {**ENCODER, "drop_path": number(None)},
    "convit": {
        "patch_size": count(4),
        "embed_dim": count(384),
        "num_blocks": count(5),
        "num_heads": count(12),
        "drop_path": number(0.1),
        "in_channels": count(3),
    },
    "resnet32": RESNET,
    "resnet18": {
        **RESNET,
        "stem": word("7x7", "7x7", "3x3"),
        "max_pool": flag(None),
        "weights": word(None),
    },
}


def check(place: str, option: Option, value: object) -> None:
    """Raise unless the value is of a kind, and among the words, that the option allows."""
    plain = float if type(value) is int and float in option.kinds else type(value)
    if plain not in option.kinds:
        raise ValueError(f"{place} must be {describe(option)}, got {value!r}.")
    if option.choices and isinstance(value, str) and value not in option.choices:
        raise ValueError(f"{place} must be {describe(option)}, got {value!r}.")


def describe(option: Option) -> str:
    """What an option allows, in words."""
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        tuple: "numbers with commas between",
        type(None): "none",
    }
    words = [*option.choices] if option.choices else ["a text"]
    said = [part for kind in option.kinds for part in (words if kind is str else [names[kind]])]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"
