"""Losses of a separated softmax, SS-IL: cross-entropy inside the sample's own block, distillation
inside each old step, RD^sep.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that brought each class, -1 where none has yet. The two blocks are the old
columns O and the new ones N: no gradient flows between them. A step of one class has a softmax of
1: no loss, no gradient, the class is never learnt.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    ClassGroups,
    cross_entropy_over,
    full_precision,
    old_columns,
    one_hot,
    only,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses._prototypes import check_average, prototype_terms, relation_average
from avalanche_hfc.losses.compensation import target_gradient, weights_from_gradient
from avalanche_hfc.losses.distillation import divergence
from avalanche_hfc.losses.relation import checked_teacher, widen


def own_block(targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Bool[Tensor, "b C"]:
    """The columns of each sample's block: O for an old class, N for a new one."""
    old = old_columns(steps)
    return (old == old[targets][:, None]) & seen_columns(steps)


def separated_cross_entropy(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """CE(z_i, y_i; N or O) of each sample, over its own block."""
    with outside_autocast(logits):
        return cross_entropy_over(own_block(targets, steps), logits, targets)


def separated_gradient(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """|Γ_i| = 1 - softmax over the own block at the target. In [0, 1], detached; 0 in a block of
    one column.
    """
    return target_gradient(only(own_block(targets, steps), logits), targets)


def step_log_probabilities(
    logits: Float[Tensor, "b C"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b C"]:
    """log softmax of each column over the columns of its own step. Unseen ones are a uniform block:
    the same whatever the logits.

    A step may be any number, so a column's place among the sorted steps is the index of its group.
    """
    values = full_precision(logits).where(seen_columns(steps), 0.0)
    group = torch.searchsorted(steps.sort().values, steps).expand_as(values)
    fixed = values.detach()
    highest = fixed.scatter_reduce(1, group, fixed, "amax", include_self=False).gather(1, group)
    shifted = values - highest
    totals = torch.zeros_like(shifted).scatter_add(1, group, shifted.exp()).gather(1, group)
    return shifted - totals.log()


def only_old_steps(steps: Int[Tensor, "C"]) -> Int[Tensor, "C"]:
    """The steps as the teacher knows them: -1 in the new columns too."""
    return steps.where(old_columns(steps), -1)


def separated_distillation(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 2.0,
) -> Float[Tensor, ""]:
    """Σ_{s<t} T² mean_i KL(softmax_{C_s}(z°_i/T) ‖ softmax_{C_s}(z_i/T)). A sum over steps: it
    grows with their number.
    """
    with outside_autocast(logits):
        logits = full_precision(logits) / temperature
        teacher = (
            checked_teacher(teacher_logits, logits.shape[1], "separated_distillation").to(
                logits.dtype
            )
            / temperature
        )
        width = teacher.shape[1]
        known = only_old_steps(steps)[:width]
        student = step_log_probabilities(logits[:, :width], known)
        return temperature**2 * divergence(step_log_probabilities(teacher, known), student).mean()


def separated_relation_distillation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    average: Literal["present", "seen"] = "present",
    weights: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """RD^sep: Σ_{s<t} KL(Ỹ_k ‖ P̃_k) of class means of softmax_{C_s}; for new classes also one-hot
    against softmax_N. Averaged as L_RD.

    `weights` are per-sample weights w_i in place of those of Eq. 9 with this host's |Γ|.
    """
    check_average("separated_relation_distillation", average)
    with outside_autocast(logits):
        predictions = step_log_probabilities(logits, steps)
        teacher = checked_teacher(teacher_logits, len(steps), "separated_relation_distillation").to(
            predictions.dtype
        )
        teacher = widen(
            step_log_probabilities(teacher, steps[: teacher.shape[1]]).exp(), len(steps)
        )
        relation = torch.where(old_columns(steps), teacher, one_hot(targets, teacher))
        classes = ClassGroups.of(targets, predictions)
        if weights is None:
            weights = weights_from_gradient(
                separated_gradient(logits, targets, steps), targets, steps
            )
        return relation_average(
            prototype_terms(predictions, relation, classes).sum(1), weights, classes, steps, average
        )
