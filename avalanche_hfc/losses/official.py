"""The loss of the authors' released code, which is not the paper's: sigmoids, clipped weights, a
per-sample distillation term.

`b` samples, `C` columns; means run over the columns seen. z = K^o/(K^o+K^t).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    ClassGroups,
    full_precision,
    old_columns,
    old_fraction,
    one_hot,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses.compensation import compensation_weights
from avalanche_hfc.losses.relation import checked_teacher, widen


def mean_bce(
    logits: Float[Tensor, "b C"], labels: Float[Tensor, "b C"], seen: Bool[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Binary cross-entropy of each sample, mean over the seen columns."""
    elements = F.binary_cross_entropy_with_logits(logits.where(seen, 0.0), labels, reduction="none")
    return elements.where(seen, 0.0).sum(1) / seen.sum()


def official_weights(
    weights: Float[Tensor, "b"], is_old: Bool[Tensor, "b"], z: Float[Tensor, ""]
) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
    """(w1, w2): the clipped weights of the classification and of the two distillation terms."""
    forgotten = weights.clamp(0.5, 1.2)
    classification = torch.where(
        is_old, (1 - z).sqrt() * forgotten, (1 - z) * weights.clamp(0.5, 1.0)
    )
    distillation = torch.where(is_old, z * forgotten, 0.8 * z)
    return classification, distillation


def official_hfc(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"] | None,
    steps: Int[Tensor, "C"],
) -> Float[Tensor, ""]:
    """The released code's training loss: weighted one-hot BCE + weighted BCE to the teacher's
    sigmoid + 0.5 · BCE of class means of logits.

    `teacher_logits` is None in the first step: plain BCE. A step whose gradients are all 0 keeps
    weight 1; the released code gives NaN.
    """
    with outside_autocast(logits):
        logits = full_precision(logits)
        seen, old = seen_columns(steps), old_columns(steps)
        labels = one_hot(targets, logits)
        if teacher_logits is None:
            return mean_bce(logits, labels, seen).mean()
        teacher = checked_teacher(teacher_logits, len(steps), "official_hfc").to(logits.dtype)
        mixed = torch.where(old, widen(teacher.sigmoid(), len(steps)), labels)
        weights = compensation_weights(logits, targets, steps)
        w1, w2 = official_weights(weights, old[targets], old_fraction(steps, logits.dtype))
        classes = ClassGroups.of(targets, logits)
        class_bce = mean_bce(
            classes.means(logits), classes.means(mixed), seen
        )  # of the sample's class
        prototype_term = classes.sum_of_means(w2 * class_bce) / classes.num_present
        return (
            w1 * mean_bce(logits, labels, seen) + w2 * mean_bce(logits, mixed, seen)
        ).mean() + 0.5 * prototype_term
