"""DyTox: one token and one head per step behind an attention block (TAB) that all steps share.

`b` images, `N` tokens of the encoder, `D` = width of a token, `t` steps so far, `C` columns, `K_t`
classes of the newest step.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from timm.layers import trunc_normal_
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.convit import ConViTEncoder
from avalanche_hfc.models.encoder import ViTEncoder
from avalanche_hfc.models.features import EmbeddingModel, Features
from avalanche_hfc.models.heads import GrowingColumns
from avalanche_hfc.models.tsa import TSABlock


class StepHead(nn.Module):
    """DyTox's head for the classes of one step: a linear layer on a normalised embedding.

    Args:
        dim: Width D of the embedding.
        class_ids: Class ids of the step, kept as the buffer `class_ids`.
        num_outputs: Number of outputs. By default one per class.

    Shape:
        Embeddings ``(b, D)`` in, logits ``(b, num_outputs)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import StepHead
        >>> StepHead(4, [5, 6, 7])(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """

    class_ids: Tensor

    def __init__(self, dim: int, class_ids: list[int], num_outputs: int | None = None):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, len(class_ids) if num_outputs is None else num_outputs)
        self.register_buffer("class_ids", torch.tensor(class_ids, dtype=torch.long))

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b K"]:
        return self.linear(self.norm(embedding))


class TaskTokens(GrowingColumns):
    """DyTox's decoder: one task token and one head per step behind a shared attention block (TAB).

    The embedding of step s is e_s = TAB(θ_s, tokens); its logits are placed in the columns of its
    class ids. Each step that brings classes adds a token and a head. From the second step on,
    `divergence` is a head for the newest step with K_t + 1 outputs: output 0 stands for any old
    class, the others for the new classes in ascending order. Every step replaces it.

    Args:
        dim: Width D of a token.
        num_heads: Number of attention heads.
        drop_path: Drop-path rate of the TAB.

    Shape:
        Embeddings of all steps ``(b, t·D)`` in, logits ``(b, C)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import TaskTokens
        >>> decoder = TaskTokens(8, num_heads=2)
        >>> decoder.grow([0, 1]); decoder.grow([2])
        >>> decoder(decoder.embeddings(torch.zeros(1, 5, 8))).shape
        torch.Size([1, 3])
    """

    def __init__(self, dim: int, num_heads: int, *, drop_path: float | int = 0.0):
        super().__init__()
        self.dim = dim
        self.block = TSABlock(dim, num_heads, residual=True, drop_path=drop_path)
        self.tokens = nn.ParameterList()
        self.heads = nn.ModuleList()
        self.divergence: Any = None  # a StepHead from the second step on
        self.phase = "train"

    def class_ids(self) -> Int[Tensor, "K"]:
        """The class id of each output.

        Returns:
            Class ids of shape ``(K,)``, step by step.
        """
        empty = torch.empty(0, dtype=torch.long, device=self.block.project.weight.device)
        return torch.cat([empty, *(head.get_buffer("class_ids") for head in self.heads)])

    def _add(self, class_ids: list[int]) -> None:
        like = self.block.project.weight
        if self.heads:
            self.divergence = StepHead(self.dim, class_ids, len(class_ids) + 1).to(like)
        self.tokens.append(nn.Parameter(trunc_normal_(like.new_empty(1, self.dim), std=0.02)))
        self.heads.append(StepHead(self.dim, class_ids).to(like))
        self.set_phase("train")

    def set_phase(self, phase: str) -> None:
        """Choose which parameters train. The TAB trains in both phases.

        Args:
            phase: ``"train"``: the token and head of the newest step and the divergence head.
                ``"tune"``: all tokens and heads, not the divergence head.
        """
        self.phase = phase
        for step, (token, head) in enumerate(zip(self.tokens, self.heads, strict=True)):
            trained = phase == "tune" or step == len(self.heads) - 1
            token.requires_grad_(trained)
            head.requires_grad_(trained)
        if self.divergence is not None:
            self.divergence.requires_grad_(phase == "train")

    def embeddings(self, tokens: Float[Tensor, "b N D"]) -> Float[Tensor, "b tD"]:
        """The embeddings e_1…e_t side by side.

        Args:
            tokens: Tokens of the encoder, shape ``(b, N, D)``.

        Returns:
            Embeddings of shape ``(b, t·D)``; no columns before the first step.
        """
        if not self.tokens:
            return tokens.new_empty(tokens.shape[0], 0)
        block = self.block
        task_tokens = torch.cat(list(self.tokens))[None]  # (1, t, D)
        attended = block.attention(block.norm1(task_tokens), block.norm1(tokens))  # (b, t, D)
        # rows (b·t, D): drop-path draws for each sample and step
        attended = block.drop_path(attended.flatten(0, 1)).view_as(attended)
        rows = (task_tokens + attended).flatten(0, 1)
        return (rows + block.drop_path(block.mlp(block.norm2(rows)))).view(tokens.shape[0], -1)

    def forward(self, embeddings: Float[Tensor, "b tD"]) -> Float[Tensor, "b C"]:
        if not self.heads:
            return self.padded(embeddings)
        per_step = embeddings.split(self.dim, dim=1)
        return self.spread(
            torch.cat(
                [head(embedding) for head, embedding in zip(self.heads, per_step, strict=True)],
                dim=1,
            )
        )

    def divergence_logits(self, embeddings: Float[Tensor, "b tD"]) -> Float[Tensor, "b outputs"]:
        """Logits of the divergence head.

        Args:
            embeddings: Embeddings of all steps, shape ``(b, t·D)``.

        Returns:
            Logits of shape ``(b, K_t + 1)``.
        """
        return self.divergence(embeddings[:, -self.dim :])

    def divergence_targets(self, targets: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """Labels of the divergence head.

        Args:
            targets: Class ids, shape ``(b,)``.

        Returns:
            0 for a class of an earlier step, 1…K_t for those of the newest step in ascending order.
        """
        newest = self.divergence.class_ids
        match = targets[:, None] == newest
        return (match * torch.arange(1, len(newest) + 1, device=newest.device)).sum(1)

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Accept any number of steps and widths of heads. The parameters are then new ones."""
        like, incoming = self.block.project.weight, state_dict.get(prefix + "block.project.weight")
        if incoming is not None and incoming.shape == like.shape:
            widths = _widths(state_dict, prefix + "heads.")
            if widths != [len(head.get_buffer("class_ids")) for head in self.heads]:
                self.heads = nn.ModuleList(StepHead(self.dim, [0] * width) for width in widths).to(
                    like
                )
                self.tokens = nn.ParameterList(
                    nn.Parameter(like.new_zeros(1, self.dim)) for _ in widths
                )
            weight = state_dict.get(prefix + "divergence.linear.weight")
            if weight is None:
                self.divergence = None
            elif self.divergence is None or len(weight) != self.divergence.linear.out_features:
                self.divergence = StepHead(self.dim, [0] * (len(weight) - 1), len(weight)).to(like)
            self._know(
                [
                    class_id
                    for step in range(len(widths))
                    for class_id in state_dict[f"{prefix}heads.{step}.class_ids"].tolist()
                ]
            )
            self.set_phase(self.phase)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _widths(state_dict: State, prefix: str) -> list[int]:
    """The number of classes of each step's head in a state."""
    widths: list[int] = []
    while (class_ids := state_dict.get(f"{prefix}{len(widths)}.class_ids")) is not None:
        widths.append(len(class_ids))
    return widths


class DyToxModel(EmbeddingModel):
    """DyTox: an encoder and `TaskTokens` as its head, which grow with the steps.

    The embedding holds those of all steps side by side, ``(b, t·D)``. With a ViT-Base encoder the
    paper's geometry is ``ViTEncoder(msa_blocks=11)``: the TAB replaces the last block.

    Args:
        encoder: A `ConViTEncoder` or a `ViTEncoder`, all of whose tokens are keys. By default
            DyTox's `ConViTEncoder`, 10.7 M parameters with the TAB.
        drop_path: Drop-path rate of the TAB. By default that of the `ConViTEncoder`, or 0.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Raises:
        ValueError: If `drop_path` is not in [0, 1).

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ConViTEncoder, DyToxModel
        >>> encoder = ConViTEncoder(image_size=8, embed_dim=8, num_heads=2, num_blocks=1)
        >>> model = DyToxModel(encoder)
        >>> model.head.grow([0, 1, 2])
        >>> model(torch.zeros(1, 3, 8, 8)).shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        encoder: ConViTEncoder | ViTEncoder | None = None,
        *,
        drop_path: float | int | None = None,
    ):
        super().__init__()
        self.encoder = ConViTEncoder() if encoder is None else encoder
        if drop_path is None:
            drop_path = float(getattr(self.encoder, "drop_path", 0.0))  # a ConViT's
        if not 0 <= drop_path < 1:
            raise ValueError(f"DyToxModel: drop_path must be in [0, 1), got {drop_path}.")
        self.head = TaskTokens(self.encoder.embed_dim, self.encoder.num_heads, drop_path=drop_path)
        self.shares_prefix = self.encoder.shares_prefix

    @property
    def embed_dim(self) -> int:  # type: ignore[override]
        """Current width of the embedding, t · D."""
        return len(self.head.heads) * self.encoder.embed_dim

    def adaptation(self, experience: object) -> None:
        """In training mode, begin a step in the phase "train". The head grows by itself.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.
        """
        if self.training:
            self.set_phase("train")

    def set_phase(self, phase: str) -> None:
        """Choose which parameters train.

        Args:
            phase: ``"train"``: all but the tokens and heads of earlier steps. ``"tune"``: all but
                the encoder and the divergence head.
        """
        self.head.set_phase(phase)
        self.encoder.set_trainable(phase == "train")

    def prefix(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b T D"] | None:
        """The encoder's tokens after its frozen blocks, to share with a teacher.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Tokens of shape ``(b, T, D)``; None if the encoder has nothing to share.
        """
        return self.encoder.prefix(x)

    def embed(
        self, x: Float[Tensor, "b c height width"], prefix: Float[Tensor, "b T D"] | None = None
    ) -> Float[Tensor, "b tD"]:
        """The embeddings of all steps side by side.

        Args:
            x: Images, shape ``(b, c, height, width)``.
            prefix: The result of `prefix` of this model or of a model with the same frozen blocks;
                `x` is then not read.

        Returns:
            Embeddings of shape ``(b, t·D)``.
        """
        return self.head.embeddings(self.encoder.tokens(x, prefix))

    def divergence(self, embedding: Float[Tensor, "b tD"]) -> Float[Tensor, "b outputs"]:
        """Logits of the divergence head; `head.divergence_targets` gives their labels.

        Args:
            embedding: Embeddings of all steps, shape ``(b, t·D)``.

        Returns:
            Logits of shape ``(b, K_t + 1)``.
        """
        return self.head.divergence_logits(embedding)

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        """Embedding, feature maps and tokens of one forward pass.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            The features that a method can distil.
        """
        tokens, stages = self.encoder.tokens_and_stages(x)
        return Features(self.head.embeddings(tokens), stages, tokens)
