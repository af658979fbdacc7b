"""A timm VisionTransformer by name, and timm's weights of it: from the cache of Hugging Face, else
downloaded in one try.
"""

import difflib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import timm
from huggingface_hub import (
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from timm.models import get_pretrained_cfg
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

Size = int | tuple[int, int] | None
FILE = "model.safetensors"
SHA256 = re.compile("[0-9a-f]{64}")  # the name of a large file in the cache is its checksum


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
    arguments = dict(options)
    if not arguments.get("class_token", True):
        arguments.setdefault("global_pool", "")  # timm's default pools by the class token
    if not timm.is_model(name):
        raise ValueError(f"Unknown backbone {name!r}. {similar_names(name)}")
    if pretrained:
        arguments["pretrained_cfg_overlay"] = {"file": str(weights_file(name))}
    try:
        vit = timm.create_model(
            name,
            pretrained=pretrained,
            num_classes=0,
            img_size=image_size,
            patch_size=patch_size,
            **arguments,
        )
    except (AssertionError, RuntimeError, TypeError) as error:
        asked = f"image_size={image_size}, patch_size={patch_size}, backbone_options={arguments}"
        raise ValueError(
            f"timm cannot build {name!r} with {asked}: {error}. {similar_names(name)}"
        ) from error
    check_plain(name, vit)
    check_divisible(vit)
    if isinstance(vit.norm, nn.Identity):  # averaging ViTs have their last norm after the pooling
        vit.norm, vit.fc_norm = vit.fc_norm, nn.Identity()
    vit.attn_pool = None
    return vit


def similar_names(name: str) -> str:
    known = [*timm.list_models("*vit*"), *timm.list_pretrained("*vit*")]
    near = difflib.get_close_matches(name, known, n=5)
    return f"Did you mean {', '.join(near)}?" if near else ""


def check_plain(name: str, vit: nn.Module) -> None:
    """Raise a ValueError unless the model consists of timm's plain blocks and keeps all patches."""
    if not isinstance(vit, VisionTransformer) or any(
        type(block) is not Block for block in vit.blocks
    ):
        raise ValueError(
            f"Backbone {name!r} is not one of timm's plain VisionTransformers, such as "
            "vit_base_patch16_224.mae."
        )
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


def weights_file(backbone: str) -> Path:
    """The file with timm's weights of a backbone. A file in the cache needs no network.

    Args:
        backbone: Name of a timm model with weights, such as ``vit_base_patch16_224.mae``.

    Returns:
        The file in the cache of Hugging Face.

    Raises:
        ValueError: If timm has no weights of this name on Hugging Face.
        ConnectionError: If the file is not in the cache and cannot be downloaded, or if its
            checksum is wrong.
    """
    config = get_pretrained_cfg(backbone, allow_unregistered=False)
    if config is None or not config.hf_hub_id:
        raise ValueError(f"timm has no weights of {backbone!r} on Hugging Face.")
    repository = config.hf_hub_id
    cached = try_to_load_from_cache(repository, FILE)
    if isinstance(cached, str):
        return Path(cached)
    url = hf_hub_url(repository, FILE)
    try:
        get_hf_file_metadata(url)  # one try: the download itself would try again and again
        path = Path(hf_hub_download(repository, FILE))
    except Exception as error:  # of the network, of its library, or of the server
        why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConnectionError(
            f"The weights of {backbone} are not on this machine and cannot be downloaded ({why}). "
            f"Get {url} elsewhere and name the file with --model.weights FILE, in Python "
            "weights=FILE; or start at random with none."
        ) from error
    check_sum(path)
    return path


def check_sum(path: Path) -> None:
    """Delete a file of the cache whose content is not what its name says, and raise."""
    blob = path.resolve()
    if not SHA256.fullmatch(blob.name):
        return
    with blob.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != blob.name:
        path.unlink()
        blob.unlink()
        raise ConnectionError(
            f"The download of {path.name} is damaged: its SHA-256 sum is {digest}, not "
            f"{blob.name}. It was deleted; try again."
        )
