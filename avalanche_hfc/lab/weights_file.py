"""The geometry of a ViT that a weights file was made for. torch is imported when a file is read."""

import re
from pathlib import Path

from avalanche_hfc.lab.options import Value

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


def geometry_of(path: Path) -> dict[str, Value]:
    """Values of a recipe's model by which a file fits: width, patches and number of blocks.

    Args:
        path: A weights file.

    Returns:
        Values by leaf: those of timm's backbone of this width, whose own geometry the leaves at
        None stand for. Empty for a file that is of no plain ViT of timm.
    """
    from avalanche_hfc.models.weights import blocks_in, read_tensors

    tensors = read_tensors(path)
    patches = [tensor for name, tensor in tensors.items() if PATCHES.fullmatch(name)]
    if len(patches) != 1 or patches[0].ndim != 4 or patches[0].shape[0] not in BACKBONES:
        return {}
    width, _, patch_size, _ = patches[0].shape
    depth = max(blocks_in(tensors).values(), default=0)
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


def check_blocks(leaves: dict[str, Value]) -> None:
    """A ValueError for a network with more blocks than its weights file, which would start the
    others at random.
    """
    weights, blocks = leaves.get("model.weights"), leaves.get("model.msa_blocks")
    if not isinstance(weights, str) or not isinstance(blocks, int):
        return
    from avalanche_hfc.models.weights import PACKAGED, blocks_in, read_tensors

    packaged = PACKAGED / f"{weights}.safetensors"
    path = packaged if packaged.is_file() else Path(weights)
    if not path.is_file():
        return
    held = max(blocks_in(read_tensors(path)).values(), default=0)
    if 0 < held < blocks:
        raise ValueError(
            f"model.msa_blocks must be at most {held}, the blocks of the weights file {weights}, "
            f"got {blocks}. Or start at random: --model.weights none."
        )
