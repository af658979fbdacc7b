"""Losses of methods with sigmoid outputs, iCaRL and DyTox: binary cross-entropy and distillation.

`b` samples, `C` columns of the student, `K` ≤ `C` of the teacher; a column is a class id in both.
`steps` holds the step that introduced each class, -1 for classes not seen yet. BCE(z, q; S) is the
mean over the seen columns S.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc._compiled import compilable
from avalanche_hfc.losses._common import (
    ClassGroups,
    full_precision,
    new_columns,
    old_columns,
    one_hot,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses.compensation import weights_from_gradient
from avalanche_hfc.losses.official import mean_bce
from avalanche_hfc.losses.relation import (
    check_average,
    checked_teacher,
    prototype_terms,
    relation_average,
    widen,
)


@checked
@compilable
def mixed_targets(
    targets: Int[Tensor, "b"], teacher_logits: Float[Tensor, "b K"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b C"]:
    """iCaRL's targets: the teacher's sigmoid in old columns, the one-hot label in new ones.

    A sample of an old class has zeros in the new columns; its label is not used.

    Args:
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        Targets of shape ``(b, C)``, detached.

    Raises:
        ValueError: If the teacher has more columns than the student.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import mixed_targets
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
        >>> mixed_targets(targets, torch.zeros(2, 2), steps)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 1.0000]])
    """
    teacher = checked_teacher(teacher_logits, len(steps), "mixed_targets")
    teacher = widen(teacher.sigmoid(), len(steps))
    return torch.where(old_columns(steps), teacher, one_hot(targets, teacher))


@checked
@compilable
def mixed_binary_cross_entropy(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"] | None,
    steps: Int[Tensor, "C"],
    *,
    divisor: int | None = None,
) -> Float[Tensor, "b"]:
    """iCaRL's loss of each sample: binary cross-entropy to `mixed_targets`.

    The mean over the columns of seen classes.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        teacher_logits: Scores of the model of the previous step, shape ``(b, K)`` with ``K <= C``.
            None in the first step, where the targets are one-hot.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        divisor: Divide the sum over the seen columns by this number instead of the number of seen
            columns. The original network divides by the number of all classes from the first step
            on.

    Returns:
        The loss of each sample, shape ``(b,)``.

    Raises:
        ValueError: If the teacher has more columns than the student.
        ValueError: If `divisor` is below 1.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import mixed_binary_cross_entropy
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
        >>> mixed_binary_cross_entropy(torch.zeros(2, 3), targets, torch.zeros(2, 2), steps)
        tensor([0.6931, 0.6931])
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


@checked
@compilable
def binary_cross_entropy(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Binary cross-entropy of each sample to its one-hot label, mean over the seen columns.

    DyTox trains with it.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        The loss of each sample, shape ``(b,)``.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import binary_cross_entropy
        >>> steps = torch.tensor([0, 1, -1])
        >>> binary_cross_entropy(torch.tensor([[4.0, -4.0, 0.0]]), torch.tensor([0]), steps)
        tensor([0.0181])
    """
    return mixed_binary_cross_entropy(logits, targets, None, steps)


@checked
@compilable
def later_binary_cross_entropy(
    logits: Float[Tensor, "b C"], steps: Int[Tensor, "C"], divisor: int
) -> Float[Tensor, "b"]:
    """Binary cross-entropy of each sample to 0 in the columns of classes to come.

    iCaRL's own network has a column for every class from the first step on, and trains it so.

    Args:
        logits: Scores of the model, shape ``(b, C)``, those of classes to come included.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet.
        divisor: The sum over these columns is divided by this number, that of all classes.

    Returns:
        The loss of each sample, shape ``(b,)``.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import later_binary_cross_entropy
        >>> later_binary_cross_entropy(torch.zeros(1, 3), torch.tensor([0, -1, -1]), 3)
        tensor([0.4621])
    """
    with outside_autocast(logits):
        losses = F.softplus(full_precision(logits))  # -log(1 - σ(z))
        return losses.where(~seen_columns(steps), 0.0).sum(1) / divisor


@checked
@compilable
def divergence_binary_cross_entropy(
    logits: Float[Tensor, "b D"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """Binary cross-entropy of each sample for DyTox's divergence head.

    The head has K_t + 1 outputs: output 0 stands for any old class, the others for the new classes
    in ascending order of their class ids.

    Args:
        logits: Scores of the divergence head, shape ``(b, K_t + 1)``.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.

    Returns:
        The loss of each sample, shape ``(b,)``, mean over the outputs.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import divergence_binary_cross_entropy
        >>> targets, steps = torch.tensor([0, 3]), torch.tensor([0, 0, 1, 1])
        >>> logits = torch.tensor([[4.0, -4.0, -4.0], [4.0, -4.0, -4.0]])
        >>> divergence_binary_cross_entropy(logits, targets, steps)
        tensor([0.0181, 2.6848])
    """
    with outside_autocast(logits):
        logits, new = full_precision(logits), new_columns(steps)
        labels = (new.cumsum(0) * new)[targets]
        return F.binary_cross_entropy_with_logits(
            logits, one_hot(labels, logits), reduction="none"
        ).mean(1)


@checked
@compilable
def sigmoid_gradient(logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Gradient magnitude |Γ_i| (Eq. 6) of the one-hot binary cross-entropy.

    |Γ_i| = 1 - σ(z_iy), before the division by the number of columns.

    Args:
        logits: Scores of the model, shape ``(b, C)``. A column is a class id.
        targets: Class ids, shape ``(b,)``.

    Returns:
        Values in [0, 1], shape ``(b,)``, detached.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import sigmoid_gradient
        >>> sigmoid_gradient(torch.tensor([[0.0, 5.0], [0.0, 5.0]]), torch.tensor([0, 1]))
        tensor([0.5000, 0.0067])
    """
    return (-full_precision(logits.detach()).gather(1, targets[:, None]).squeeze(1)).sigmoid()


@checked
@compilable
def sigmoid_relation_distillation(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    teacher_logits: Float[Tensor, "b K"],
    steps: Int[Tensor, "C"],
    *,
    average: Literal["present", "seen"] = "present",
    weights: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """Relation distillation for sigmoid outputs: L_RD (Eq. 13) with Bernoulli divergences.

    The mean over the columns of seen classes of KL(Bern(Ỹ_k) ‖ Bern(P̃_k)), where Ỹ_k and P̃_k are
    the means of `mixed_targets` and of σ(z) over the samples of class k.

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
            `sigmoid_gradient`.

    Returns:
        A scalar; 0 in the first step. Gradients flow to `logits` only.

    Raises:
        ValueError: If the teacher has more columns than the student.
        ValueError: If `average` is not one of the two.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import sigmoid_relation_distillation
        >>> targets, steps = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
        >>> sigmoid_relation_distillation(torch.zeros(2, 3), targets, torch.zeros(2, 2), steps)
        tensor(0.2310)
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
