"""TSAViT: a timm ViT encoder, TSA blocks (Eq. 3-4) and a growing head. ViT: the same encoder,
pooled by its class token.

`b` images, `D` = embed_dim, `C` columns. The `T` tokens are the prefix tokens (class, registers),
then the patches of an h × w grid.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from timm.layers import trunc_normal_
from torch import Tensor, nn

from avalanche_hfc.models.backbone import Size
from avalanche_hfc.models.encoder import Weights, _BlocksOfViT
from avalanche_hfc.models.features import EmbeddingModel, Features, gradients_of, token_map_gradient
from avalanche_hfc.models.heads import GrowingLinear
from avalanche_hfc.models.tsa import TSABlock


class _PooledViT(_BlocksOfViT, EmbeddingModel):
    """Blocks of a ViT, one embedding from their tokens, `head`."""

    def embed(
        self, x: Float[Tensor, "b c height width"], prefix: Float[Tensor, "b T D"] | None = None
    ) -> Float[Tensor, "b D"]:
        """E, the input of the head. `prefix` is what `prefix(x)` gave here or in a model with the
        same frozen blocks; x is then unread.
        """
        return self._pool(self.tokens(x, prefix))

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        """Embedding, stages and tokens of one forward. The class says which blocks end the stages;
        `token_map` makes them maps.
        """
        tokens, stages = self.tokens_and_stages(x)
        return Features(self._pool(tokens), stages, tokens)

    def stage_gradients(
        self, x: Float[Tensor, "b c height width"], loss: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        tokens, ends = self._tokens_and_ends(x)
        gradients = gradients_of(loss(self._pool(tokens)), ends)
        prefix, grid = self.backbone.num_prefix_tokens, self._grid(x)
        return [
            token_map_gradient(gradient, end.detach(), prefix, grid)
            for gradient, end in zip(gradients, ends, strict=True)
        ]

    def _pool(self, tokens: Float[Tensor, "b T D"]) -> Float[Tensor, "b D"]:
        raise NotImplementedError


class TSAViT(_PooledViT):
    """`msa_blocks` blocks of a timm ViT and its last norm, `tsa_blocks` TSA blocks, `head`.

    `weights` is None (random), "timm" (fetch those of the backbone's tag) or a path
    (`load_weights`; the report is kept as `load_report`). `frozen_blocks` = n > 0 freezes the
    embeddings and the first n blocks, not their adapters; `adapter_dim` = 0 is no adapter.
    `embedding_std` is the spread of E_0 at the start; 0 is the released code's. `drop_path` acts in
    the TSA blocks only. The maps are the patch tokens after blocks round(k · l_m / 4), k = 1…4, of
    l_m = `msa_blocks`: TSA reads those of the last as well.
    """

    def __init__(
        self,
        backbone: str = "vit_base_patch16_224.mae",
        *,
        image_size: Size = None,
        patch_size: Size = None,
        msa_blocks: int | None = None,
        tsa_blocks: int = 1,
        residual: bool = False,
        adapter_dim: int = 0,
        frozen_blocks: int = 0,
        drop_path: float | int = 0.0,
        weights: Weights = None,
        backbone_options: Mapping[str, object] | None = None,
        embedding_std: float | int = 0.02,
    ):
        self._check_own(tsa_blocks, drop_path, embedding_std)
        super().__init__(
            backbone,
            image_size=image_size,
            patch_size=patch_size,
            msa_blocks=msa_blocks,
            tsa_blocks=tsa_blocks,
            adapter_dim=adapter_dim,
            frozen_blocks=frozen_blocks,
            weights=weights,
            backbone_options=backbone_options,
        )
        self.shared_embedding = nn.Parameter(torch.zeros(1, self.embed_dim))
        if embedding_std:
            trunc_normal_(self.shared_embedding, std=embedding_std)
        blocks = (
            TSABlock(self.embed_dim, self.num_heads, residual=residual, drop_path=drop_path)
            for _ in range(tsa_blocks)
        )
        self.tsa = nn.ModuleList(blocks)
        self.head = GrowingLinear(self.embed_dim)
        self._take(weights)

    def _check_own(
        self, tsa_blocks: int, drop_path: float | int, embedding_std: float | int
    ) -> None:
        if tsa_blocks < 1:
            raise ValueError(f"TSAViT: tsa_blocks must be 1 or more, got {tsa_blocks}.")
        self._check_not_negative(embedding_std=embedding_std)
        if not 0 <= drop_path < 1:
            raise ValueError(f"TSAViT: drop_path must be in [0, 1), got {drop_path}.")

    def _pool(self, tokens: Float[Tensor, "b T D"]) -> Float[Tensor, "b D"]:
        embedding: Tensor = self.shared_embedding
        for block in self.tsa:
            embedding = block(embedding, tokens)
        return embedding


class ViT(_PooledViT):
    """The first `msa_blocks` blocks (None: all) of a timm ViT and its last norm; the class token is
    the embedding. Arguments: TSAViT's.

    Nothing reads the patch tokens of the last of the l_m blocks, so the maps are taken after blocks
    round(k · (l_m - 1) / 4), k = 1…4: 3, 6, 8 and 11 of 12. With two blocks all four are those of
    the first, with one the patches that enter it.
    """

    def __init__(
        self,
        backbone: str = "vit_base_patch16_224.mae",
        *,
        image_size: Size = None,
        patch_size: Size = None,
        msa_blocks: int | None = None,
        adapter_dim: int = 0,
        frozen_blocks: int = 0,
        weights: Weights = None,
        backbone_options: Mapping[str, object] | None = None,
    ):
        super().__init__(
            backbone,
            image_size=image_size,
            patch_size=patch_size,
            msa_blocks=msa_blocks,
            tsa_blocks=0,
            adapter_dim=adapter_dim,
            frozen_blocks=frozen_blocks,
            weights=weights,
            backbone_options=backbone_options,
        )
        self.head = GrowingLinear(self.embed_dim)
        self._take(weights)

    def _check_backbone(self, vit: nn.Module) -> None:
        if vit.cls_token is None:
            raise ValueError(
                "ViT: the embedding is the class token, and this backbone has none; leave "
                "out class_token=False."
            )

    def _num_read(self) -> int:
        return self.msa_blocks - 1

    def _pool(self, tokens: Float[Tensor, "b T D"]) -> Float[Tensor, "b D"]:
        return tokens[:, 0]
