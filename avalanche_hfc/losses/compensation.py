"""Gradient-balanced forgetting compensation (GFC): L_FC, Eq. 6-9.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that brought each class, -1
where none has yet.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    full_precision,
    old_fraction,
    only,
    outside_autocast,
    seen_columns,
    step_means,
)


def target_gradient(logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    """|Γ_i| = 1 - p(target) over the columns given, Eq. 6. In [0, 1], detached.

    Written as σ(LSE of the other columns - target logit): `1 - p` is 0 in float32 from a margin of
    17 on.
    """
    logits, column = full_precision(logits.detach()), targets[:, None]
    others = logits.scatter(1, column, float("-inf")).logsumexp(1)
    return (others - logits.gather(1, column)[:, 0]).sigmoid()


def weights_from_gradient(
    gradient: Float[Tensor, "b"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Weight of each sample in Eq. 9 from any host's |Γ|: mean 1 over the samples of each step.
    Detached.

    A step whose gradients are all 0 keeps weight 1 (0/0 otherwise). In the first step the weights
    are 1 exactly, not to a rounding.
    """
    gradient = full_precision(gradient.detach())
    z = old_fraction(steps, gradient.dtype)
    sharpened = torch.log1p(gradient**z)  # log(|Γ_i|^z + 1)
    mean = step_means(sharpened, steps[targets])  # Γ_η^s of the sample's own step, Eq. 8
    return torch.where((mean == 0) | (z == 0), 1.0, sharpened / mean)


def compensation_weights(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Weight of each sample in Eq. 9, from the softmax over the seen columns. Detached."""
    return weights_from_gradient(
        target_gradient(only(seen_columns(steps), logits), targets), targets, steps
    )


def forgetting_compensation(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, ""]:
    """L_FC, Eq. 9. The labels must be of seen classes: another one has probability 0 and
    gives inf.
    """
    with outside_autocast(logits):
        cross_entropy = F.cross_entropy(
            full_precision(only(seen_columns(steps), logits)), targets, reduction="none"
        )
        return (compensation_weights(logits, targets, steps) * cross_entropy).mean()
