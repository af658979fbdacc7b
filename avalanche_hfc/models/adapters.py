"""The bottleneck adapters of the released code, parallel to a block's MLP."""

import math

from jaxtyping import Float
from timm.models.vision_transformer import Block
from torch import Tensor, nn


class Adapter(nn.Module):
    """Bottleneck adapter of HFC's released code: scale · up(dropout(relu(down(x)))).

    The last layer is initialised with 0, so the adapter adds nothing at first.

    Args:
        embed_dim: Width D of a token.
        adapter_dim: Width of the bottleneck.
        scale: Factor of the output.
        dropout: Probability of dropping a hidden value.

    Shape:
        Tokens ``(b, N, D)`` in, ``(b, N, D)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import Adapter
        >>> Adapter(8, 2)(torch.ones(1, 3, 8)).abs().sum().item()
        0.0
    """

    def __init__(
        self, embed_dim: int, adapter_dim: int, *, scale: float = 0.1, dropout: float = 0.1
    ):
        super().__init__()
        self.scale = scale
        self.down = nn.Linear(embed_dim, adapter_dim)
        self.dropout = nn.Dropout(dropout)
        self.up = nn.Linear(adapter_dim, embed_dim)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        for parameter in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(parameter)

    def forward(self, tokens: Float[Tensor, "b N D"]) -> Float[Tensor, "b N D"]:
        return self.scale * self.up(self.dropout(self.down(tokens).relu()))


class AdaptedBlock(nn.Module):
    """A timm block with an adapter parallel to its MLP: U + MLP(LN(U)) + adapter(U).

    U is the residual stream after attention, not normalised. The modules of the block keep their
    names, so a file of backbone weights fits with or without adapters.

    Args:
        block: A `Block` of timm's VisionTransformer; its modules are shared, not copied.
        embed_dim: Width D of a token.
        adapter_dim: Width of the adapter's bottleneck.

    Shape:
        Tokens ``(b, N, D)`` in, ``(b, N, D)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import AdaptedBlock
        >>> from timm.models.vision_transformer import Block
        >>> block, tokens = Block(8, num_heads=2).eval(), torch.randn(1, 3, 8)
        >>> torch.equal(AdaptedBlock(block, 8, 2).eval()(tokens), block(tokens))
        True
    """

    norm1: nn.Module
    attn: nn.Module
    ls1: nn.Module
    drop_path1: nn.Module
    norm2: nn.Module
    mlp: nn.Module
    ls2: nn.Module
    drop_path2: nn.Module

    def __init__(self, block: Block, embed_dim: int, adapter_dim: int):
        super().__init__()
        for name, module in block.named_children():
            self.add_module(name, module)
        self.adapter = Adapter(embed_dim, adapter_dim)

    def forward(self, tokens: Float[Tensor, "b N D"]) -> Float[Tensor, "b N D"]:
        tokens = tokens + self.drop_path1(self.ls1(self.attn(self.norm1(tokens))))
        return (
            tokens + self.drop_path2(self.ls2(self.mlp(self.norm2(tokens)))) + self.adapter(tokens)
        )
