"""Cross-entropy of each sample over the seen columns, its gradient, and BiC's objective.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that introduced each class,
-1 for classes not seen yet.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc.losses._common import cross_entropy_over, only, outside_autocast, seen_columns
from avalanche_hfc.losses.compensation import target_gradient

BETA_DECAY = 0.1


@checked
def cross_entropy(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Cross-entropy of each sample over the columns of seen classes.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        The loss of each sample, shape ``(b,)``, in at least float32.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import cross_entropy
        >>> steps = torch.tensor([0, 1, -1])
        >>> cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), steps)
        tensor([0.6931, 0.6931])
    """
    with outside_autocast(logits):
        return cross_entropy_over(seen_columns(steps), logits, targets)


@checked
def softmax_gradient(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Gradient magnitude |Γ_i| (Eq. 6) of the cross-entropy over the columns of seen classes.

    |Γ_i| = 1 - softmax(z_i)_y, see `target_gradient`.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        Values in [0, 1], shape ``(b,)``, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import softmax_gradient
        >>> steps = torch.tensor([0, 1, -1])
        >>> softmax_gradient(torch.zeros(2, 3), torch.tensor([0, 1]), steps)
        tensor([0.5000, 0.5000])
    """
    return target_gradient(only(seen_columns(steps), logits), targets)


@checked
def corrected_objective(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    beta: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """Objective with which BiC fits its bias correction: mean cross-entropy plus 0.1 β²/2.

    Args:
        logits: Corrected scores, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        beta: The offset β of the correction, a scalar.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import corrected_objective
        >>> targets, steps = torch.tensor([0, 1]), torch.tensor([0, 1])
        >>> corrected_objective(torch.zeros(2, 2), targets, steps, torch.tensor(2.0))
        tensor(0.8931)
    """
    return cross_entropy(logits, targets, steps).mean() + BETA_DECAY * beta.square() / 2
