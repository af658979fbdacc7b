"""The geometry of a ViT that a weights file was made for. torch is imported when a file is read."""

import re
from pathlib import Path

from avalanche_hfc.recipes.options import Value

FROM_FILE = "the weights file"
# timm's plain ViTs by their width; the heads of all of them have 64 dimensions
BACKBONES = {
    192: "vit_tiny_patch16_224",
    384: "vit_small_patch16_224",
    768: "vit_base_patch16_224.mae",
    1024: "vit_large_patch16_224.mae",
}
GEOMETRY = (
    "model.backbone",
    "model.embed_dim",
    "model.num_heads",
    "model.patch_size",
    "model.msa_blocks",
)
PATCHES = re.compile(r"(?:.*\.)?patch_embed\.proj\.weight")
BLOCK = re.compile(r"(?:.*\.)?blocks\.(\d+)\.")


def geometry_of(path: Path) -> dict[str, Value]:
    """Values of a recipe's model by which a file fits: width, patches and number of blocks.

    Args:
        path: A weights file.

    Returns:
        Values by leaf: those of timm's backbone of this width, whose own geometry the leaves at
        None stand for. Empty for a file that is of no plain ViT of timm.
    """
    from avalanche_hfc.models.weights import read_tensors

    tensors = read_tensors(path)
    patches = [tensor for name, tensor in tensors.items() if PATCHES.fullmatch(name)]
    if len(patches) != 1 or patches[0].ndim != 4 or patches[0].shape[0] not in BACKBONES:
        return {}
    width, _, patch_size, _ = patches[0].shape
    depth = len({match[1] for name in tensors if (match := BLOCK.match(name))})
    return {
        "model.backbone": BACKBONES[width],
        "model.embed_dim": None,
        "model.num_heads": None,
        "model.patch_size": patch_size,
        "model.msa_blocks": depth,
    }


def fitted(leaves: dict[str, Value], changed: dict[str, Value]) -> dict[str, Value]:
    """What a weights file among the changed values changes further: the geometry, where the file's
    width is not the recipe's and the user has chosen none.
    """
    weights = changed.get("model.weights")
    if not isinstance(weights, str) or not Path(weights).is_file():
        return {}
    if leaves.get("model.embed_dim") is None or any(leaf in changed for leaf in GEOMETRY):
        return {}
    geometry = geometry_of(Path(weights))
    if geometry and leaves["model.kind"] != "vit":
        blocks = int(str(geometry["model.msa_blocks"]))
        geometry["model.msa_blocks"] = blocks - 1  # TSA is the last one
    return geometry
