"""Task-shared attention (TSA), Eq. 3-4: one learned query pools the tokens of the encoder.

`b` samples, `N` tokens, `D` = embed_dim, `H` heads of `d` = D/H. The embedding E_0 is shared by all
samples and steps, so it has one row; the output of a block has a row per sample.
"""

import math

import torch
from jaxtyping import Float
from timm.layers import DropPath, Mlp, trunc_normal_
from torch import Tensor, nn


class TSABlock(nn.Module):
    """Task-shared attention (Eq. 3-4): a learned embedding attends to the tokens of an encoder.

    E_l = S + MLP(LN(S)), where S is the attention of LN(E_{l-1}) over LN(Z).

    Args:
        embed_dim: Width D of a token.
        num_heads: Number of attention heads, a divisor of `embed_dim`.
        residual: Use the block of the released code: the embedding is added to S and is also a key
            and a value.
        drop_path: Drop-path rate. With `residual` both branches of a sample can be dropped,
            otherwise the MLP only, because S has no path beside it.

    Shape:
        Embedding ``(1, D)`` or ``(b, D)`` and tokens ``(b, N, D)`` in, embedding ``(b, D)`` out.

    Raises:
        ValueError: If `embed_dim` is not a multiple of `num_heads`.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import TSABlock
        >>> block = TSABlock(8, num_heads=2)
        >>> block(torch.zeros(1, 8), torch.zeros(3, 5, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        residual: bool = False,
        drop_path: float | int = 0.0,
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"TSABlock: embed_dim {embed_dim} is not a multiple of num_heads {num_heads}."
            )
        self.num_heads = num_heads
        self.residual = residual
        self.norm1 = nn.LayerNorm(embed_dim, eps=1e-5)  # one for embedding and tokens
        self.query = nn.Linear(embed_dim, embed_dim, bias=False)
        self.key = nn.Linear(embed_dim, embed_dim, bias=False)
        self.value = nn.Linear(embed_dim, embed_dim, bias=False)
        self.project = nn.Linear(embed_dim, embed_dim)
        self.norm2 = nn.LayerNorm(embed_dim, eps=1e-5)
        self.mlp = Mlp(embed_dim, 4 * embed_dim, act_layer=nn.GELU)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(
        self, embedding: Float[Tensor, "#b D"], tokens: Float[Tensor, "b N D"]
    ) -> Float[Tensor, "b D"]:
        pooled = self.attention(self.norm1(embedding)[:, None], self.norm1(tokens))[:, 0]
        if self.residual:
            pooled = embedding + self.drop_path(pooled)
        return pooled + self.drop_path(self.mlp(self.norm2(pooled)))

    def attention(
        self, embeddings: Float[Tensor, "#b q D"], tokens: Float[Tensor, "b N D"]
    ) -> Float[Tensor, "b q D"]:
        """S of Eq. 3 for normalised inputs, for q embeddings in one pass.

        W_k is folded into the query and W_v is applied after pooling, so the N tokens are never
        projected.

        Args:
            embeddings: Normalised embeddings, shape ``(1, q, D)`` or ``(b, q, D)``.
            tokens: Normalised tokens, shape ``(b, N, D)``.

        Returns:
            The pooled embeddings, shape ``(b, q, D)``.
        """
        heads = self.num_heads
        head_dim = tokens.shape[-1] // heads
        query = self.query(embeddings).unflatten(-1, (heads, head_dim))  # (1|b, q, H, d)
        key = self.key.weight.unflatten(0, (heads, head_dim))  # (H, d, D)
        probe = torch.einsum("bqhd,hdD->bqhD", query / math.sqrt(head_dim), key).flatten(1, 2)
        scores = probe @ tokens.transpose(1, 2)  # (b, qH, N)
        if self.residual:
            queries = embeddings.repeat_interleave(heads, dim=1)  # (1|b, qH, D)
            first = (probe * queries).sum(-1, keepdim=True)  # each embedding as a key, (1|b, qH, 1)
            scores = torch.cat([first.expand(tokens.shape[0], -1, -1), scores], dim=-1)
        share = scores.softmax(-1).to(tokens.dtype)
        if self.residual:
            pooled = share[..., 1:] @ tokens + share[..., :1] * queries
        else:
            pooled = share @ tokens  # (b, qH, D)
        value = torch.einsum(
            "bqhD,hdD->bqhd",
            pooled.unflatten(1, (-1, heads)),
            self.value.weight.unflatten(0, (heads, head_dim)),
        )
        return self.project(value.flatten(2))
