"""TSAViT: a timm ViT encoder, TSA blocks (Eq. 3-4) and a growing head.

`b` images, `D` = embed_dim, `C` columns. The `T` tokens are the prefix tokens (class, registers), then the patches of an h × w grid.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float
from timm.layers import trunc_normal_
from torch import Tensor, nn

from avalanche_hfc.models.adapters import AdaptedBlock, Adapter
from avalanche_hfc.models.backbone import Size, build_backbone
from avalanche_hfc.models.heads import GrowingLinear
from avalanche_hfc.models.tsa import TSABlock
from avalanche_hfc.models.weights import LoadReport, load_weights


class Features(NamedTuple):
    """What a method may distil, from one forward."""

    embedding: Float[Tensor, "b D"]  # input of the head
    stages: list[Tensor]  # four (b, D, h, w): patch tokens after a quarter, half, three quarters and all of the MSA blocks
    tokens: Float[Tensor, "b T D"]  # after the last norm, prefix tokens first


class TSAViT(DynamicModule):
    """`msa_blocks` blocks of a timm ViT and its last norm, `tsa_blocks` TSA blocks, `head`.

    `weights` is None (random), "timm" (fetch those of the backbone's tag) or a path (`load_weights`; the report is kept as `load_report`).
    `frozen_blocks` = n > 0 freezes the embeddings and the first n blocks, not their adapters; `adapter_dim` = 0 is no adapter.
    `embedding_std` is the spread of E_0 at the start; 0 is the released code's. `drop_path` acts in the TSA blocks only.
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
        weights: str | PathLike[str] | None = None,
        backbone_options: Mapping[str, Any] | None = None,
        embedding_std: float | int = 0.02,
    ):
        super().__init__()
        _check_ranges(tsa_blocks, adapter_dim, frozen_blocks, drop_path, embedding_std)
        vit = build_backbone(backbone, image_size, patch_size, backbone_options or {}, pretrained=False)
        self.msa_blocks = _num_kept(msa_blocks, len(vit.blocks), tsa_blocks, frozen_blocks)
        if weights == "timm":  # fetched only now that everything has been checked
            vit = build_backbone(backbone, image_size, patch_size, backbone_options or {}, pretrained=True)
        self.backbone_name = backbone
        self.pretrained_tag: str | None = vit.pretrained_cfg.get("tag") or None
        self.frozen_blocks = frozen_blocks
        self.embed_dim: int = vit.embed_dim
        num_heads = vit.blocks[0].attn.num_heads
        vit.blocks = vit.blocks[: self.msa_blocks]
        if adapter_dim:
            vit.blocks = nn.Sequential(*(AdaptedBlock(block, self.embed_dim, adapter_dim) for block in vit.blocks))
        self.backbone = vit
        self.shared_embedding = nn.Parameter(torch.zeros(1, self.embed_dim))
        if embedding_std:
            trunc_normal_(self.shared_embedding, std=embedding_std)
        self.tsa = nn.ModuleList(TSABlock(self.embed_dim, num_heads, residual=residual, drop_path=drop_path) for _ in range(tsa_blocks))
        self.head = GrowingLinear(self.embed_dim)
        self.shares_prefix = frozen_blocks > 0 and not adapter_dim
        self._freeze()
        self.load_report: LoadReport | None = None if weights in (None, "timm") else load_weights(self, weights)
        self.train()

    def _freeze(self) -> None:
        if self.frozen_blocks:
            for parameter in self._embedding_parameters():
                parameter.requires_grad_(False)
            for block in self.backbone.blocks[: self.frozen_blocks]:
                block.requires_grad_(False)
                for part in block.modules():
                    if isinstance(part, Adapter):
                        part.requires_grad_(True)

    def _embedding_parameters(self) -> list[nn.Parameter]:
        """Everything in front of the first block."""
        behind = ("blocks.", "norm.")
        return [parameter for name, parameter in self.backbone.named_parameters() if not name.startswith(behind)]

    def train(self, mode: bool = True) -> "TSAViT":
        """A frozen prefix without adapters stays in eval mode: it is one function, whoever asks."""
        super().train(mode)
        if self.shares_prefix:
            vit = self.backbone
            for module in (vit.patch_embed, vit.pos_drop, vit.norm_pre, *vit.blocks[: self.frozen_blocks]):
                module.eval()
        return self

    def prefix(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b T D"] | None:
        """Tokens after the frozen blocks, without gradient; a teacher of the same origin may share them. None where nothing can be shared.

        That is so without frozen blocks, and with adapters, which train inside them. `embed` takes either.
        """
        return self._prefix(x, {}) if self.shares_prefix else None

    def embed(self, x: Float[Tensor, "b c height width"], prefix: Float[Tensor, "b T D"] | None = None) -> Float[Tensor, "b D"]:
        """E, the input of the head. `prefix` is what `prefix(x)` gave here or in a model with the same frozen blocks; x is then unread."""
        return self._pool(self._tokens(x, prefix, {}))

    def get_features(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        """`embed` under Avalanche's name."""
        return self.embed(x)

    def classify(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.head(embedding)

    def forward(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b C"]:
        return self.classify(self.embed(x))

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        """Embedding, stages and tokens of one forward. Stage k = 1…4 is the output of block round(k · l_m / 4), at least of the first."""
        ends = [max(1, round(quarter * self.msa_blocks / 4)) for quarter in (1, 2, 3, 4)]
        kept: dict[int, Tensor | None] = dict.fromkeys(ends)
        tokens = self._tokens(x, None, kept)
        height, width = self.backbone.patch_embed.dynamic_feat_size((x.shape[-2], x.shape[-1]))
        first_patch = self.backbone.num_prefix_tokens
        stages = [kept[end][:, first_patch:].transpose(1, 2).unflatten(2, (height, width)) for end in ends]  # type: ignore[index]
        return Features(self._pool(tokens), stages, tokens)

    def _pool(self, tokens: Float[Tensor, "b T D"]) -> Float[Tensor, "b D"]:
        embedding: Tensor = self.shared_embedding
        for block in self.tsa:
            embedding = block(embedding, tokens)
        return embedding

    def _tokens(self, x: Tensor, prefix: Tensor | None, kept: dict[int, Tensor | None]) -> Float[Tensor, "b T D"]:
        """Z of the last MSA block, normalised. `kept` names the blocks, counted from 1, whose outputs it is to be filled with."""
        if prefix is not None and not self.shares_prefix:
            raise ValueError("embed: a prefix was given, but this model has no frozen blocks without adapters to take it from.")
        if self.shares_prefix:
            tokens = self._through(self._prefix(x, kept) if prefix is None else prefix, self.frozen_blocks, self.msa_blocks, kept)
        else:
            tokens = self._through(self._patches(x), 0, self.msa_blocks, kept)
        return self.backbone.norm(tokens)

    @torch.no_grad()
    def _prefix(self, x: Tensor, kept: dict[int, Tensor | None]) -> Tensor:
        return self._through(self._patches(x), 0, self.frozen_blocks, kept)

    def _patches(self, x: Tensor) -> Tensor:
        """Patches with positions and prefix tokens, (b, T, D)."""
        vit = self.backbone
        return vit.norm_pre(vit._pos_embed(vit.patch_embed(x)))

    def _through(self, tokens: Tensor, start: int, stop: int, kept: dict[int, Tensor | None]) -> Tensor:
        for index in range(start, stop):
            tokens = self.backbone.blocks[index](tokens)
            if index + 1 in kept:
                kept[index + 1] = tokens
        return tokens


def _check_ranges(tsa_blocks: int, adapter_dim: int, frozen_blocks: int, drop_path: float | int, embedding_std: float | int) -> None:
    if tsa_blocks < 1:
        raise ValueError(f"TSAViT: tsa_blocks must be 1 or more, got {tsa_blocks}.")
    for name, number in (("adapter_dim", adapter_dim), ("frozen_blocks", frozen_blocks), ("embedding_std", embedding_std)):
        if number < 0:
            raise ValueError(f"TSAViT: {name} must be 0 or more, got {number}.")
    if not 0 <= drop_path < 1:
        raise ValueError(f"TSAViT: drop_path must be in [0, 1), got {drop_path}.")


def _num_kept(msa_blocks: int | None, depth: int, tsa_blocks: int, frozen_blocks: int) -> int:
    """l_m, the number of backbone blocks in use."""
    kept = depth - tsa_blocks if msa_blocks is None else msa_blocks
    if not 1 <= kept <= depth:
        asked = f"msa_blocks={msa_blocks}" if msa_blocks is not None else f"tsa_blocks={tsa_blocks}, which leaves {kept}"
        raise ValueError(f"TSAViT: the backbone has {depth} blocks, msa_blocks must be in 1…{depth}; got {asked}.")
    if frozen_blocks > kept:
        raise ValueError(f"TSAViT: frozen_blocks must be in 0…{kept} (msa_blocks), got {frozen_blocks}.")
    return kept
