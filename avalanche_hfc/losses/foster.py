"""FOSTER: class weights from counts, cross-entropy of divided logits, and the compression loss.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that introduced each class,
-1 for classes not seen yet.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc.losses._common import (
    cross_entropy_over,
    full_precision,
    log_probabilities,
    only,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses.compensation import target_gradient
from avalanche_hfc.losses.distillation import soft_cross_entropy


@checked
def class_weights(
    counts: Int[Tensor, "C"] | Float[Tensor, "C"], steps: Int[Tensor, "C"], *, beta: float
) -> Float[Tensor, "C"]:
    """Weight of each class from its number of images; a class with few images weighs more.

    w_c = (1-β)/(1-β^{n_c}), scaled to mean 1 over the classes seen.

    Args:
        counts: Number of images n_c of each class, shape ``(C,)``; 0 counts as 1.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        beta: β in [0, 1). 0 gives every class the weight 1.

    Returns:
        Weights of shape ``(C,)``; 1 for classes not seen yet.

    Raises:
        ValueError: If `beta` is outside [0, 1).

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import class_weights
        >>> class_weights(torch.tensor([20, 500]), torch.tensor([0, 1]), beta=0.97)
        tensor([1.3734, 0.6266])
    """
    if not 0 <= beta < 1:
        raise ValueError(f"class_weights: beta must be in [0, 1), got {beta}.")
    seen = seen_columns(steps)
    weights = 1 / (1 - beta ** counts.clamp(min=1))  # 1-β goes with the scale
    return (weights * seen.sum() / weights.where(seen, 0.0).sum()).where(seen, 1.0)


@checked
def divided_cross_entropy(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
) -> Float[Tensor, "b"]:
    """Cross-entropy of each sample after dividing each column by the weight of its class.

    The softmax runs over the columns of seen classes. In evaluation FOSTER uses the logits
    undivided.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        weights: Weight of each class, shape ``(C,)``; see `class_weights`.

    Returns:
        The loss of each sample, shape ``(b,)``.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import divided_cross_entropy
        >>> logits, steps = torch.tensor([[2.0, 0.0]]), torch.tensor([0, 1])
        >>> divided_cross_entropy(logits, torch.tensor([0]), steps, torch.tensor([2.0, 0.5]))
        tensor([0.3133])
    """
    with outside_autocast(logits):
        return cross_entropy_over(seen_columns(steps), logits / weights, targets)


@checked
def divided_gradient(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
) -> Float[Tensor, "b"]:
    """Gradient magnitude |Γ_i| (Eq. 6) of `divided_cross_entropy`.

    The derivative is taken with respect to the divided logits.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        weights: Weight of each class, shape ``(C,)``; see `class_weights`.

    Returns:
        Values in [0, 1], shape ``(b,)``, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import divided_gradient
        >>> logits, steps = torch.tensor([[2.0, 0.0]]), torch.tensor([0, 1])
        >>> divided_gradient(logits, torch.tensor([0]), steps, torch.tensor([2.0, 0.5]))
        tensor([0.2689])
    """
    return target_gradient(only(seen_columns(steps), logits / weights), targets)


@checked
def compression_targets(
    teacher_logits: Float[Tensor, "b C"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
    *,
    temperature: float = 2.0,
) -> Float[Tensor, "b C"]:
    """Logarithm of the distribution that FOSTER's compressed network learns.

    log r_i with r_ic ∝ w_c softmax_S(z°_i/T)_c, which sums to 1 over the classes seen.

    Args:
        teacher_logits: Scores of the boosted network, shape ``(b, C)``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        weights: Weight of each class, shape ``(C,)``; see `class_weights`.
        temperature: T.

    Returns:
        Log probabilities of shape ``(b, C)``, detached; 0 in the columns of classes not seen yet.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import compression_targets
        >>> teacher_logits, steps = torch.tensor([[2.0, 0.0]]), torch.tensor([0, 1])
        >>> compression_targets(teacher_logits, steps, torch.tensor([0.5, 1.5])).exp()
        tensor([[0.4754, 0.5246]])
    """
    seen = seen_columns(steps)
    # small numbers first: log w would be rounded away
    plain = log_probabilities(seen, full_precision(teacher_logits.detach()) / temperature)
    return log_probabilities(seen, plain + weights.log())


@checked
def compression(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b C"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
    *,
    temperature: float = 2.0,
) -> Float[Tensor, ""]:
    """FOSTER's compression loss: the cross-entropy to `compression_targets`.

    It uses no labels.

    Args:
        logits: Scores of the compressed network, shape ``(b, C)``. A column is a class id.
        teacher_logits: Scores of the boosted network, shape ``(b, C)``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        weights: Weight of each class, shape ``(C,)``; see `class_weights`.
        temperature: T.

    Returns:
        A scalar. Gradients flow to `logits` only.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import compression
        >>> teacher_logits, steps = torch.tensor([[2.0, 0.0]]), torch.tensor([0, 1])
        >>> compression(torch.zeros(1, 2), teacher_logits, steps, torch.ones(2))
        tensor(0.6931)
    """
    with outside_autocast(logits):
        log_targets = compression_targets(teacher_logits, steps, weights, temperature=temperature)
        return soft_cross_entropy(
            log_targets,
            log_probabilities(seen_columns(steps), full_precision(logits) / temperature),
        ).mean()
