"""PODNet's losses: distillation of pooled maps and of the feature, and the NCA loss on the scaled
logits u = ηŷ, which AFC shares.

`b` samples, `C` columns, `D` numbers of a feature; maps are (b, channels, h, w). A column is a
class id; `steps` holds the step that brought each class, -1 where none has yet.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    check_choice,
    full_precision,
    new_columns,
    only,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses._features import Maps, squared_pairs, unit, unit_distance
from avalanche_hfc.losses.compensation import target_gradient


def pod_spatial(maps: Maps, teacher_maps: Maps) -> Float[Tensor, ""]:
    """POD-spatial: mean over maps and samples of ‖v̂ - v̂°‖₂, v the sums of A² over the width and
    over the height, of unit length.
    """
    pairs = squared_pairs(maps, teacher_maps, "pod_spatial")
    with outside_autocast(maps[0]):
        return torch.stack([unit_distance(pooled(a), pooled(b)) for a, b in pairs]).mean()


def pooled(squares: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
    """[Σ_w a, Σ_h a], channels · (h + w) numbers of each sample."""
    return torch.cat([squares.sum(3).flatten(1), squares.sum(2).flatten(1)], 1)


def pod_flat(
    features: Float[Tensor, "b D"], teacher_features: Float[Tensor, "b D"]
) -> Float[Tensor, ""]:
    """POD-flat: mean_i (1 - cos(f_i, f°_i))."""
    with outside_autocast(features):
        return (1 - (unit(features) * unit(teacher_features.detach())).sum(1)).mean()


def step_factor(steps: Int[Tensor, "C"], dtype: torch.dtype = torch.float32) -> Float[Tensor, ""]:
    """s = √(K / K_t), the factor of POD and of AFC's distillation. 1 in the first step."""
    return (seen_columns(steps).sum() / new_columns(steps).sum().to(dtype)).sqrt()


def nca(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    form: Literal["code", "paper"] = "code",
    margin: float = 0.6,
    scale: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "b"]:
    """NCA of each sample over S, u = `logits`, η = `scale`.

    "code": -u_y + log(exp max_c u_c + Σ_{c≠y} exp u_c), no margin, no hinge.
    It is CE where y has the largest logit, and less than ln 2 above it elsewhere.
    "paper": [-(u_y - ηδ) + log Σ_{c≠y} exp u_c]_+, δ = `margin`. Only this form reads `margin` and
    `scale`.
    """
    check_choice("nca", "form", form, ("code", "paper"))
    with outside_autocast(logits):
        logits, column = full_precision(only(seen_columns(steps), logits)), targets[:, None]
        target = logits.gather(1, column).squeeze(1)
        if form == "code":
            highest = logits.amax(1)  # takes the target's place
            replaced = logits.scatter(1, column, highest[:, None])
            return highest - target + F.cross_entropy(replaced, targets, reduction="none")
        return (
            logits.scatter(1, column, float("-inf")).logsumexp(1) - target + margin * scale
        ).relu()


def nca_gradient(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    form: Literal["softmax", "code", "paper"] = "softmax",
    margin: float = 0.6,
    scale: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "b"]:
    """|Γ_i| with respect to u_y. In [0, 1], detached.

    "code": 1 - p_y where y has the largest logit, else 1. "paper": 1 where the hinge is active,
    else 0. "softmax": 1 - p_y always, which is the code's on every sample that is right and still
    tells wrong ones apart.
    """
    check_choice("nca_gradient", "form", form, ("softmax", "code", "paper"))
    if form == "paper":
        return nca(logits, targets, steps, form="paper", margin=margin, scale=scale).detach().sign()
    logits = only(seen_columns(steps), logits)
    gradient = target_gradient(logits, targets)
    if form == "softmax":
        return gradient
    return gradient.where(logits.gather(1, targets[:, None]).squeeze(1) == logits.amax(1), 1.0)
