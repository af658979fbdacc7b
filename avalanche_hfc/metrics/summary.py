"""From counts to numbers. Pure. Accuracies are fractions in [0, 1]; a list of counts has one entry
per step, the first step included.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.metrics.counts import StepCounts


def accuracy(counts: StepCounts) -> float:
    """Right over all images: classes weigh by their images."""
    return int(counts.correct.sum()) / _num_images(counts)


def accuracy_nme(counts: StepCounts) -> float:
    """The same by the nearest class mean."""
    return int(_correct_nme(counts).sum()) / _num_images(counts)


def class_accuracies(counts: StepCounts, *, nme: bool = False) -> Float[Tensor, "C"]:
    """Accuracy of each class, of the head or of the nearest means; nan for a class without images.
    float64.
    """
    correct = _correct_nme(counts) if nme else counts.correct
    return correct.double() / counts.total


def average_incremental_accuracy(counts: Sequence[StepCounts]) -> float:
    """Mean over the steps of the accuracy on all classes seen by then."""
    _check_not_empty(counts)
    return sum(accuracy(step) for step in counts) / len(counts)


def last_accuracy(counts: Sequence[StepCounts]) -> float:
    """Accuracy after the last step."""
    _check_not_empty(counts)
    return accuracy(counts[-1])


def forgetting(
    counts: Sequence[StepCounts], steps: Int[Tensor, "C"], *, nme: bool = False
) -> float:
    """Mean over the classes of earlier steps of (best earlier accuracy - last accuracy). Below 0
    where classes gained.

    Accuracies are those of the head, or with `nme` of the nearest means.
    A class counts that has images in the last evaluation and in one before it. nan where there is
    none: in the first step nothing could be forgotten. `steps` are those of the last entry.
    """
    _check_not_empty(counts)
    last = class_accuracies(counts[-1], nme=nme)
    steps = _steps_of(counts[-1], steps)
    best = torch.full_like(last, -math.inf)
    for earlier in counts[:-1]:
        then = class_accuracies(earlier, nme=nme)
        best[: len(then)] = best[: len(then)].fmax(then)  # fmax passes over nan
    counted = (steps < steps.max()) & last.isfinite() & best.isfinite()
    return float((best - last)[counted].mean())


def forgetting_heterogeneity(counts: StepCounts, steps: Int[Tensor, "C"]) -> float:
    """FH of one evaluation: (1/S) Σ_i (|Γ_i| - Γ_{η(i)})², the pooled within-step variance of |Γ|
    (Eq. 6, 7). In [0, 1/4].

    From sums per step in float64: Σx² - (Σx)²/n. The published values are 1000 times this number.
    """
    num_images = _num_images(counts)
    step_of_class = _steps_of(counts, steps)
    pooled = 0.0
    for step in step_of_class.unique():
        own = step_of_class == step
        n, total, squares = (
            float(column[own].sum())
            for column in (counts.total, counts.gradient_sum, counts.gradient_square_sum)
        )
        if n:
            pooled += max(squares - total * total / n, 0.0)
    return pooled / num_images


def mean_forgetting_heterogeneity(counts: Sequence[StepCounts], steps: Int[Tensor, "C"]) -> float:
    """FH as the paper's table reports it, but for the factor 1000: mean over the steps. `steps` are
    those of the last entry.
    """
    _check_not_empty(counts)
    return sum(forgetting_heterogeneity(step, steps) for step in counts) / len(counts)


def _steps_of(counts: StepCounts, steps: Int[Tensor, "S"]) -> Int[Tensor, "C"]:
    """The step of each class counted. `steps` may know later classes; a class with images must have
    a step.
    """
    num_columns = len(counts.total)
    if len(steps) < num_columns:
        raise ValueError(f"steps names {len(steps)} classes, the counts {num_columns}.")
    steps = steps[:num_columns].cpu()
    strangers = ((steps < 0) & (counts.total > 0)).nonzero().flatten().tolist()
    if strangers:
        raise ValueError(f"Classes {strangers} have images in the counts but no step.")
    return steps


def _correct_nme(counts: StepCounts) -> Int[Tensor, "C"]:
    if counts.correct_nme is None:
        raise ValueError(
            "accuracy_nme: the evaluation had no class means. Pass class_means to evaluate."
        )
    return counts.correct_nme


def _num_images(counts: StepCounts) -> int:
    num_images = int(counts.total.sum())
    if not num_images:
        raise ValueError("The counts hold no image.")
    return num_images


def _check_not_empty(counts: Sequence[StepCounts]) -> None:
    if not counts:
        raise ValueError("The list of counts is empty: give one entry per step.")
