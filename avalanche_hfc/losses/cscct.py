"""CSCCT: cross-space clustering and controlled transfer, on the features of a batch.

`b` samples, `D` numbers of a feature, `C` columns; `steps` holds the step that introduced each
class, -1 for classes not seen yet.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._checks import checked
from avalanche_hfc._compiled import compilable
from avalanche_hfc.losses._common import (
    check_choice,
    log_probabilities,
    old_columns,
    outside_autocast,
    unit,
)
from avalanche_hfc.losses.distillation import divergence


@checked
@compilable
def cross_space_clustering(
    features: Float[Tensor, "b D"],
    teacher_features: Float[Tensor, "b D"],
    targets: Int[Tensor, "b"],
) -> Float[Tensor, ""]:
    """CSCCT's clustering loss: features approach the teacher's features of the same class.

    CSC = (1/b²) Σ_ij σ_ij (1 - cos(f_i, f°_j)), with σ_ij = 1 for two samples of one class and -1
    otherwise.

    Args:
        features: Features of the model, shape ``(b, D)``.
        teacher_features: Features of the teacher, shape ``(b, D)``.
        targets: Class ids, shape ``(b,)``.

    Returns:
        A scalar in [-2, 2]; negative if most pairs differ in class. Gradients flow to `features`
        only.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import cross_space_clustering
        >>> features = torch.eye(2)
        >>> cross_space_clustering(features, features, torch.tensor([0, 1]))
        tensor(-0.5000)
    """
    with outside_autocast(features):
        distances = 1 - unit(features) @ unit(teacher_features.detach()).T
        return torch.where(targets[:, None] == targets, distances, -distances).mean()


@checked
@compilable
def controlled_transfer(
    features: Float[Tensor, "b D"],
    teacher_features: Float[Tensor, "b D"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 2.0,
    reduction: Literal["elements", "rows"] = "elements",
) -> Float[Tensor, ""]:
    """CSCCT's transfer loss: new samples keep the teacher's similarities to old samples.

    CT = T²/(|A||B|) Σ_{i∈A} KL(p°_i ‖ p_i), where p_i is the softmax over j∈B of cos(f_i, f_j)/T, A
    the samples of new classes in the batch and B those of old classes.

    Args:
        features: Features of the model, shape ``(b, D)``.
        teacher_features: Features of the teacher, shape ``(b, D)``.
        targets: Class ids, shape ``(b,)``, of classes seen so far.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. The largest value is the current step.
        temperature: T.
        reduction: Divide by the number of pairs |A||B| (``"elements"``, as the released code does)
            or by the number of new samples |A| (``"rows"``).

    Returns:
        A scalar; 0 if A or B is empty. Gradients flow to `features` only.

    Raises:
        ValueError: If `reduction` is not one of the two.

    Example:
        >>> import torch
        >>> from avalanche_hfc.losses import controlled_transfer
        >>> targets, steps = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])
        >>> teacher_features = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
        >>> controlled_transfer(torch.eye(3), teacher_features, targets, steps)
        tensor(0.0606)
    """
    check_choice("controlled_transfer", "reduction", reduction, ("elements", "rows"))
    with outside_autocast(features):
        is_old = old_columns(steps)[targets]
        teacher, student = (unit(f) for f in (teacher_features.detach(), features))
        log_targets, log_predictions = (
            log_probabilities(is_old, f @ f.T / temperature) for f in (teacher, student)
        )
        total = divergence(log_targets, log_predictions).where(~is_old, 0.0).sum()
        num_rows, num_columns = (~is_old).sum(), is_old.sum()
        counted = num_rows * num_columns if reduction == "elements" else num_rows
        return temperature**2 * total / counted.clamp(min=1)
