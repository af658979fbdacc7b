"""First proxies of a class: k-means centres of its unit features (PODNet).

`n` features of `D` numbers, `k` centres, `R` runs of k-means side by side.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

MOST_ROUNDS = 100


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

    Raises:
        ValueError: If `num_proxies` is below 1.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import proxy_centres
        >>> features, labels = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([7, 7])
        >>> proxy_centres(features, labels, num_proxies=2, generator=torch.Generator())
        {7: tensor([[0., 1.],
                [1., 0.]])}
    """
    if num_proxies < 1:
        raise ValueError(f"proxy_centres: num_proxies must be at least 1, got {num_proxies}.")
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
