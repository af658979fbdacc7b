"""Losses of a separated softmax, SS-IL's: old and new classes never share a softmax.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that introduced each class, -1 for classes not seen yet. The two blocks are
the old columns O and the new columns N; no gradient flows between them. The softmax of a step with
one class is 1: there is no loss and no gradient, and the class is never learned.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc._compiled import compilable
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
from avalanche_hfc.losses.compensation import target_gradient, weights_from_gradient
from avalanche_hfc.losses.distillation import divergence
from avalanche_hfc.losses.relation import (
    check_average,
    checked_teacher,
    prototype_terms,
    relation_average,
    widen,
)


def sample_block(targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Bool[Tensor, "b C"]:
    """The columns of each sample's block: O for an old class, N for a new one."""
    old = old_columns(steps)
    return (old == old[targets][:, None]) & seen_columns(steps)


@checked
@compilable
def separated_cross_entropy(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Cross-entropy of each sample within its block: old classes only or new classes only.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        The loss of each sample, shape ``(b,)``; 0 in a block of one column.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import separated_cross_entropy
        >>> steps = torch.tensor([0, 0, 1, 1, 1])
        >>> separated_cross_entropy(torch.zeros(2, 5), torch.tensor([0, 4]), steps)
        tensor([0.6931, 1.0986])
    """
    with outside_autocast(logits):
        return cross_entropy_over(sample_block(targets, steps), logits, targets)


@checked
@compilable
def separated_gradient(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Gradient magnitude |Γ_i| (Eq. 6) of `separated_cross_entropy`.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        Values in [0, 1], shape ``(b,)``, detached; 0 in a block of one column.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import separated_gradient
        >>> steps = torch.tensor([0, 0, 1, 1, 1])
        >>> separated_gradient(torch.zeros(2, 5), torch.tensor([0, 4]), steps)
        tensor([0.5000, 0.6667])
    """
    return target_gradient(only(sample_block(targets, steps), logits), targets)


def step_log_probabilities(
    logits: Float[Tensor, "b C"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b C"]:
    """log softmax of each column over the columns of its step.

    Unseen columns form a block with a uniform softmax, whatever their logits. A step may be any
    number, so the rank of a column's step among the sorted steps is the index of its group.
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


@checked
@compilable
def separated_distillation(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 2.0,
) -> Float[Tensor, ""]:
    """SS-IL's distillation: a KL divergence within each old step, summed over the steps.

    Σ_{s<t} T² mean_i KL(softmax_{C_s}(z°_i/T) ‖ softmax_{C_s}(z_i/T)). It grows with the number of
    steps.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        temperature: T.

    Returns:
        A scalar; 0 in the first step. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import separated_distillation
        >>> logits, steps = torch.tensor([[0.0, 0.0, 4.0]]), torch.tensor([0, 0, 1])
        >>> separated_distillation(logits, torch.tensor([[1.0, 0.0]]), steps)
        tensor(0.1212)
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


@checked
@compilable
def separated_relation_distillation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    average: Literal["present", "seen"] = "present",
    weights: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """Relation distillation for a separated softmax: L_RD (Eq. 13) within each step.

    Σ_{s<t} KL(Ỹ_k ‖ P̃_k) of class means of the softmax of each step. For new classes the one-hot
    label is compared with the softmax of the new step as well.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        average: What the sum over classes is divided by: the number of classes in the batch
            (``"present"``) or the number of classes seen so far (``"seen"``, as printed in the
            paper; the loss then shrinks with ``b / C``).
        weights: Weight of each sample, shape ``(b,)``. By default those of Eq. 9 computed from
            `separated_gradient`.

    Returns:
        A scalar; 0 in the first step. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.
        ValueError: If `average` is not one of the two.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import separated_relation_distillation
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1, 1])
        >>> teacher_logits = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> separated_relation_distillation(torch.zeros(2, 4), targets, teacher_logits, steps)
        tensor(0.4575)
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
