"""First proxies of a class: k-means centres of its unit features (PODNet).

`n` features of `D` numbers, `k` centres, `R` starts of k-means side by side.
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
    """Class id -> (num_proxies, D): k-means centres of the class's unit features, in ascending
    order of class ids.

    A class with no more distinct features than proxies gives these features, repeated in turn. The
    generator is a CPU one; the work is done on the CPU in float64, so that the centres depend on
    the features and the generator only.
    """
    if num_proxies < 1:
        raise ValueError(f"proxy_centres: num_proxies must be at least 1, got {num_proxies}.")
    units = F.normalize(features.detach().cpu().double(), dim=1)
    labels = labels.cpu()
    centres = {}
    for class_id in labels.unique().tolist():
        own = units[labels == class_id]
        distinct = own.unique(dim=0)
        if len(distinct) <= num_proxies:
            found = distinct[torch.arange(num_proxies) % len(distinct)]
        else:
            found = k_means(own, num_proxies, generator=generator)
        centres[class_id] = found.to(features)
    return centres


def k_means(
    points: Float[Tensor, "n D"], k: int, *, generator: torch.Generator, num_starts: int = 10
) -> Float[Tensor, "k D"]:
    """Lloyd's rounds from `num_starts` k-means++ starts; the centres with the least sum of squared
    distances. Needs k distinct points.
    """
    centres = torch.stack(
        [_spread_start(points, k, generator) for _ in range(num_starts)]
    )  # (R, k, D)
    nearest = _squares(points, centres).argmin(-1)  # (R, n)
    for _ in range(MOST_ROUNDS):
        member = F.one_hot(nearest, k).to(points)  # (R, n, k)
        count = member.sum(1)[..., None]  # (R, k, 1)
        centres = torch.where(
            count > 0, member.transpose(1, 2) @ points / count.clamp(min=1), centres
        )  # an empty one stays
        before, nearest = nearest, _squares(points, centres).argmin(-1)
        if torch.equal(before, nearest):
            break
    return centres[_squares(points, centres).amin(-1).sum(-1).argmin()]


def _spread_start(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k points, each drawn in proportion to its squared distance from those drawn before."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator))]
    for _ in range(k - 1):
        distance = _squares(points, points[chosen][None])[0].amin(-1)
        chosen.append(int(torch.multinomial(distance, 1, generator=generator)))
    return points[chosen]


def _squares(
    points: Float[Tensor, "n D"], centres: Float[Tensor, "R k D"]
) -> Float[Tensor, "R n k"]:
    """Squared distances; exactly 0 from a point to itself."""
    return torch.cdist(points[None], centres, compute_mode="donot_use_mm_for_euclid_dist").square()
