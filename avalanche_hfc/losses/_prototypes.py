"""What the relation distillation of hosts without a joint softmax shares with L_RD, Eq. 10-13: prototypes, weights, mean over classes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import ClassGroups, old_columns, seen_columns
from avalanche_hfc.losses.relation import prototype_log_probabilities

AVERAGES = ("present", "seen")


def prototype_terms(log_predictions: Float[Tensor, "b C"], relation: Float[Tensor, "b C"], classes: ClassGroups) -> Float[Tensor, "b C"]:
    """Ỹ_k log(Ỹ_k / P̃_k) of each column, in the row of each sample of class k."""
    targets = classes.means(relation)
    return torch.special.xlogy(targets, targets) - targets * prototype_log_probabilities(log_predictions, classes)


def relation_average(
    divergence: Float[Tensor, "b"], weights: Float[Tensor, "b"], classes: ClassGroups, steps: Int[Tensor, "C"], average: str
) -> Float[Tensor, ""]:
    """Mean over classes, present or seen, of (mean weight of the class) · (its divergence); 0 in the first step."""
    counted = classes.num_present if average == "present" else seen_columns(steps).sum()
    loss = classes.sum_of_means(weights.detach().to(divergence.dtype) * divergence) / counted
    return torch.where(old_columns(steps).any(), loss, torch.zeros_like(loss))
