"""A timm ViT with a growing head: TSAViT pools by TSA blocks (Eq. 3-4), ViT by its class token.

`b` images, `D` = embed_dim, `C` columns. The `T` tokens are the prefix tokens (class, registers),
followed by the patches of an h × w grid.
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
    """Blocks of a ViT, one embedding from their tokens, and a growing head."""

    def embed(
        self, x: Float[Tensor, "b c height width"], prefix: Float[Tensor, "b T D"] | None = None
    ) -> Float[Tensor, "b D"]:
        """The input of the head.

        Args:
            x: Images, shape ``(b, c, height, width)``.
            prefix: The result of `prefix` of this model or of a model with the same frozen blocks;
                `x` is then not read.

        Returns:
            Embeddings of shape ``(b, D)``.
        """
        return self._pool(self.tokens(x, prefix))

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        """Embedding, feature maps and tokens of one forward pass.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            The features that a method can distil.
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
    """HFC's model: blocks of a timm ViT, task-shared attention (TSA, Eq. 3-4) and a growing head.

    The feature maps are the patch tokens after blocks round(k · msa_blocks / 4), k = 1…4.

    Args:
        backbone: Name of a plain timm VisionTransformer.
        image_size: Height and width of the images, as one number or a pair. By default the
            backbone's.
        patch_size: Height and width of a patch. By default the backbone's.
        msa_blocks: Number l_m of backbone blocks. By default those that `tsa_blocks` leave.
        tsa_blocks: Number l_t of TSA blocks.
        residual: Use the TSA block of the released code, see `TSABlock`.
        adapter_dim: Width of an adapter beside the MLP of each block; 0 for none.
        frozen_blocks: Number of blocks, from the first on, that are frozen together with the
            embeddings. Their adapters still train.
        drop_path: Drop-path rate of the TSA blocks.
        weights: None for random weights, ``"timm"`` to download those of the backbone, or the path
            of a file; see `load_weights`. The report is kept as `load_report`.
        backbone_options: Further arguments of timm's VisionTransformer.
        embedding_std: Standard deviation of the shared embedding E_0 at the start; 0 in the
            released code.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Raises:
        ValueError: If the backbone is unknown or not a plain VisionTransformer, or a value is not
            allowed.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import TSAViT
        >>> options = dict(embed_dim=16, depth=2, num_heads=2)
        >>> model = TSAViT(image_size=32, patch_size=8, backbone_options=options)
        >>> model.head.grow(range(10))
        >>> model(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
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
        if tsa_blocks < 1 or embedding_std < 0 or not 0 <= drop_path < 1:
            raise ValueError(
                "TSAViT: tsa_blocks must be 1 or more, embedding_std 0 or more and drop_path in "
                f"[0, 1), got {tsa_blocks}, {embedding_std} and {drop_path}."
            )
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

    def _pool(self, tokens: Float[Tensor, "b T D"]) -> Float[Tensor, "b D"]:
        embedding: Tensor = self.shared_embedding
        for block in self.tsa:
            embedding = block(embedding, tokens)
        return embedding


class ViT(_PooledViT):
    """A timm ViT with a growing head on its class token.

    The last block's patch tokens are not read by the head, so the feature maps are taken after
    blocks round(k · (msa_blocks - 1) / 4), k = 1…4: blocks 3, 6, 8 and 11 of 12. With two blocks
    all four maps are those of the first, with one block they are the patches that enter it.

    Args:
        backbone: Name of a plain timm VisionTransformer.
        image_size: Height and width of the images, as one number or a pair. By default the
            backbone's.
        patch_size: Height and width of a patch. By default the backbone's.
        msa_blocks: Number l_m of blocks. By default all of the backbone.
        adapter_dim: Width of an adapter beside the MLP of each block; 0 for none.
        frozen_blocks: Number of blocks, from the first on, that are frozen together with the
            embeddings. Their adapters still train.
        weights: None for random weights, ``"timm"`` to download those of the backbone, or the path
            of a file; see `load_weights`. The report is kept as `load_report`.
        backbone_options: Further arguments of timm's VisionTransformer.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Raises:
        ValueError: If the backbone is unknown or not a plain VisionTransformer, or a value is not
            allowed.
        ValueError: If the backbone has no class token.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ViT
        >>> options = dict(embed_dim=16, depth=2, num_heads=2)
        >>> model = ViT(image_size=32, patch_size=8, backbone_options=options)
        >>> model.head.grow(range(10))
        >>> model(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
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
