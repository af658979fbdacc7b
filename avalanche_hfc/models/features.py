"""What every backbone offers: an embedding, logits, and the maps that a method can distil.

`b` images, `D` = embed_dim, `C` columns.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from avalanche.models import BaseModel, DynamicModule
from jaxtyping import Float
from torch import Tensor

NUM_STAGES = 4
EPS = 1e-5  # of the norm in front of a ViT's maps


class Features(NamedTuple):
    """The features of one forward pass that a method can distil.

    Attributes:
        embedding: Input of the head, shape ``(b, D)``.
        stages: Four feature maps, each of shape ``(b, channels, h, w)``. Those of a ViT are
            normalised patch tokens after four of its blocks.
        tokens: Tokens of the last block, prefix tokens first, shape ``(b, T, D)``; normalised if
            the encoder has a last norm. None for a CNN.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ResNet32
        >>> embedding, stages, tokens = ResNet32().features(torch.zeros(2, 3, 32, 32))
        >>> embedding.shape, stages[0].shape, tokens
        (torch.Size([2, 64]), torch.Size([2, 16, 32, 32]), None)
    """

    embedding: Float[Tensor, "b D"]
    stages: list[Tensor]
    tokens: Float[Tensor, "b T D"] | None


class EmbeddingModel(DynamicModule, BaseModel):
    """Base class of backbones with a head that grows with the classes.

    ``forward(x)`` is ``classify(embed(x))``. A subclass sets `embed_dim` and `head`
    (`GrowingLinear`, or another head assigned to it) and implements `embed`; methods that distil
    also need `features` and `stage_gradients`. `shares_prefix` is True if the first blocks are
    frozen and `prefix` can be shared with a teacher.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ResNet32
        >>> model, x = ResNet32().eval(), torch.zeros(2, 3, 32, 32)
        >>> model.head.grow([0, 1, 2])
        >>> torch.equal(model(x), model.classify(model.embed(x)))
        True
    """

    embed_dim: int
    head: Any
    shares_prefix = False

    def prefix(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b T D"] | None:
        """The output of the frozen blocks, to share with a teacher that has the same ones.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Tokens of shape ``(b, T, D)``; None if nothing can be shared.
        """
        return None

    def embed(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        """The input of the head.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Embeddings of shape ``(b, D)``.
        """
        raise NotImplementedError

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        """Embedding, feature maps and tokens of one forward pass.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            The features that a method can distil.
        """
        raise NotImplementedError

    def stage_gradients(
        self, x: Float[Tensor, "b c height width"], loss: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """The gradient of a loss with respect to each map of ``features(x).stages``.

        For a ViT the mean and the spread of each token, which a map does not contain, are held
        constant.

        Args:
            x: Images, shape ``(b, c, height, width)``.
            loss: A function from the embedding, shape ``(b, D)``, to a scalar.

        Returns:
            One gradient per map, of its shape; 0 if the stage is frozen.
        """
        raise NotImplementedError

    def get_features(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        """The result of `embed`, under the name that Avalanche uses.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Embeddings of shape ``(b, D)``.
        """
        return self.embed(x)

    def classify(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        """Apply the head.

        Args:
            embedding: Embeddings of shape ``(b, D)``.

        Returns:
            Logits of shape ``(b, C)``.
        """
        return self.head(embedding)

    def forward(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b C"]:
        return self.classify(self.embed(x))


def gradients_of(loss: Float[Tensor, ""], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the loss for each input; 0 if the input requires none.

    An input given twice gets its gradient twice.
    """
    wanted = [value for value in inputs if value.requires_grad]
    gradients = iter(torch.autograd.grad(loss, wanted) if wanted else ())
    return [next(gradients) if value.requires_grad else torch.zeros_like(value) for value in inputs]


def stage_ends(num_blocks: int) -> list[int]:
    """The block, counted from 1, that ends each of the four stages: round(k · num_blocks / 4).

    With few blocks one block ends several stages. With none the result is 0, the input of the first
    block.
    """
    return [
        max(min(1, num_blocks), round(quarter * num_blocks / NUM_STAGES))
        for quarter in range(1, NUM_STAGES + 1)
    ]


def token_map(
    tokens: Float[Tensor, "b T D"], num_prefix: int, grid: tuple[int, int]
) -> Float[Tensor, "b D h w"]:
    """Patch tokens as a map without the prefix tokens, each token normalised to mean 0, variance 1.

    In the tokens of pre-trained ViTs a few channels are huge and would dominate a distance between
    raw maps.
    """
    patches = tokens[:, num_prefix:]
    return _as_map(F.layer_norm(patches, patches.shape[-1:], eps=EPS), grid)


def token_map_gradient(
    gradient: Float[Tensor, "b T D"],
    tokens: Float[Tensor, "b T D"],
    num_prefix: int,
    grid: tuple[int, int],
) -> Float[Tensor, "b D h w"]:
    """d loss / d map from d loss / d tokens.

    The map itself is not read by the model, but a token is μ + σ · map: with μ and σ held constant
    the gradient is σ · d loss / d token.
    """
    spread = (tokens[:, num_prefix:].var(-1, correction=0, keepdim=True) + EPS).sqrt()
    return _as_map(spread * gradient[:, num_prefix:], grid)


def _as_map(patches: Float[Tensor, "b N D"], grid: tuple[int, int]) -> Float[Tensor, "b D h w"]:
    return patches.transpose(1, 2).unflatten(2, grid)
