"""DyTox: one token and one head per step behind an attention block (TAB) that all steps share.

`b` images, `N` tokens of the encoder, `D` = width of a token, `t` steps so far, `C` columns, `K_t`
classes of the newest step.
"""

import torch
from jaxtyping import Float, Int
from timm.layers import trunc_normal_
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.columns import GrowingColumns, check_phase
from avalanche_hfc.models.convit import ConViTEncoder
from avalanche_hfc.models.encoder import ViTEncoder
from avalanche_hfc.models.features import EmbeddingModel, Features
from avalanche_hfc.models.tsa import TSABlock


class StepHead(nn.Module):
    """Linear(LN(e)) for the classes of one step, drawn as nn.Linear is: U(±1/√D). `class_ids (K,)`
    are their columns.
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
    """Embeddings e_s = TAB(θ_s, tokens) and logits Linear_s(LN_s(e_s)) of each step s, placed by
    class ids.

    A step that brings classes adds a token (trunc-normal 0.02) and a head under new names. From the
    second step on `divergence` is a head for the newest step with K_t + 1 outputs: 0 is any old
    class, 1… the new ones in ascending order; each step makes it anew under the old name. `phase`
    "train" freezes the tokens and heads of earlier steps, "tune" only the divergence head; growth
    starts with "train".
    """

    def __init__(self, dim: int, num_heads: int, *, drop_path: float | int = 0.0):
        super().__init__()
        self.dim = dim
        self.block = TSABlock(dim, num_heads, residual=True, drop_path=drop_path)
        self.tokens = nn.ParameterList()
        self.heads = nn.ModuleList()
        self.divergence: StepHead | None = None
        self.phase = "train"

    def class_ids(self) -> Int[Tensor, "K"]:
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
        """Which parameters train. The TAB does in both phases."""
        check_phase("TaskTokens", phase)
        self.phase = phase
        for step, (token, head) in enumerate(zip(self.tokens, self.heads, strict=True)):
            trained = phase == "tune" or step == len(self.heads) - 1
            token.requires_grad_(trained)
            head.requires_grad_(trained)
        if self.divergence is not None:
            self.divergence.requires_grad_(phase == "train")

    def embeddings(self, tokens: Float[Tensor, "b N D"]) -> Float[Tensor, "b tD"]:
        """e_1…e_t side by side. The keys and values LN(tokens) are formed once for all steps."""
        if not self.heads:
            raise ValueError(
                "TaskTokens: no step has brought classes yet; call grow, or train a first step."
            )
        block = self.block
        keys = block.norm1(tokens)
        pooled = torch.stack(
            [
                token + block.drop_path(block.attention(block.norm1(token), keys))
                for token in self.tokens
            ],
            dim=1,
        )
        rows = pooled.flatten(0, 1)  # (b·t, D): drop-path draws for each sample and step
        return (
            (rows + block.drop_path(block.mlp(block.norm2(rows))))
            .unflatten(0, pooled.shape[:2])
            .flatten(1)
        )

    def forward(self, embeddings: Float[Tensor, "b tD"]) -> Float[Tensor, "b C"]:
        own = embeddings.split(self.dim, dim=1)
        return self.spread(
            torch.cat(
                [head(embedding) for head, embedding in zip(self.heads, own, strict=True)], dim=1
            )
        )

    def divergence_logits(self, embeddings: Float[Tensor, "b tD"]) -> Float[Tensor, "b outputs"]:
        if self.divergence is None:
            raise ValueError("TaskTokens: there is no divergence head before the second step.")
        return self.divergence(embeddings[:, -self.dim :])

    def divergence_targets(self, targets: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """0 for a class of an earlier step, 1…K_t for those of the newest, in ascending order of
        class ids.
        """
        if self.divergence is None:
            raise ValueError("TaskTokens: there is no divergence head before the second step.")
        newest = self.divergence.class_ids
        match = targets[:, None] == newest
        return (match * torch.arange(1, len(newest) + 1, device=newest.device)).sum(1)

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Take as many steps, and heads of such widths, as come in. The parameters are then new
        ones, as after growth.
        """
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
    """An encoder and TaskTokens as `head`. The embedding is that of all steps side by side, (b,
    t·D); `embed_dim` grows with the steps.

    `encoder` is a ConViTEncoder (None: DyTox's own, 10.7 M with the TAB) or a ViTEncoder, all of
    whose tokens, the class token among them, are keys; for ViT-Base the paper's geometry is
    `ViTEncoder(msa_blocks=11)`: the TAB takes the place of the last block. `drop_path` acts in the
    TAB; None: that of the ConViTEncoder, or 0.
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
            drop_path = self.encoder.drop_path if isinstance(self.encoder, ConViTEncoder) else 0.0
        if not 0 <= drop_path < 1:
            raise ValueError(f"DyToxModel: drop_path must be in [0, 1), got {drop_path}.")
        self.head = TaskTokens(self.encoder.embed_dim, self.encoder.num_heads, drop_path=drop_path)
        self.shares_prefix = self.encoder.shares_prefix

    @property
    def embed_dim(self) -> int:  # type: ignore[override]
        """t · D, the width of the embedding now."""
        return len(self.head.heads) * self.encoder.embed_dim

    def adaptation(self, experience: object) -> None:
        """Training mode: a step begins, in the phase "train". `head` grows by itself."""
        if self.training:
            self.set_phase("train")

    def set_phase(self, phase: str) -> None:
        """'train': all but the tokens and heads of earlier steps train. 'tune': all but the encoder
        and the divergence head.
        """
        self.head.set_phase(phase)
        self.encoder.set_trainable(phase == "train")

    def prefix(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b T D"] | None:
        return self.encoder.prefix(x)

    def embed(
        self, x: Float[Tensor, "b c height width"], prefix: Float[Tensor, "b T D"] | None = None
    ) -> Float[Tensor, "b tD"]:
        """e_1…e_t side by side. `prefix` as TSAViT's."""
        return self.head.embeddings(self.encoder.tokens(x, prefix))

    def divergence(self, embedding: Float[Tensor, "b tD"]) -> Float[Tensor, "b outputs"]:
        """Logits of the divergence head: `head.divergence_targets` are their labels."""
        return self.head.divergence_logits(embedding)

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        tokens, stages = self.encoder.tokens_and_stages(x)
        return Features(self.head.embeddings(tokens), stages, tokens)
