"""Distillation of logits over the old columns O, as a cross-entropy or as a divergence.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that introduced each class, -1 for classes not seen yet. O is empty in the
first step, so every loss here is 0 in it.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc.losses._common import (
    full_precision,
    log_probabilities,
    old_columns,
    outside_autocast,
)
from avalanche_hfc.losses.relation import checked_teacher


def soft_cross_entropy(
    log_targets: Float[Tensor, "b C"], log_predictions: Float[Tensor, "b C"]
) -> Float[Tensor, "b"]:
    """-Σ q log p of each sample. Both logarithms are 0 in columns that are excluded."""
    return -(log_targets.exp() * log_predictions).sum(1)


def divergence(
    log_targets: Float[Tensor, "b C"], log_predictions: Float[Tensor, "b C"]
) -> Float[Tensor, "b"]:
    """KL(q ‖ p) of each sample. Both logarithms are 0 in columns that are excluded."""
    return (log_targets.exp() * (log_targets - log_predictions)).sum(1)


def old_log_probabilities(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    temperature: float,
    caller: str,
) -> tuple[Float[Tensor, "b K"], Float[Tensor, "b K"]]:
    """(teacher, student): log softmax_O(·/T) in the teacher's columns; no other column is old."""
    logits = full_precision(logits) / temperature
    teacher = (
        checked_teacher(teacher_logits, logits.shape[1], caller).to(logits.dtype) / temperature
    )
    width = teacher.shape[1]
    old = old_columns(steps)[:width]
    return log_probabilities(old, teacher), log_probabilities(old, logits[:, :width])


@checked
def knowledge_distillation(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 2.0,
    factor: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, ""]:
    """Distillation of logits over the columns of old classes, as a cross-entropy.

    factor · mean_i -Σ_{c∈O} q_ic log p_ic with q = softmax_O(z°/T) and p = softmax_O(z/T). There is
    no factor T². BiC passes the fraction of old classes as `factor`, FOSTER its λ.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        temperature: T.
        factor: A number by which the loss is multiplied.

    Returns:
        A scalar; 0 in the first step. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import knowledge_distillation
        >>> logits, steps = torch.tensor([[0.0, 0.0, 4.0]]), torch.tensor([0, 0, 1])
        >>> knowledge_distillation(logits, torch.tensor([[1.0, 1.0]]), steps)
        tensor(0.6931)
    """
    with outside_autocast(logits):
        teacher, student = old_log_probabilities(
            logits, teacher_logits, steps, temperature, "knowledge_distillation"
        )
        return factor * soft_cross_entropy(teacher, student).mean()


@checked
def divergence_per_column(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, ""]:
    """DyTox's distillation of logits: a KL divergence divided by the number of old columns.

    τ²/(b K_o) Σ_i KL(softmax_O(z°_i/τ) ‖ softmax_O(z_i/τ)). The division makes it comparable with a
    binary cross-entropy that is averaged over columns.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        temperature: τ.

    Returns:
        A scalar; 0 in the first step. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import divergence_per_column
        >>> logits, steps = torch.tensor([[0.0, 0.0, 4.0]]), torch.tensor([0, 0, 1])
        >>> divergence_per_column(logits, torch.tensor([[1.0, 0.0]]), steps)
        tensor(0.0555)
    """
    with outside_autocast(logits):
        teacher, student = old_log_probabilities(
            logits, teacher_logits, steps, temperature, "divergence_per_column"
        )
        num_old = old_columns(steps).sum().clamp(min=1)
        return temperature**2 * divergence(teacher, student).mean() / num_old
