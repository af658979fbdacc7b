"""Gradient-balanced relation distillation (GRD): L_RD, Eq. 10-13.

`b` samples, `C` columns of the student, `C'` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that brought each class, -1 where none has yet. D_KL(P̃, Ỹ) is read as KL(Ỹ ‖
P̃): the other direction is infinite, as Ỹ has exact zeros.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    ClassGroups,
    full_precision,
    log_probabilities,
    old_columns,
    one_hot,
    only,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses._prototypes import check_average, prototype_terms, relation_average
from avalanche_hfc.losses.compensation import compensation_weights


def checked_teacher(
    teacher_logits: Float[Tensor, "b K"], num_columns: int, caller: str
) -> Float[Tensor, "b K"]:
    """The teacher's logits, detached; a ValueError if it has more columns than the student."""
    width = teacher_logits.shape[1]
    if width > num_columns:
        raise ValueError(
            f"{caller}: teacher_logits has {width} columns, logits has {num_columns}. "
            "The teacher must not know more classes than the student."
        )
    return full_precision(teacher_logits.detach())


def widen(columns: Float[Tensor, "b K"], num_columns: int) -> Float[Tensor, "b C"]:
    """The teacher's columns among the student's, 0 in the others."""
    return F.pad(columns, (0, num_columns - columns.shape[1]))


def relation_targets(
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    normalise: bool,
) -> Float[Tensor, "b C"]:
    """Y_i (Sec. 3.4): the teacher's softmax in the old columns, the one-hot label in the new ones.
    Detached.

    As printed the row of a new class sums to 2, which pulls its probability to 1/2 at most;
    `normalise` divides each row by its sum. The teacher must have a column for every old class:
    that cannot be seen here without reading `steps` on the host.
    """
    old = old_columns(steps)
    teacher = checked_teacher(teacher_logits, len(steps), "relation_targets")
    teacher = widen(only(old[: teacher.shape[1]], teacher).softmax(1), len(steps))
    relation = torch.where(old, teacher, one_hot(targets, teacher))
    return relation / relation.sum(1, keepdim=True) if normalise else relation


def relation_distillation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    normalise: bool = True,
    average: Literal["present", "seen"] = "present",
    weights: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """L_RD, Eq. 13: KL(Ỹ_k ‖ P̃_k) of the classes in the batch, weighted by Γ_k^s/Γ_η^s; 0 in the
    first step.

    `average` divides by the classes present in the batch or by all classes seen (as printed: then
    the strength falls with b / C). `weights` are per-sample weights w_i in place of those of Eq. 9;
    a class's weight is the mean over its samples, Eq. 12.
    """
    check_average("relation_distillation", average)
    with outside_autocast(logits):
        teacher_logits = checked_teacher(teacher_logits, logits.shape[1], "relation_distillation")
        predictions = log_probabilities(seen_columns(steps), logits)
        relation = relation_targets(targets, teacher_logits, steps, normalise=normalise).to(
            predictions.dtype
        )
        classes = ClassGroups.of(targets, predictions)
        if weights is None:
            weights = compensation_weights(logits, targets, steps)
        return relation_average(
            prototype_terms(predictions, relation, classes).sum(1), weights, classes, steps, average
        )
