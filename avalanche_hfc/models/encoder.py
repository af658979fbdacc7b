"""The encoder of every ViT here: blocks of a timm ViT, its last norm, frozen blocks, and the
bottleneck adapters of the released code, parallel to a block's MLP.

`b` images, `D` = embed_dim. The `T` tokens are the prefix tokens (class, registers), followed by
the patches of an h × w grid.
"""

import math
from collections.abc import Mapping
from os import PathLike

import torch
from avalanche.models import DynamicModule
from jaxtyping import Float, Int
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from avalanche_hfc.models.backbone import Size, build_backbone
from avalanche_hfc.models.features import stage_ends, token_map
from avalanche_hfc.models.modes import Recomputed
from avalanche_hfc.models.weights import LoadReport, load_weights

Weights = str | PathLike[str] | None


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


class _BlocksOfViT(Recomputed, DynamicModule):
    """`msa_blocks` blocks of a timm ViT and its last norm.

    A subclass adds what follows them and ends its constructor with `_take(weights)`.
    """

    def __init__(
        self,
        backbone: str,
        *,
        image_size: Size,
        patch_size: Size,
        msa_blocks: int | None,
        tsa_blocks: int,
        adapter_dim: int,
        frozen_blocks: int,
        weights: Weights,
        backbone_options: Mapping[str, object] | None,
    ):
        super().__init__()
        vit = build_backbone(
            backbone, image_size, patch_size, backbone_options or {}, pretrained=False
        )
        depth = len(vit.blocks)
        self.msa_blocks = depth - tsa_blocks if msa_blocks is None else msa_blocks  # l_m
        in_range = 1 <= self.msa_blocks <= depth and 0 <= frozen_blocks <= self.msa_blocks
        if not in_range or adapter_dim < 0:
            raise ValueError(
                f"{type(self).__name__}: msa_blocks must be in 1…{depth}, frozen_blocks in "
                f"0…msa_blocks and adapter_dim 0 or more, got msa_blocks={self.msa_blocks} "
                f"(tsa_blocks={tsa_blocks}), frozen_blocks={frozen_blocks} and "
                f"adapter_dim={adapter_dim}."
            )
        self._check_backbone(vit)
        if weights == "timm":  # fetched only now that everything has been checked
            vit = build_backbone(
                backbone, image_size, patch_size, backbone_options or {}, pretrained=True
            )
        self.backbone_name = backbone
        self.pretrained_tag: str | None = vit.pretrained_cfg.get("tag") or None
        self.frozen_blocks = frozen_blocks
        self.embed_dim: int = vit.embed_dim
        self.num_heads: int = vit.blocks[0].attn.num_heads
        vit.blocks = vit.blocks[: self.msa_blocks]
        if adapter_dim:
            vit.blocks = nn.Sequential(
                *(AdaptedBlock(block, self.embed_dim, adapter_dim) for block in vit.blocks)
            )
        self.backbone = vit
        self.shares_prefix = frozen_blocks > 0 and not adapter_dim
        self.load_report: LoadReport | None = None
        self._freeze()

    def _take(self, weights: Weights) -> None:
        """Read a weights file, now that every module exists, and set the modes."""
        if weights not in (None, "timm"):
            self.load_report = load_weights(self, weights)
        self.train()

    def _check_backbone(self, vit: nn.Module) -> None:
        """Refuse a backbone that lacks what the subclass needs."""

    def _freeze(self) -> None:
        if self.frozen_blocks:
            for parameter in self._embedding_parameters():
                parameter.requires_grad_(False)
            for block in self.backbone.blocks[: self.frozen_blocks]:
                block.requires_grad_(False)
                for module in block.modules():
                    if isinstance(module, Adapter):
                        module.requires_grad_(True)

    def _embedding_parameters(self) -> list[nn.Parameter]:
        """All parameters in front of the first block."""
        behind = ("blocks.", "norm.")
        return [
            parameter
            for name, parameter in self.backbone.named_parameters()
            if not name.startswith(behind)
        ]

    def train(self, mode: bool = True) -> "_BlocksOfViT":
        """Set the mode as in torch; a frozen prefix without adapters stays in eval mode.

        The prefix is therefore the same function for student and teacher.

        Args:
            mode: True for training, False for evaluation.

        Returns:
            The module itself.
        """
        super().train(mode)
        if self.shares_prefix:
            vit = self.backbone
            for module in (
                vit.patch_embed,
                vit.pos_drop,
                vit.norm_pre,
                *vit.blocks[: self.frozen_blocks],
            ):
                module.eval()
        return self

    def prefix(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b T D"] | None:
        """Tokens after the frozen blocks, without gradient, to share with a teacher.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Tokens of shape ``(b, T, D)``; None without frozen blocks or with adapters, which train
            inside them. `embed` accepts both.
        """
        return self._prefix(x, {}) if self.shares_prefix else None

    def tokens(
        self, x: Float[Tensor, "b c height width"], prefix: Float[Tensor, "b T D"] | None = None
    ) -> Float[Tensor, "b T D"]:
        """The normalised tokens after the last block.

        Args:
            x: Images, shape ``(b, c, height, width)``.
            prefix: The result of `prefix` of this model or of a model with the same frozen blocks;
                `x` is then not read.

        Returns:
            Tokens of shape ``(b, T, D)``.

        Raises:
            ValueError: If the images have the wrong size, or a prefix is given to a model without
                one.
        """
        return self._tokens(x, prefix, {})

    def tokens_and_stages(
        self, x: Float[Tensor, "b c height width"]
    ) -> tuple[Tensor, list[Tensor]]:
        """The normalised tokens and four feature maps of one forward pass.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            The tokens, shape ``(b, T, D)``, and a list of four maps, each of shape ``(b, D, h,
            w)``.
        """
        tokens, ends = self._tokens_and_ends(x)
        return tokens, [
            token_map(end, self.backbone.num_prefix_tokens, self._grid(x)) for end in ends
        ]

    def _num_read(self) -> int:
        """Number of blocks whose patch tokens are read later; maps are taken after these."""
        return self.msa_blocks

    def _tokens_and_ends(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Z and the tokens after the block that ends each stage, (b, T, D) each."""
        ends = stage_ends(self._num_read())
        kept: dict[int, Tensor | None] = dict.fromkeys(ends)
        tokens = self._tokens(x, None, kept)
        return tokens, [kept[end] for end in ends]  # type: ignore[misc]

    def _grid(self, x: Tensor) -> tuple[int, int]:
        return self.backbone.patch_embed.dynamic_feat_size((x.shape[-2], x.shape[-1]))

    def _tokens(
        self, x: Tensor, prefix: Tensor | None, kept: dict[int, Tensor | None]
    ) -> Float[Tensor, "b T D"]:
        """The normalised tokens after the last block.

        `kept` has the numbers of the blocks, counted from 1, whose outputs it will hold; 0 is the
        input of the first block.
        """
        if prefix is not None and not self.shares_prefix:
            raise ValueError(
                "embed: a prefix was given, but this model has no frozen blocks without "
                "adapters to take it from."
            )
        start = self.frozen_blocks if self.shares_prefix else 0
        if prefix is None:
            prefix = self._prefix(x, kept) if self.shares_prefix else self._patches(x)
        return self.backbone.norm(self._through(prefix, start, self.msa_blocks, kept))

    @torch.no_grad()
    def _prefix(self, x: Tensor, kept: dict[int, Tensor | None]) -> Tensor:
        return self._through(self._patches(x), 0, self.frozen_blocks, kept)

    def _patches(self, x: Tensor) -> Tensor:
        """Patches with positions and prefix tokens, (b, T, D)."""
        vit = self.backbone
        channels, size = vit.patch_embed.proj.in_channels, vit.patch_embed.img_size
        if x.shape[1] != channels or (
            vit.patch_embed.strict_img_size and tuple(x.shape[-2:]) != tuple(size)
        ):
            raise ValueError(
                f"{type(self).__name__}: images must be ({channels}, {size[0]}, {size[1]}), "
                f"got {tuple(x.shape[1:])}."
            )
        return vit.norm_pre(vit._pos_embed(vit.patch_embed(x)))

    def _through(
        self, tokens: Tensor, start: int, stop: int, kept: dict[int, Tensor | None]
    ) -> Tensor:
        if start in kept:
            kept[start] = tokens
        for index in range(start, stop):
            tokens = self.run_block(self.backbone.blocks[index], tokens)
            if index + 1 in kept:
                kept[index + 1] = tokens
        return tokens


class ViTEncoder(_BlocksOfViT):
    """The first blocks of a timm ViT and its last norm, as the encoder of a `DyToxModel`.

    Args:
        backbone: Name of a plain timm VisionTransformer.
        image_size: Height and width of the images, as one number or a pair. By default the
            backbone's.
        patch_size: Height and width of a patch. By default the backbone's.
        msa_blocks: Number of blocks. By default all of the backbone.
        adapter_dim: Width of an adapter beside the MLP of each block; 0 for none.
        frozen_blocks: Number of blocks, from the first on, that are frozen together with the
            embeddings. Their adapters still train.
        weights: None for random weights, ``"timm"`` to download those of the backbone, or the path
            of a file; see `load_weights`. The report is kept as `load_report`.
        backbone_options: Further arguments of timm's VisionTransformer.

    Raises:
        ValueError: If the backbone is unknown or not a plain VisionTransformer, or a value is not
            allowed.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ViTEncoder
        >>> options = dict(embed_dim=16, depth=2, num_heads=2)
        >>> encoder = ViTEncoder(image_size=32, patch_size=8, backbone_options=options)
        >>> encoder.tokens(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 17, 16])
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
        self._take(weights)

    def visible_tokens(
        self, x: Float[Tensor, "b c height width"], patches: Int[Tensor, "b k"]
    ) -> Float[Tensor, "b T D"]:
        """Tokens of images of which the blocks see some patches only.

        Args:
            x: Images, shape ``(b, c, height, width)``.
            patches: Numbers of the patches that the blocks see, row by row from the top left,
                shape ``(b, k)``.

        Returns:
            Prefix tokens, then the patches in the order given, shape ``(b, T, D)``.
        """
        tokens = self._patches(x)
        num_prefix = self.backbone.num_prefix_tokens
        index = (patches + num_prefix).unsqueeze(-1).expand(-1, -1, self.embed_dim)
        seen = torch.cat([tokens[:, :num_prefix], tokens.gather(1, index)], 1)
        return self.backbone.norm(self._through(seen, 0, self.msa_blocks, {}))

    def set_trainable(self, trainable: bool) -> None:
        """Train or freeze the encoder; frozen blocks stay frozen.

        Args:
            trainable: False freezes everything, True trains everything but the frozen blocks.
        """
        self.requires_grad_(trainable)
        if trainable:
            self._freeze()
