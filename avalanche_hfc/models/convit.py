"""DyTox's encoder: patches with learned positions and timm's gated positional self-attention.

`b` images, `D` = embed_dim, `N` patches of an n × n grid.
"""

from typing import Any

import torch
from jaxtyping import Float
from timm.layers import PatchEmbed, trunc_normal_
from timm.models.convit import Block
from torch import Tensor, nn

from avalanche_hfc.models.features import stage_ends, token_map
from avalanche_hfc.models.modes import Recomputed


class ConViTEncoder(Recomputed):
    """DyTox's encoder: blocks of gated positional self-attention on patches.

    The defaults are the published size for CIFAR-100, 8.9 M parameters. There is no class token and
    no last norm.

    Args:
        image_size: Height and width of the images.
        patch_size: Height and width of a patch.
        embed_dim: Width D of a token.
        num_blocks: Number of blocks.
        num_heads: Number of attention heads.
        drop_path: Drop-path rate of the block after the encoder; the rates of the encoder's blocks
            rise from 0 towards it in equal steps.
        in_channels: Number of channels of the images.

    Shape:
        Images ``(b, c, height, width)`` in, tokens ``(b, N, D)`` out.

    Raises:
        ValueError: If sizes are not multiples of each other or a value is not allowed.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ConViTEncoder
        >>> encoder = ConViTEncoder(image_size=8, embed_dim=8, num_heads=2, num_blocks=1)
        >>> encoder(torch.zeros(1, 3, 8, 8)).shape
        torch.Size([1, 4, 8])
    """

    shares_prefix = False
    positions: Tensor

    def __init__(
        self,
        *,
        image_size: int = 32,
        patch_size: int = 4,
        embed_dim: int = 384,
        num_blocks: int = 5,
        num_heads: int = 12,
        drop_path: float | int = 0.1,
        in_channels: int = 3,
    ):
        super().__init__()
        if image_size % patch_size or embed_dim % num_heads:
            raise ValueError(
                "ConViTEncoder: image_size must be a multiple of patch_size and embed_dim of "
                f"num_heads, got {image_size} and {patch_size}, {embed_dim} and {num_heads}."
            )
        if num_blocks < 1 or not 0 <= drop_path < 1:
            raise ValueError(
                "ConViTEncoder: num_blocks must be 1 or more and drop_path in [0, 1), got "
                f"{num_blocks} and {drop_path}."
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.drop_path = drop_path
        self.patch_embed = PatchEmbed(image_size, patch_size, in_channels, embed_dim)
        self.pos_embed = nn.Parameter(torch.zeros(1, self.patch_embed.num_patches, embed_dim))
        rates = [drop_path * index / num_blocks for index in range(num_blocks)]
        blocks = (
            Block(embed_dim, num_heads, drop_path=rate, norm_layer=nn.LayerNorm, use_gpsa=True)
            for rate in rates
        )
        self.blocks = nn.ModuleList(blocks)
        positions = self.blocks[0].attn.get_rel_indices(self.patch_embed.num_patches)  # type: ignore[union-attr, operator]
        self.register_buffer("positions", positions, persistent=False)  # r_ij of GPSA
        self._initialise()

    def _initialise(self) -> None:
        trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            block.attn.local_init()  # type: ignore[union-attr, operator]

    def set_trainable(self, trainable: bool) -> None:
        """Train or freeze all parameters.

        Args:
            trainable: Whether parameters get gradients.
        """
        self.requires_grad_(trainable)

    def prefix(self, x: Float[Tensor, "b c height width"]) -> None:
        """Return None: no block is frozen permanently, so nothing can be shared with a teacher.

        Args:
            x: Images, shape ``(b, c, height, width)``.
        """

    def tokens(
        self, x: Float[Tensor, "b c height width"], prefix: Tensor | None = None
    ) -> Float[Tensor, "b N D"]:
        """The tokens of all patches after the last block.

        Args:
            x: Images, shape ``(b, c, height, width)``.
            prefix: Must be None; this encoder has no frozen blocks.

        Returns:
            Tokens of shape ``(b, N, D)``.
        """
        return self._outputs(x)[-1]

    def tokens_and_stages(
        self, x: Float[Tensor, "b c height width"]
    ) -> tuple[Tensor, list[Tensor]]:
        """The tokens and four feature maps of one forward pass.

        The maps are taken after blocks round(k · num_blocks / 4) for k = 1…4.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            The tokens, shape ``(b, N, D)``, and a list of four maps, each of shape ``(b, D, n,
            n)``.
        """
        outputs = self._outputs(x)
        grid: Any = self.patch_embed.grid_size
        return outputs[-1], [
            token_map(outputs[end - 1], 0, grid) for end in stage_ends(len(self.blocks))
        ]

    def forward(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b N D"]:
        return self.tokens(x)

    def _outputs(self, x: Tensor) -> list[Tensor]:
        """The tokens after each block."""
        outputs = [self.patch_embed(x) + self.pos_embed]
        for block in self.blocks:
            block.attn.rel_indices = self.positions  # type: ignore[union-attr]  # timm's own would be left behind by `.to`
            outputs.append(self.run_block(block, outputs[-1]))
        return outputs[1:]
