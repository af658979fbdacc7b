"""PODNet's losses: distillation of pooled maps and of the feature, and the NCA loss AFC shares.

`b` samples, `C` columns, `D` numbers of a feature; maps are (b, channels, h, w). The logits u = ηŷ
are scaled similarities. A column is a class id; `steps` holds the step that introduced each class,
-1 for classes not seen yet.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc._compiled import compilable
from avalanche_hfc.losses._common import (
    Maps,
    check_choice,
    full_precision,
    new_columns,
    only,
    outside_autocast,
    seen_columns,
    squared_pairs,
    unit,
    unit_distance,
)
from avalanche_hfc.losses.compensation import target_gradient


def pod_spatial(maps: Maps, teacher_maps: Maps) -> Float[Tensor, ""]:
    """POD-spatial: PODNet's distillation of feature maps, pooled over width and over height.

    The mean over maps and samples of ‖v̂ - v̂°‖₂, where v holds the sums of the squared map over
    its width and over its height, scaled to unit length.

    Args:
        maps: Feature maps of the model, each of shape ``(b, channels, h, w)``.
        teacher_maps: Feature maps of the teacher, of the same shapes.

    Returns:
        A scalar. Gradients flow to `maps` only.

    Raises:
        ValueError: If the shapes differ or no map is given.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import pod_spatial
        >>> maps = [torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])]
        >>> pod_spatial(maps, [torch.ones(1, 1, 2, 2)])
        tensor(0.7654)
    """
    pairs = squared_pairs(maps, teacher_maps, "pod_spatial")
    with outside_autocast(maps[0]):
        return torch.stack([unit_distance(pooled(a), pooled(b)) for a, b in pairs]).mean()


def pooled(squares: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
    """[Σ_w a, Σ_h a], channels · (h + w) numbers of each sample."""
    return torch.cat([squares.sum(3).flatten(1), squares.sum(2).flatten(1)], 1)


@checked
@compilable
def pod_flat(
    features: Float[Tensor, "b D"], teacher_features: Float[Tensor, "b D"]
) -> Float[Tensor, ""]:
    """POD-flat: PODNet's distillation of the feature, mean_i (1 - cos(f_i, f°_i)).

    Args:
        features: Features of the model, shape ``(b, D)``.
        teacher_features: Features of the teacher, shape ``(b, D)``.

    Returns:
        A scalar in [0, 2]. Gradients flow to `features` only.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import pod_flat
        >>> pod_flat(torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
        tensor(0.2929)
    """
    with outside_autocast(features):
        return (1 - (unit(features) * unit(teacher_features.detach())).sum(1)).mean()


@checked
@compilable
def step_factor(steps: Int[Tensor, "C"], dtype: torch.dtype = torch.float32) -> Float[Tensor, ""]:
    """Factor √(K / K_t) of PODNet's and AFC's distillation, which grows with the classes seen.

    K is the number of classes seen so far, K_t the number of classes in the current step.

    Args:
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        dtype: Type of the result.

    Returns:
        A scalar; 1 in the first step.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import step_factor
        >>> step_factor(torch.tensor([0, 0, 0, 1]))
        tensor(2.)
    """
    return (seen_columns(steps).sum() / new_columns(steps).sum().to(dtype)).sqrt()


@checked
@compilable
def nca(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    form: Literal["code", "paper"] = "code",
    margin: float = 0.6,
    scale: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "b"]:
    """NCA loss of each sample over the columns of seen classes, as in PODNet and AFC.

    With u = `logits` and η = `scale`:

    - ``form="code"``: -u_y + log(exp max_c u_c + Σ_{c≠y} exp u_c), the released code's, without
      margin and hinge. It equals the cross-entropy if y has the largest logit, and exceeds it by
      less than ln 2 otherwise.
    - ``form="paper"``: max(0, -(u_y - ηδ) + log Σ_{c≠y} exp u_c), with δ = `margin`.

    Args:
        logits: Scaled similarities u, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        form: ``"code"`` or ``"paper"``.
        margin: δ; used by ``form="paper"`` only.
        scale: η; used by ``form="paper"`` only.

    Returns:
        The loss of each sample, shape ``(b,)``.

    Raises:
        ValueError: If `form` is not one of the two.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import nca
        >>> logits, targets = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> nca(logits, targets, torch.tensor([0, 1]))
        tensor([0.3133, 1.6931])
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


@checked
@compilable
def nca_gradient(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    form: Literal["softmax", "code", "paper"] = "softmax",
    margin: float = 0.6,
    scale: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "b"]:
    """Gradient magnitude |Γ_i| (Eq. 6) of `nca` with respect to the target's logit.

    - ``form="code"``: 1 - p_y if y has the largest logit, else 1.
    - ``form="paper"``: 1 where the hinge is active, else 0.
    - ``form="softmax"``: always 1 - p_y. It equals ``"code"`` on every correct sample and still
      distinguishes between wrong ones.

    Args:
        logits: Scaled similarities u, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        form: ``"softmax"``, ``"code"`` or ``"paper"``.
        margin: Margin of the hinge; used by ``form="paper"`` only.
        scale: Scale of the margin; used by ``form="paper"`` only.

    Returns:
        Values in [0, 1], shape ``(b,)``, detached.

    Raises:
        ValueError: If `form` is not one of the three.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import nca_gradient
        >>> logits, targets = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> nca_gradient(logits, targets, torch.tensor([0, 1]), form="code")
        tensor([0.2689, 1.0000])
    """
    check_choice("nca_gradient", "form", form, ("softmax", "code", "paper"))
    if form == "paper":
        return nca(logits, targets, steps, form="paper", margin=margin, scale=scale).detach().sign()
    logits = only(seen_columns(steps), logits)
    gradient = target_gradient(logits, targets)
    if form == "softmax":
        return gradient
    return gradient.where(logits.gather(1, targets[:, None]).squeeze(1) == logits.amax(1), 1.0)
