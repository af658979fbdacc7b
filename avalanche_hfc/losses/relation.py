"""Gradient-balanced relation distillation (GRD): L_RD, Eq. 10-13.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that introduced each class, -1 for classes not seen yet. D_KL(P̃, Ỹ) is read
as KL(Ỹ ‖ P̃): the other direction is infinite because Ỹ has exact zeros.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import check_labels, checked
from avalanche_hfc._compiled import compilable
from avalanche_hfc.losses._common import (
    ClassGroups,
    check_choice,
    full_precision,
    log_probabilities,
    old_columns,
    one_hot,
    only,
    outside_autocast,
    seen_columns,
)
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


# Shared by every relation distillation: prototypes, divergence, weighted mean


def check_average(caller: str, average: object) -> None:
    """Raise a ValueError unless `average` is "present" or "seen"."""
    check_choice(caller, "average", average, ("present", "seen"))


def prototype_log_probabilities(
    log_probabilities: Float[Tensor, "b C"], classes: ClassGroups
) -> Float[Tensor, "b C"]:
    """log P̃_k (Eq. 10): mean probability over the samples of a class, in the row of each of them.

    Computed as a logsumexp over the samples of the class: a mean of probabilities underflows if
    every sample is confident of another column.
    """
    highest = classes.maxima(log_probabilities.detach())
    return classes.means((log_probabilities - highest).exp()).log() + highest


def prototype_terms(
    log_predictions: Float[Tensor, "b C"], relation: Float[Tensor, "b C"], classes: ClassGroups
) -> Float[Tensor, "b C"]:
    """Ỹ_k log(Ỹ_k / P̃_k) of each column, Eq. 11, in the row of each sample of class k."""
    targets = classes.means(relation)
    return torch.special.xlogy(targets, targets) - targets * prototype_log_probabilities(
        log_predictions, classes
    )


def relation_average(
    divergence: Float[Tensor, "b"],
    weights: Float[Tensor, "b"],
    classes: ClassGroups,
    steps: Int[Tensor, "C"],
    average: str,
) -> Float[Tensor, ""]:
    """Mean over classes of (mean weight of the class, Eq. 12) · (its divergence), Eq. 13.

    Classes are those present or those seen. 0 in the first step.
    """
    counted = classes.num_present() if average == "present" else seen_columns(steps).sum()
    loss = classes.sum_of_means(weights.detach().to(divergence.dtype) * divergence) / counted
    return torch.where(old_columns(steps).any(), loss, torch.zeros_like(loss))


@checked
@compilable
def relation_targets(
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    normalise: bool,
) -> Float[Tensor, "b C"]:
    """Targets Y_i of relation distillation (Sec. 3.4): teacher and one-hot label side by side.

    The columns of old classes hold the teacher's softmax, those of new classes the one-hot label.
    As printed, the row of a sample of a new class sums to 2, which limits its probability to 1/2.

    Args:
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
            It must have a column for every old class, which is not checked.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        normalise: Divide each row by its sum.

    Returns:
        Targets of shape ``(b, C)``, detached.

    Raises:
        ValueError: If the teacher has more columns than the student.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import relation_targets
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
        >>> relation_targets(targets, torch.zeros(2, 2), steps, normalise=True)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.2500, 0.2500, 0.5000]])
    """
    old = old_columns(steps)
    teacher = checked_teacher(teacher_logits, len(steps), "relation_targets")
    teacher = widen(only(old[: teacher.shape[1]], teacher).softmax(1), len(steps))
    relation = torch.where(old, teacher, one_hot(targets, teacher))
    return relation / relation.sum(1, keepdim=True) if normalise else relation


@checked
@compilable
def relation_distillation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    normalise: bool = True,
    average: Literal["present", "seen"] = "present",
    prototypes: bool = True,
    weights: Float[Tensor, "b"] | None = None,
    validate: bool = False,
) -> Float[Tensor, ""]:
    """L_RD (Eq. 13): weighted divergence between class prototypes of targets and predictions.

    The mean over classes of KL(Ỹ_k ‖ P̃_k), where Ỹ_k and P̃_k are the means of `relation_targets`
    and of the softmax over the samples of class k. Each class is weighted by Γ_k^s/Γ_η^s (Eq. 12),
    the mean weight of its samples.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        normalise: Divide each row of the relation targets by its sum. False is the equation as
            printed.
        average: What the sum over classes is divided by: the number of classes in the batch
            (``"present"``) or the number of classes seen so far (``"seen"``, as printed in the
            paper; the loss then shrinks with ``b / C``).
        prototypes: Compare the prototypes of the classes. False compares each sample with its own
            target, and takes the mean of a class over the divergences of its samples.
        weights: Weight of each sample, shape ``(b,)``. By default those of Eq. 9, see
            `compensation_weights`.
        validate: Refuse labels of classes not seen yet. Reads them on the host, which waits for
            the device.

    Returns:
        A scalar; 0 in the first step. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.
        ValueError: If `average` is not one of the two.
        ValueError: If a tensor has the wrong shape or type, or, with `validate`, a label is wrong.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import relation_distillation
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
        >>> relation_distillation(torch.zeros(2, 3), targets, torch.zeros(2, 2), steps)
        tensor(0.2322)
    """
    check_average("relation_distillation", average)
    if validate:
        check_labels("relation_distillation", targets, steps)
    with outside_autocast(logits):
        teacher_logits = checked_teacher(teacher_logits, logits.shape[1], "relation_distillation")
        predictions = log_probabilities(seen_columns(steps), logits)
        relation = relation_targets(targets, teacher_logits, steps, normalise=normalise).to(
            predictions.dtype
        )
        classes = ClassGroups.of(targets, predictions)
        if weights is None:
            weights = compensation_weights(logits, targets, steps)
        compared = classes if prototypes else ClassGroups.single(predictions)
        return relation_average(
            prototype_terms(predictions, relation, compared).sum(1),
            weights,
            classes,
            steps,
            average,
        )
