"""The training loss of the authors' released code, which differs from the paper's.

It uses sigmoids, clipped weights and a distillation term per sample. `b` samples, `C` columns;
means run over the columns seen. z = K^o/(K^o+K^t).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from avalanche_hfc._checks import check_labels, checked
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


@checked
def official_hfc(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"] | None,
    steps: Int[Tensor, "C"],
    *,
    validate: bool = False,
) -> Float[Tensor, ""]:
    """Training loss of HFC's released code, which differs from the paper's equations.

    The sum of a weighted one-hot binary cross-entropy (BCE), a weighted BCE to the teacher's
    sigmoids, and half a BCE between class means of logits. A step whose gradients are all 0 has
    weights of 1; the released code gives NaN.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
            None in the first step, where the loss is a plain BCE.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        validate: Refuse labels of classes not seen yet. Reads them on the host, which waits for
            the device.

    Returns:
        A scalar. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.
        ValueError: If a tensor has the wrong shape or type, or, with `validate`, a label is wrong.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import official_hfc
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
        >>> official_hfc(torch.zeros(2, 3), targets, torch.zeros(2, 2), steps)
        tensor(0.9395)
    """
    if validate:
        check_labels("official_hfc", targets, steps)
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
        # of the sample's class
        class_bce = mean_bce(classes.means(logits), classes.means(mixed), seen)
        prototype_term = classes.sum_of_means(w2 * class_bce) / classes.num_present()
        return (
            w1 * mean_bce(logits, labels, seen) + w2 * mean_bce(logits, mixed, seen)
        ).mean() + 0.5 * prototype_term
