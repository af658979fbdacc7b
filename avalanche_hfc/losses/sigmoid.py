"""Losses of hosts with sigmoid outputs, iCaRL and DyTox: BCE(z, q; S), |Γ|, and relation
distillation RD^σ.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that brought each class, -1 where none has yet. BCE(z, q; S) is the mean over
the columns seen.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    ClassGroups,
    full_precision,
    new_columns,
    old_columns,
    one_hot,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses._prototypes import check_average, prototype_terms, relation_average
from avalanche_hfc.losses.compensation import weights_from_gradient
from avalanche_hfc.losses.official import mean_bce
from avalanche_hfc.losses.relation import checked_teacher, widen


def mixed_targets(
    targets: Int[Tensor, "b"], teacher_logits: Float[Tensor, "b K"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b C"]:
    """q_i of iCaRL: the teacher's sigmoid in the old columns, the one-hot label in the new ones.
    Detached.

    An exemplar of an old class has no label here, only zeros in the new columns.
    """
    teacher = checked_teacher(teacher_logits, len(steps), "mixed_targets")
    teacher = widen(teacher.sigmoid(), len(steps))
    return torch.where(old_columns(steps), teacher, one_hot(targets, teacher))


def mixed_binary_cross_entropy(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"] | None,
    steps: Int[Tensor, "C"],
    *,
    divisor: int | None = None,
) -> Float[Tensor, "b"]:
    """BCE(z_i, q_i; S) of each sample, iCaRL's; `teacher_logits` is None in the first step: one-hot
    labels.

    `divisor` takes the place of the number of columns seen: the original network divides by all
    classes from the first step on.
    """
    if divisor is not None and divisor < 1:
        raise ValueError(f"mixed_binary_cross_entropy: divisor must be 1 or more, got {divisor}.")
    with outside_autocast(logits):
        logits, seen = full_precision(logits), seen_columns(steps)
        labels = (
            one_hot(targets, logits)
            if teacher_logits is None
            else mixed_targets(targets, teacher_logits, steps).to(logits.dtype)
        )
        loss = mean_bce(logits, labels, seen)
        return loss if divisor is None else loss * seen.sum() / divisor


def binary_cross_entropy(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """BCE(z_i, onehot(y_i); S) of each sample: DyTox's, and ℓ_i of iCaRL with both losses."""
    return mixed_binary_cross_entropy(logits, targets, None, steps)


def divergence_binary_cross_entropy(
    logits: Float[Tensor, "b D"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """BCE of each sample over the K_t + 1 outputs of DyTox's divergence head: 0 is any old class,
    then the new ones by class id.
    """
    with outside_autocast(logits):
        logits, new = full_precision(logits), new_columns(steps)
        labels = (new.cumsum(0) * new)[targets]
        return F.binary_cross_entropy_with_logits(
            logits, one_hot(labels, logits), reduction="none"
        ).mean(1)


def sigmoid_gradient(logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    """|Γ_i| = 1 - σ(z_iy) of the BCE with one-hot labels, before its 1/K. In [0, 1], detached."""
    return (-full_precision(logits.detach()).gather(1, targets[:, None]).squeeze(1)).sigmoid()


def sigmoid_relation_distillation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    average: Literal["present", "seen"] = "present",
    weights: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """RD^σ: mean over S of KL(Bern(Ỹ_k) ‖ Bern(P̃_k)), P̃ and Ỹ the class means of σ(z) and q;
    weighted and averaged as L_RD.

    `weights` are per-sample weights w_i in place of those of Eq. 9 with this host's |Γ|.
    """
    check_average("sigmoid_relation_distillation", average)
    with outside_autocast(logits):
        seen = seen_columns(steps)
        logits = full_precision(logits).where(seen, 0.0)
        classes = ClassGroups.of(targets, logits)
        relation = mixed_targets(targets, teacher_logits, steps).to(logits.dtype)
        terms = prototype_terms(F.logsigmoid(logits), relation, classes) + prototype_terms(
            F.logsigmoid(-logits), 1 - relation, classes
        )
        if weights is None:
            weights = weights_from_gradient(sigmoid_gradient(logits, targets), targets, steps)
        return relation_average(
            terms.where(seen, 0.0).sum(1) / seen.sum(), weights, classes, steps, average
        )
