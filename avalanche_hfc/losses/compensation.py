"""Gradient-balanced forgetting compensation (GFC): L_FC, Eq. 6-9.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that introduced each class,
-1 for classes not seen yet.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import check_labels, checked
from avalanche_hfc.losses._common import (
    full_precision,
    old_fraction,
    only,
    outside_autocast,
    seen_columns,
    step_means,
)


@checked
def target_gradient(logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Gradient magnitude |Γ_i| = 1 - p(target) of the cross-entropy over all columns, Eq. 6.

    Computed as σ(LSE of the other columns - target logit): `1 - p` is 0 in float32 from a margin of
    17 on.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id. A column at -inf is
            ignored.
        targets: Class ids, shape ``(b,)``.

    Returns:
        Values in [0, 1], shape ``(b,)``, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import target_gradient
        >>> target_gradient(torch.tensor([[0.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 0]))
        tensor([0.5000, 0.0067])
    """
    logits, column = full_precision(logits.detach()), targets[:, None]
    others = logits.scatter(1, column, float("-inf")).logsumexp(1)
    return (others - logits.gather(1, column)[:, 0]).sigmoid()


@checked
def weights_from_gradient(
    gradient: Float[Tensor, "b"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Sample weights of Eq. 9 from gradient magnitudes |Γ| of any classification loss.

    A sample whose gradient is large compared with the other samples of its step gets a weight above
    1. A step whose gradients are all 0 has weights of 1. In the first step the weights are exactly
    1.

    Args:
        gradient: Gradient magnitude of each sample, shape ``(b,)``, for example from
            `softmax_gradient`.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        Weights with mean 1 over the samples of each step, shape ``(b,)``, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import weights_from_gradient
        >>> gradient, targets = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([0, 1, 2])
        >>> weights_from_gradient(gradient, targets, torch.tensor([0, 0, 1]))
        tensor([0.4571, 1.5429, 1.0000])
    """
    gradient = full_precision(gradient.detach())
    z = old_fraction(steps, gradient.dtype)
    sharpened = torch.log1p(gradient**z)  # log(|Γ_i|^z + 1)
    mean = step_means(sharpened, steps[targets])  # Γ_η^s of the sample's own step, Eq. 8
    return torch.where((mean == 0) | (z == 0), 1.0, sharpened / mean)


@checked
def compensation_weights(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Sample weights of Eq. 9, from the softmax over the columns of seen classes.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        Weights with mean 1 over the samples of each step, shape ``(b,)``, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import compensation_weights
        >>> logits = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 3.0]])
        >>> compensation_weights(logits, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]))
        tensor([0.4265, 1.5735, 1.0000])
    """
    return weights_from_gradient(
        target_gradient(only(seen_columns(steps), logits), targets), targets, steps
    )


@checked
def forgetting_compensation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    validate: bool = False,
) -> Float[Tensor, ""]:
    """L_FC (Eq. 9): cross-entropy in which samples of forgotten classes weigh more.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far. A class not seen yet has
            probability 0, and the loss is inf.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        validate: Refuse labels of classes not seen yet. Reads them on the host, which waits for
            the device.

    Returns:
        A scalar. In the first step it equals ``F.cross_entropy`` over the seen columns.

    Raises:
        ValueError: If a tensor has the wrong shape or type, or, with `validate`, a label is wrong.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import forgetting_compensation
        >>> logits = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 3.0]])
        >>> forgetting_compensation(logits, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]))
        tensor(1.6685)
    """
    if validate:
        check_labels("forgetting_compensation", targets, steps)
    with outside_autocast(logits):
        cross_entropy = F.cross_entropy(
            full_precision(only(seen_columns(steps), logits)), targets, reduction="none"
        )
        return (compensation_weights(logits, targets, steps) * cross_entropy).mean()
