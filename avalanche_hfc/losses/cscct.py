"""CSCCT: cross-space clustering and controlled transfer, on the features of a batch.

`b` samples, `D` numbers of a feature, `C` columns; `steps` holds the step that brought each class,
-1 where none has yet.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    check_choice,
    log_probabilities,
    old_columns,
    outside_autocast,
)
from avalanche_hfc.losses._features import unit
from avalanche_hfc.losses.distillation import divergence


def cross_space_clustering(
    features: Float[Tensor, "b D"],
    teacher_features: Float[Tensor, "b D"],
    targets: Int[Tensor, "b"],
) -> Float[Tensor, ""]:
    """CSC = (1/b²) Σ_ij σ_ij (1 - cos(f_i, f°_j)), σ = +1 for samples of one class, else -1.
    Negative when most pairs differ in class.
    """
    with outside_autocast(features):
        distances = 1 - unit(features) @ unit(teacher_features.detach()).T
        return torch.where(targets[:, None] == targets, distances, -distances).mean()


def controlled_transfer(
    features: Float[Tensor, "b D"],
    teacher_features: Float[Tensor, "b D"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    *,
    temperature: float = 2.0,
    reduction: Literal["elements", "rows"] = "elements",
) -> Float[Tensor, ""]:
    """CT = T²/(|A||B|) Σ_{i∈A} KL(p°_i ‖ p_i), p_i = softmax over j∈B of cos(f_i, f_j)/T; A the new
    samples of the batch, B the old ones.

    `reduction` divides by the elements |A||B|, as the released code, or by the rows |A|. 0 where A
    or B is empty.
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
