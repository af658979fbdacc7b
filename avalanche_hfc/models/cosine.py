"""The cosine head of PODNet and AFC: several proxies per class, local similarity classifier (LSC).

`b` samples, `D` features, `P` proxies per class, `K` classes seen, `C` columns; a column is a class
id.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.columns import GrowingColumns, check_phase


def closeness(cosine: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """-‖a - b‖² of unit vectors a, b from their cosine."""
    return 2 * cosine - 2


class CosineHead(GrowingColumns):
    """Cosine classifier of PODNet and AFC with several proxies per class.

    u_c = η Σ_p a_cp s_cp with s_cp = sharpness · (2 cos(f, θ_cp) - 2) and a_cp = softmax_p(s_cp). η
    is the parameter `scale`, 1 at first.

    `new_proxies` holds the proxies of the newest step, `old_proxies` those of all earlier steps, so
    that old ones can be frozen, which also excludes them from weight decay. When classes arrive,
    both are joined, new proxies are drawn (`imprint` overwrites them) and the phase is set to
    ``"train"``. Growing creates new parameters under the same names; an optimizer must be updated.

    Args:
        in_features: Width D of the embedding.
        num_proxies: Number of proxies of each class.
        sharpness: Factor of the similarities.
        learn_scale: Train η. PODNet uses False with ``sharpness=9`` for nearest class means.

    Shape:
        Embeddings ``(b, D)`` in, logits ``(b, C)`` out.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import CosineHead
        >>> head = CosineHead(4, num_proxies=2)
        >>> head.grow([0, 1, 2])
        >>> head(torch.randn(5, 4)).shape
        torch.Size([5, 3])
    """

    old_ids: Tensor
    new_ids: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        num_proxies: int = 10,
        sharpness: float | int = 1.0,
        learn_scale: bool = True,
    ):
        super().__init__()
        for name, number in (("in_features", in_features), ("num_proxies", num_proxies)):
            if number < 1:
                raise ValueError(f"CosineHead: {name} must be at least 1, got {number}.")
        if sharpness <= 0:
            raise ValueError(f"CosineHead: sharpness must be above 0, got {sharpness}.")
        self.in_features = in_features
        self.num_proxies = num_proxies
        self.sharpness = sharpness
        self.learn_scale = learn_scale
        self.old_proxies = nn.Parameter(
            torch.empty(0, num_proxies, in_features), requires_grad=False
        )
        self.new_proxies = nn.Parameter(torch.empty(0, num_proxies, in_features))
        self.scale = nn.Parameter(torch.ones(()), requires_grad=learn_scale)
        self.register_buffer("old_ids", torch.empty(0, dtype=torch.long))
        self.register_buffer("new_ids", torch.empty(0, dtype=torch.long))

    def class_ids(self) -> Int[Tensor, "K"]:
        """The class id of each output.

        Returns:
            Class ids of shape ``(K,)``, those of the newest step last.
        """
        return torch.cat([self.old_ids, self.new_ids])

    @torch.no_grad()
    def _add(self, class_ids: list[int]) -> None:
        old = torch.cat([self.old_proxies, self.new_proxies])
        new = self.new_proxies.new_empty(
            len(class_ids), self.num_proxies, self.in_features
        ).normal_(0, 1 / math.sqrt(self.in_features))
        self.old_ids = self.class_ids()
        self.new_ids = self.old_ids.new_tensor(class_ids)
        self.old_proxies = nn.Parameter(old)
        self.new_proxies = nn.Parameter(new)
        self.set_phase("train")

    def set_phase(self, phase: str) -> None:
        """Choose which parameters train.

        Args:
            phase: ``"train"``: the new proxies and η. ``"tune"``: all proxies, not η.

        Raises:
            ValueError: If the phase is unknown.
        """
        check_phase("CosineHead", phase)
        self.old_proxies.requires_grad_(phase == "tune")
        self.new_proxies.requires_grad_()
        self.scale.requires_grad_(phase == "train" and self.learn_scale)

    @torch.no_grad()
    def imprint(self, centres: Mapping[int, Tensor]) -> None:
        """Replace the newest proxies by centres, scaled to the mean norm of the old proxies.

        In the first step, where there are no old proxies, the centres are not scaled.

        Args:
            centres: For each class of the newest step its centres, shape ``(num_proxies, D)``; see
                `proxy_centres`.

        Raises:
            ValueError: If classes or shapes do not match the newest step.
        """
        newest = self.new_ids.tolist()
        if set(centres) != set(newest):
            raise ValueError(
                f"CosineHead: imprint needs centres of the newest classes {newest}, got "
                f"{sorted(centres)}."
            )
        norm = self.old_proxies.norm(dim=-1).mean() if len(self.old_ids) else 1.0
        shape = (self.num_proxies, self.in_features)
        for row, class_id in enumerate(newest):
            if centres[class_id].shape != shape:
                raise ValueError(
                    f"CosineHead: class {class_id} needs centres {shape}, got "
                    f"{tuple(centres[class_id].shape)}."
                )
            self.new_proxies[row] = centres[class_id].to(self.new_proxies) * norm

    def similarity(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b K"]:
        """The similarity to each class before scaling with η.

        Args:
            embedding: Embeddings of shape ``(b, D)``.

        Returns:
            Values in [-4 · sharpness, 0], shape ``(b, K)``, in the order of `class_ids`.
        """
        proxies = torch.cat([self.old_proxies, self.new_proxies])
        cosine = torch.einsum(
            "bD,KPD->bKP", F.normalize(embedding, dim=-1), F.normalize(proxies, dim=-1)
        )
        nearness = self.sharpness * closeness(cosine)
        return (nearness.softmax(-1) * nearness).sum(-1)

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.spread(self.scale * self.similarity(embedding))

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Accept any number of proxies. The parameters are then new ones, as after growing."""
        for age in ("old", "new"):
            current: Tensor = getattr(self, f"{age}_proxies")
            incoming = state_dict.get(f"{prefix}{age}_proxies")
            if (
                incoming is not None
                and incoming.shape[1:] == current.shape[1:]
                and len(incoming) != len(current)
            ):
                proxies = nn.Parameter(
                    current.new_zeros(incoming.shape), requires_grad=current.requires_grad
                )
                setattr(self, f"{age}_proxies", proxies)
                setattr(self, f"{age}_ids", self.old_ids.new_zeros(len(incoming)))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._know(self.class_ids().tolist())

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, num_proxies={self.num_proxies}, "
            f"classes={len(self.old_ids) + len(self.new_ids)}"
        )
