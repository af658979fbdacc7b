"""The cosine head of PODNet and AFC: several proxies per class, local similarity classifier (LSC);
and the first proxies of a class, k-means centres of its unit features.

`b` samples, `D` features, `P` proxies per class, `K` classes seen, `C` columns; a column is a class
id. `n` features of a class, `k` centres, `R` runs of k-means side by side.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.heads import GrowingColumns, closeness

MOST_ROUNDS = 100  # of k-means


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
        ValueError: If `num_proxies` or `sharpness` is not positive.

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
        if num_proxies < 1 or sharpness <= 0:
            raise ValueError(
                "CosineHead: num_proxies must be at least 1 and sharpness above 0, got "
                f"{num_proxies} and {sharpness}."
            )
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
        """
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
        """
        norm = self.old_proxies.norm(dim=-1).mean() if len(self.old_ids) else 1.0
        for row, class_id in enumerate(self.new_ids.tolist()):
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
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._know(self.class_ids().tolist())

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, num_proxies={self.num_proxies}, "
            f"classes={len(self.old_ids) + len(self.new_ids)}"
        )


def proxy_centres(
    features: Float[Tensor, "n D"],
    labels: Int[Tensor, "n"],
    *,
    num_proxies: int = 10,
    generator: torch.Generator,
) -> dict[int, Tensor]:
    """Cluster centres of the features of each class, as first proxies of a `CosineHead`.

    K-means on features scaled to unit length, on the CPU in float64. A class with at most
    `num_proxies` distinct features gives these features, repeated in turn.

    Args:
        features: Features of shape ``(n, D)``.
        labels: Class ids of shape ``(n,)``.
        num_proxies: Number of centres of each class.
        generator: Random generator on the CPU.

    Returns:
        For each class id, in ascending order, its centres of shape ``(num_proxies, D)``.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import proxy_centres
        >>> features, labels = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([7, 7])
        >>> proxy_centres(features, labels, num_proxies=2, generator=torch.Generator())
        {7: tensor([[0., 1.],
                [1., 0.]])}
    """
    units = F.normalize(features.detach().cpu().double(), dim=1)
    order = labels.cpu().argsort(stable=True)  # once for all classes
    class_ids, sizes = labels.cpu()[order].unique_consecutive(return_counts=True)
    centres = {}
    for class_id, points in zip(
        class_ids.tolist(), units[order].split(sizes.tolist()), strict=True
    ):
        distinct = points.unique(dim=0)
        if len(distinct) <= num_proxies:
            proxies = distinct[torch.arange(num_proxies) % len(distinct)]
        else:
            proxies = k_means(points, num_proxies, generator=generator)
        centres[class_id] = proxies.to(features)
    return centres


def k_means(
    points: Float[Tensor, "n D"], k: int, *, generator: torch.Generator, num_starts: int = 10
) -> Float[Tensor, "k D"]:
    """The best result of Lloyd's algorithm from `num_starts` k-means++ starts.

    Needs k distinct points.
    """
    # (R, k, D)
    centres = torch.stack([_spread_start(points, k, generator) for _ in range(num_starts)])
    nearest = _squares(points, centres).argmin(-1)  # (R, n)
    for _ in range(MOST_ROUNDS):
        member = F.one_hot(nearest, k).to(points)  # (R, n, k)
        count = member.sum(1)[..., None]  # (R, k, 1)
        means = member.transpose(1, 2) @ points / count.clamp(min=1)
        centres = torch.where(count > 0, means, centres)  # the centre of an empty cluster stays
        before, nearest = nearest, _squares(points, centres).argmin(-1)
        if torch.equal(before, nearest):
            break
    return centres[_squares(points, centres).amin(-1).sum(-1).argmin()]


def _spread_start(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k points, each drawn in proportion to its squared distance from those drawn before."""
    drawn = [int(torch.randint(len(points), (1,), generator=generator))]
    for _ in range(k - 1):
        distance = _squares(points, points[drawn][None])[0].amin(-1)
        drawn.append(int(torch.multinomial(distance, 1, generator=generator)))
    return points[drawn]


def _squares(
    points: Float[Tensor, "n D"], centres: Float[Tensor, "R k D"]
) -> Float[Tensor, "R n k"]:
    """Squared distances; exactly 0 from a point to itself."""
    return torch.cdist(points[None], centres, compute_mode="donot_use_mm_for_euclid_dist").square()
