"""Distillation of logits over the old columns O: the cross-entropy form of BiC and FOSTER, and
DyTox's divergence.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that brought each class, -1 where none has yet. O is empty in the first step:
every loss here is 0 then.
"""

from jaxtyping import Float, Int
from torch import Tensor

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
    """-Σ q log p of each sample. Both logarithms are 0 in columns that take no part."""
    return -(log_targets.exp() * log_predictions).sum(1)


def divergence(
    log_targets: Float[Tensor, "b C"], log_predictions: Float[Tensor, "b C"]
) -> Float[Tensor, "b"]:
    """KL(q ‖ p) of each sample. Both logarithms are 0 in columns that take no part."""
    return (log_targets.exp() * (log_targets - log_predictions)).sum(1)


def old_log_probabilities(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    temperature: float,
    caller: str,
) -> tuple[Float[Tensor, "b K"], Float[Tensor, "b K"]]:
    """(teacher, student): log softmax_O(·/T), in the teacher's columns: no other column is old."""
    logits = full_precision(logits) / temperature
    teacher = (
        checked_teacher(teacher_logits, logits.shape[1], caller).to(logits.dtype) / temperature
    )
    width = teacher.shape[1]
    old = old_columns(steps)[:width]
    return log_probabilities(old, teacher), log_probabilities(old, logits[:, :width])


def knowledge_distillation(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 2.0,
    factor: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, ""]:
    """factor · mean_i KD_T(z°_i, z_i; O): the cross-entropy form, without T². BiC: factor ρ;
    FOSTER: λ.
    """
    with outside_autocast(logits):
        teacher, student = old_log_probabilities(
            logits, teacher_logits, steps, temperature, "knowledge_distillation"
        )
        return factor * soft_cross_entropy(teacher, student).mean()


def divergence_per_column(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, ""]:
    """τ²/(b K_o) Σ_i KL(softmax_O(z°_i/τ) ‖ softmax_O(z_i/τ)), DyTox's. Per column, as its
    BCE is.
    """
    with outside_autocast(logits):
        teacher, student = old_log_probabilities(
            logits, teacher_logits, steps, temperature, "divergence_per_column"
        )
        num_old = old_columns(steps).sum().clamp(min=1)
        return temperature**2 * divergence(teacher, student).mean() / num_old
