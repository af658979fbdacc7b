"""A masked autoencoder (He et al., CVPR 2022) around a ViTEncoder: pre-training without labels.

`b` images of `N` patches, `k` of them visible and `m` masked; `P` numbers in a patch.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from timm.layers import trunc_normal_
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from avalanche_hfc.models.encoder import ViTEncoder


class Reconstruction(NamedTuple):
    """What the decoder says of the masked patches."""

    predicted: Float[Tensor, "b m P"]  # their normalised pixels
    masked: Int[Tensor, "b m"]  # their numbers, row by row from the top left


class MaskedAutoencoder(nn.Module):
    """An encoder that sees the visible patches only, and a light decoder that predicts the others.

    Args:
        encoder: The encoder to pre-train.
        mask_ratio: Share of the patches that is masked.
        decoder_blocks: Transformer blocks of the decoder.
        decoder_dim: Width of the decoder.
        decoder_heads: Attention heads of the decoder.

    Raises:
        ValueError: No patch would be visible, or none masked; `decoder_dim` is not a multiple of
            `decoder_heads`.

    Example:
        >>> encoder = ViTEncoder(
        ...     "vit_tiny_patch16_224", image_size=32, patch_size=8, msa_blocks=2
        ... )
        >>> model = MaskedAutoencoder(encoder)
        >>> predicted, masked = model(torch.zeros(5, 3, 32, 32), torch.rand(5, 16))
        >>> tuple(predicted.shape), tuple(masked.shape)  # 12 of 16 patches, 8 · 8 · 3 numbers each
        ((5, 12, 192), (5, 12))
    """

    def __init__(
        self,
        encoder: ViTEncoder,
        *,
        mask_ratio: float = 0.75,
        decoder_blocks: int = 2,
        decoder_dim: int = 96,
        decoder_heads: int = 3,
    ):
        super().__init__()
        patch_embed = encoder.backbone.patch_embed
        self.num_patches: int = patch_embed.num_patches
        self.num_masked = round(mask_ratio * self.num_patches)
        if not 0 < self.num_masked < self.num_patches:
            raise ValueError(
                f"MaskedAutoencoder: mask_ratio {mask_ratio} masks {self.num_masked} of "
                f"{self.num_patches} patches; at least one must be masked and one visible."
            )
        if decoder_dim % decoder_heads:
            raise ValueError(
                f"MaskedAutoencoder: decoder_dim {decoder_dim} is not a multiple of "
                f"decoder_heads {decoder_heads}."
            )
        self.encoder = encoder
        self.patch_size: tuple[int, int] = tuple(patch_embed.patch_size)
        self.num_prefix: int = encoder.backbone.num_prefix_tokens
        self.embed = nn.Linear(encoder.embed_dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.empty(1, 1, decoder_dim))
        self.positions = nn.Parameter(
            torch.empty(1, self.num_prefix + self.num_patches, decoder_dim)
        )
        self.decoder = nn.Sequential(
            *(Block(decoder_dim, decoder_heads, qkv_bias=True) for _ in range(decoder_blocks)),
            nn.LayerNorm(decoder_dim, eps=1e-6),
        )
        channels = patch_embed.proj.in_channels
        self.predict = nn.Linear(decoder_dim, channels * self.patch_size[0] * self.patch_size[1])
        for parameter in (self.mask_token, self.positions):
            trunc_normal_(parameter, std=0.02)

    def forward(
        self, x: Float[Tensor, "b c height width"], noise: Float[Tensor, "b N"]
    ) -> Reconstruction:
        """Mask the patches with the largest `noise` of each image and predict them.

        Args:
            x: Images.
            noise: One number per patch, without ties; uniform noise masks at random.
        """
        order = noise.argsort(dim=1)
        num_visible = self.num_patches - self.num_masked
        visible, masked = order[:, :num_visible], order[:, num_visible:]
        known = self.embed(self.encoder.visible_tokens(x, visible))
        prefix, patches = known[:, : self.num_prefix], known[:, self.num_prefix :]
        hidden = self.mask_token.expand(len(x), self.num_patches, -1)
        filled = hidden.scatter(1, _for_each(visible, patches), patches)
        decoded = self.decoder(torch.cat([prefix, filled], 1) + self.positions)[
            :, self.num_prefix :
        ]
        return Reconstruction(self.predict(decoded.gather(1, _for_each(masked, decoded))), masked)

    def patches(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b N P"]:
        """The pixels of every patch, in the order of `predicted`."""
        return F.unfold(x, self.patch_size, stride=self.patch_size).transpose(1, 2)

    def masked_patches(
        self, x: Float[Tensor, "b c height width"], masked: Int[Tensor, "b m"]
    ) -> Float[Tensor, "b m P"]:
        """The pixels of the masked patches."""
        patches = self.patches(x)
        return patches.gather(1, _for_each(masked, patches))

    def with_patches(
        self,
        x: Float[Tensor, "b c height width"],
        masked: Int[Tensor, "b m"],
        replacement: Float[Tensor, "b m P"],
    ) -> Float[Tensor, "b c height width"]:
        """The images with the masked patches replaced."""
        patches = self.patches(x)
        filled = patches.scatter(1, _for_each(masked, patches), replacement)
        return F.fold(
            filled.transpose(1, 2), tuple(x.shape[-2:]), self.patch_size, stride=self.patch_size
        )


def _for_each(index: Int[Tensor, "b n"], values: Tensor) -> Int[Tensor, "b n width"]:
    """An index of patches as `gather` and `scatter` need it, for values (b, any, width)."""
    return index.unsqueeze(-1).expand(-1, -1, values.shape[-1])
