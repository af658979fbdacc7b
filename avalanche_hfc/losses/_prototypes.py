"""Shared by every relation distillation (Eq. 10-13): prototypes, divergence, weighted mean."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import ClassGroups, check_choice, old_columns, seen_columns


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
