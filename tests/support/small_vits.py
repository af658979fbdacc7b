"""Small models and images for the tests of TSAViT."""

import torch
import torch.nn.functional as F

from avalanche_hfc.models import TSAViT


def small(**changes):
    torch.manual_seed(0)
    options = {"embed_dim": 24, "num_heads": 3, "depth": 6} | changes.pop("backbone_options", {})
    arguments = {"image_size": 8, "patch_size": 4, "msa_blocks": 4} | changes
    return TSAViT("vit_tiny_patch16_224", backbone_options=options, **arguments)


def assert_map(stage, tokens, grid):
    """Each place of a map is its patch token, brought to mean 0 and variance 1 over the channels;
    `tokens` are those of the patches.
    """
    rows, columns = grid
    assert stage.shape == (*tokens.shape[::2], rows, columns) and tokens.shape[1] == rows * columns
    for row in range(rows):
        for column in range(columns):
            expected = F.layer_norm(tokens[:, row * columns + column], tokens.shape[-1:])
            torch.testing.assert_close(stage[:, :, row, column], expected, rtol=1e-5, atol=1e-5)
    centred = tokens - tokens.mean(-1, keepdim=True)
    by_hand = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(stage.flatten(2).transpose(1, 2), by_hand, rtol=1e-4, atol=1e-5)


def images(batch=3, channels=3, size=8, dtype=torch.float32):
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(1)).to(
        dtype
    )
