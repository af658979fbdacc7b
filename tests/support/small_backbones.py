"""Small encoders and plain ViTs for the tests."""

import torch

from avalanche_hfc.models import ConViTEncoder, ViT, ViTEncoder

SMALL = {
    "image_size": 8,
    "patch_size": 4,
    "backbone_options": {"embed_dim": 24, "num_heads": 3, "depth": 6},
}


def vit(kind=ViT, **changes):
    torch.manual_seed(0)
    return kind("vit_tiny_patch16_224", **(SMALL | changes))


def encoder(**changes):
    torch.manual_seed(0)
    return ConViTEncoder(
        **(
            {"image_size": 8, "patch_size": 2, "embed_dim": 20, "num_blocks": 5, "num_heads": 5}
            | changes
        )
    )


def vit_encoder(**changes):
    torch.manual_seed(0)
    options = {"embed_dim": 24, "num_heads": 3, "depth": 4}
    return ViTEncoder(
        "vit_tiny_patch16_224",
        image_size=8,
        patch_size=4,
        msa_blocks=3,
        backbone_options=options,
        **changes,
    )
