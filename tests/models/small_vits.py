"""Small models and images for the tests of TSAViT."""

import torch

from avalanche_hfc.models import TSAViT


def small(**changes):
    torch.manual_seed(0)
    options = {"embed_dim": 24, "num_heads": 3, "depth": 6} | changes.pop("backbone_options", {})
    arguments = {"image_size": 8, "patch_size": 4, "msa_blocks": 4} | changes
    return TSAViT("vit_tiny_patch16_224", backbone_options=options, **arguments)


def images(batch=3, channels=3, size=8, dtype=torch.float32):
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(1)).to(dtype)
