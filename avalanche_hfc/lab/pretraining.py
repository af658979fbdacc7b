"""What a pre-training is: a frozen dataclass of plain values. No torch."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from avalanche_hfc.lab.schema import positive

DTYPES = ("float16", "float32")
WARM_UP = 3  # epochs, if there are more


def setting(default: Any, help: str) -> Any:
    """A value of the recipe, with a sentence for the command line."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe:
    """A masked-autoencoder pre-training. The defaults are those of the weights `small-mae`; the
    warm-up is of three epochs, or of all but one if there are fewer.

    Raises:
        ValueError: A value is out of its range.

    Example:
        >>> PretrainRecipe(epochs=100).lr
        0.001
    """

    epochs: int = setting(40, "Passes over the images.")
    backbone: str = setting("vit_tiny_patch16_224", "A plain ViT of timm, by name.")
    image_size: int = setting(32, "Images are resized to squares of this side, in pixels.")
    patch_size: int = setting(8, "Side of a patch, in pixels.")
    msa_blocks: int = setting(6, "Blocks of the encoder.")
    mask_ratio: float = setting(0.75, "Share of the patches that is masked.")
    decoder_blocks: int = setting(2, "Blocks of the decoder.")
    decoder_dim: int = setting(96, "Width of the decoder.")
    decoder_heads: int = setting(3, "Attention heads of the decoder.")
    batch_size: int = setting(256, "Images per update; an incomplete last batch is left out.")
    lr: float = setting(1e-3, "Highest learning rate of AdamW.")
    weight_decay: float = setting(0.05, "Of AdamW; norms and biases have none.")
    warm_up_epochs: int = setting(
        None,
        f"Epochs in which the learning rate rises  [default: {WARM_UP}, or epochs - 1 if less]",
    )
    smallest_crop: float = setting(0.4, "Smallest area of a random crop; 1 is the whole image.")
    dtype: str = setting("float32", "Of the weights file: float16 or float32.")

    def __post_init__(self) -> None:
        if self.warm_up_epochs is None:
            object.__setattr__(self, "warm_up_epochs", min(WARM_UP, self.epochs - 1))
        may_be_zero = ("warm_up_epochs", "weight_decay")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name in may_be_zero and not 0 <= value < float("inf"):
                raise ValueError(f"pretrain.{setting.name} must be 0 or more, got {value!r}.")
            if not isinstance(value, str) and setting.name not in may_be_zero:
                positive("pretrain", **{setting.name: value})
        for name in ("mask_ratio", "smallest_crop"):
            if getattr(self, name) > 1:
                raise ValueError(f"pretrain.{name} must be at most 1, got {getattr(self, name)}.")
        if self.warm_up_epochs >= self.epochs:
            raise ValueError(
                f"pretrain.warm_up_epochs must be below epochs ({self.epochs}), got "
                f"{self.warm_up_epochs}."
            )
        if self.dtype not in DTYPES:
            raise ValueError(f"pretrain.dtype must be {' or '.join(DTYPES)}, got {self.dtype!r}.")

    def as_dict(self) -> dict[str, Any]:
        """The values by name."""
        return asdict(self)


def is_pretraining(values: Mapping[str, Any]) -> bool:
    """Whether these are the values of a pre-training, not of a recipe."""
    return {setting.name for setting in fields(PretrainRecipe)} <= values.keys()


def pretrain_command(values: Mapping[str, Any], seed: int, out: str) -> str:
    """The command of a pre-training in a folder, with DATA for its images."""
    epochs = values["epochs"]
    defaults = PretrainRecipe(epochs=epochs).as_dict() | {"epochs": PretrainRecipe().epochs}
    changed = {"out": out, "seed": seed} | {
        name: values[name] for name in defaults if values[name] != defaults[name]
    }
    words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in changed.items()]
    return shlex.join(["hfc", "pretrain", "DATA", *(word for pair in words for word in pair)])
