"""A timm VisionTransformer by name, with a check of every value a user passes."""

import difflib
import inspect
from collections.abc import Mapping

import timm
from timm.models import get_pretrained_cfg, is_model_in_modules
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from avalanche_hfc.models.download import weights_file

Size = int | tuple[int, int] | None
PLAIN_MODULES = ("vision_transformer", "deit")  # of timm.models, where its VisionTransformers are
RESERVED_ARGUMENTS = {
    "img_size": "pass image_size",
    "patch_size": "pass patch_size",
    "num_classes": "the head grows with the classes",
    "block_fn": "plain blocks only",
    "device": "move the whole model",
    "dtype": "convert the whole model",
}


def build_backbone(
    name: str,
    image_size: Size,
    patch_size: Size,
    options: Mapping[str, object],
    *,
    pretrained: bool,
) -> VisionTransformer:
    """A plain ViT without classifier; its last norm acts on every token.

    `pretrained` downloads timm's weights.
    """
    check_name(name)
    check_family(name)
    check_options(options)
    vit = _create(name, image_size, patch_size, options, pretrained=pretrained)
    check_plain(name, vit)
    check_divisible(vit)
    if isinstance(vit.norm, nn.Identity):  # averaging ViTs have their last norm after the pooling
        vit.norm, vit.fc_norm = vit.fc_norm, nn.Identity()
    vit.attn_pool = None
    return vit


def _create(
    name: str,
    image_size: Size,
    patch_size: Size,
    options: Mapping[str, object],
    *,
    pretrained: bool,
) -> VisionTransformer:
    arguments = dict(options)
    if not arguments.get("class_token", True):
        arguments.setdefault("global_pool", "")  # timm's default pools by the class token
    if pretrained:
        arguments["pretrained_cfg_overlay"] = {"file": str(weights_file(name))}
    try:
        return timm.create_model(
            name,
            pretrained=pretrained,
            num_classes=0,
            img_size=image_size,
            patch_size=patch_size,
            **arguments,
        )
    except (AssertionError, TypeError) as error:
        asked = f"image_size={image_size}, patch_size={patch_size}, backbone_options={arguments}"
        raise ValueError(f"timm cannot build {name!r} with {asked}: {error}") from error


def check_name(name: str) -> None:
    """Raise a ValueError that suggests similar names if timm has no such model."""
    if timm.is_model(name) and _has_tag(name):
        return
    near = difflib.get_close_matches(
        name, timm.list_models("*vit*") + timm.list_pretrained("*vit*"), n=5
    )
    hint = (
        f"Did you mean {', '.join(near)}?" if near else "timm.list_models('vit_*') lists the names."
    )
    raise ValueError(f"Unknown backbone {name!r}. {hint}")


def _has_tag(name: str) -> bool:
    try:
        return get_pretrained_cfg(name) is not None or "." not in name
    except RuntimeError:
        return False


def check_family(name: str) -> None:
    """Raise a ValueError unless the model is a plain VisionTransformer."""
    if not is_model_in_modules(name, PLAIN_MODULES):
        raise ValueError(
            f"Backbone {name!r} is not one of timm's plain VisionTransformers, such as "
            "vit_base_patch16_224.mae."
        )


def check_options(options: Mapping[str, object]) -> None:
    """Raise a ValueError unless every key is an argument of timm's VisionTransformer."""
    known = sorted(
        set(inspect.signature(VisionTransformer.__init__).parameters)
        - {"self", *RESERVED_ARGUMENTS}
    )
    for key in options:
        if key in RESERVED_ARGUMENTS:
            raise ValueError(
                f"backbone_options: {key!r} is not an option: {RESERVED_ARGUMENTS[key]}."
            )
        if key not in known:
            near = difflib.get_close_matches(key, known, n=3)
            hint = f"Did you mean {', '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise ValueError(f"backbone_options: unknown key {key!r}. {hint}")


def check_plain(name: str, vit: VisionTransformer) -> None:
    """Raise a ValueError unless the model consists of timm's plain blocks and keeps all patches."""
    other = next((type(block).__name__ for block in vit.blocks if type(block) is not Block), None)
    if other is not None:
        raise ValueError(f"Backbone {name!r} is made of {other}; only timm's plain Block will do.")
    if not isinstance(vit.patch_drop, nn.Identity):
        raise ValueError(
            "backbone_options: patch_drop_rate must be 0: TSAViT gives the tokens of every patch."
        )


def check_divisible(vit: VisionTransformer) -> None:
    """Raise if patches do not cover the image; timm would accept it and drop the rest."""
    for size, patch in zip(
        vit.patch_embed.img_size or (), vit.patch_embed.patch_size, strict=False
    ):
        if size % patch:
            nearest = max(1, round(size / patch)) * patch
            raise ValueError(
                f"image_size {size} is not a multiple of patch_size {patch}; the nearest is "
                f"{nearest}."
            )
