"""What every backbone offers: embedding, logits, and the maps that a method may distil.

`b` images, `D` = embed_dim, `C` columns.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from avalanche.models import DynamicModule
from jaxtyping import Float
from torch import Tensor

NUM_STAGES = 4
EPS = 1e-5  # of the norm in front of a ViT's maps


class Features(NamedTuple):
    """What a method may distil, from one forward."""

    embedding: Float[Tensor, "b D"]  # input of the head
    stages: list[
        Tensor
        # four maps (b, channels, h, w). ViT: patch tokens after four blocks that something reads
        # later, see `token_map`
    ]
    tokens: (
        Float[Tensor, "b T D"] | None
        # of the last block, prefix tokens first, normalised if the encoder has a last norm; CNN:
        # None
    )


class EmbeddingModel(DynamicModule):
    """`forward` is `classify(embed(x))`. `head` grows with the classes: GrowingLinear, or what is
    assigned to it, as CosineHead.
    """

    embed_dim: int
    head: Any
    shares_prefix = (
        False  # whether a part in front is frozen, and `prefix` may be shared with a teacher
    )

    def prefix(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b T D"] | None:
        """What a teacher of the same origin may share; None where nothing can be shared."""
        return None

    def embed(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        """The input of the head."""
        raise NotImplementedError

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        raise NotImplementedError

    def stage_gradients(
        self, x: Float[Tensor, "b c height width"], loss: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """The derivative of loss(embedding), a scalar, with respect to each stage of `features(x)`;
        0 where a stage is frozen.

        ViT: as a map moves, the mean and the spread of each token, which the map leaves out,
            stay (`token_map_gradient`).
        """
        raise NotImplementedError

    def get_features(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        """`embed` under Avalanche's name."""
        return self.embed(x)

    def classify(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.head(embedding)

    def forward(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b C"]:
        return self.classify(self.embed(x))


def gradients_of(loss: Float[Tensor, ""], inputs: Sequence[Tensor]) -> list[Tensor]:
    """d loss / d input of each; 0 where the input requires none. An input given twice gets its
    gradient twice.
    """
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(torch.autograd.grad(loss, wanted) if wanted else ())
    return [next(found) if value.requires_grad else torch.zeros_like(value) for value in inputs]


def stage_ends(num_blocks: int) -> list[int]:
    """The block, counted from 1, that ends stage k = 1…4: round(k · num_blocks / 4), at least the
    first. A few blocks end several stages.

    No block at all: 0, what enters the first.
    """
    return [
        max(min(1, num_blocks), round(quarter * num_blocks / NUM_STAGES))
        for quarter in range(1, NUM_STAGES + 1)
    ]


def token_map(
    tokens: Float[Tensor, "b T D"], num_prefix: int, grid: tuple[int, int]
) -> Float[Tensor, "b D h w"]:
    """Patch tokens as a map, without the prefix tokens, each token brought to mean 0 and variance
    1: a LayerNorm without parameters.

    In the tokens of pre-trained ViTs a few channels are huge; a distance of raw maps would see
    little else.
    """
    patches = tokens[:, num_prefix:]
    return _as_map(F.layer_norm(patches, patches.shape[-1:], eps=EPS), grid)


def token_map_gradient(
    gradient: Float[Tensor, "b T D"],
    tokens: Float[Tensor, "b T D"],
    num_prefix: int,
    grid: tuple[int, int],
) -> Float[Tensor, "b D h w"]:
    """d loss / d map from d loss / d tokens. Nothing reads the map, but a token is μ + σ · map:
    with μ and σ held, σ · d loss / d token.
    """
    spread = (tokens[:, num_prefix:].var(-1, correction=0, keepdim=True) + EPS).sqrt()
    return _as_map(spread * gradient[:, num_prefix:], grid)


def _as_map(patches: Float[Tensor, "b N D"], grid: tuple[int, int]) -> Float[Tensor, "b D h w"]:
    return patches.transpose(1, 2).unflatten(2, grid)
