"""The bottleneck adapters of the released code, parallel to a block's MLP."""

import math

from jaxtyping import Float
from timm.models.vision_transformer import Block
from torch import Tensor, nn


class Adapter(nn.Module):
    """0.1 · (D -> adapter_dim, ReLU, dropout 0.1, -> D). The last layer starts at 0: the adapter
    first adds nothing.
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
    """U + MLP(LN(U)) + adapter(U), U the residual stream after attention, not normalised.

    Holds the parts of a timm `Block` under their own names, so that a file of backbone weights fits
    with or without adapters.
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
        for name, part in block.named_children():
            self.add_module(name, part)
        self.adapter = Adapter(embed_dim, adapter_dim)

    def forward(self, tokens: Float[Tensor, "b N D"]) -> Float[Tensor, "b N D"]:
        tokens = tokens + self.drop_path1(self.ls1(self.attn(self.norm1(tokens))))
        return (
            tokens + self.drop_path2(self.ls2(self.mlp(self.norm2(tokens)))) + self.adapter(tokens)
        )
