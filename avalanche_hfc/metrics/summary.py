"""Metrics as pure functions of counts. Accuracies are fractions in [0, 1]."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.metrics.evaluation import StepCounts


def accuracy(counts: StepCounts) -> float:
    """Fraction of correct predictions among all images.

    Args:
        counts: Counts of one evaluation, see `evaluate`.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: If the counts contain no image.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import accuracy, evaluate
        >>> data = torch.utils.data.TensorDataset(torch.eye(2), torch.tensor([0, 0]))
        >>> accuracy(evaluate(torch.nn.Identity(), data, torch.tensor([0, 1])))
        0.5
    """
    return int(counts.correct.sum()) / _num_images(counts)


def accuracy_nme(counts: StepCounts) -> float:
    """Fraction of correct predictions by the nearest class mean among all images.

    Args:
        counts: Counts of one evaluation, see `evaluate`.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: If the evaluation was made without class means.
        ValueError: If the counts contain no image.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import StepCounts, accuracy_nme
        >>> zeros, total = torch.zeros(2, dtype=torch.float64), torch.tensor([10, 10])
        >>> counts = StepCounts(torch.zeros(2, 2).long(), torch.tensor([9, 6]), total, zeros, zeros)
        >>> accuracy_nme(counts)
        0.75
    """
    return int(_correct_nme(counts).sum()) / _num_images(counts)


def class_accuracies(counts: StepCounts, *, nme: bool = False) -> Float[Tensor, "C"]:
    """Accuracy of each class.

    Args:
        counts: Counts of one evaluation, see `evaluate`.
        nme: Use the nearest class mean instead of the head.

    Returns:
        A float64 tensor of shape ``(C,)``; nan for a class without images.

    Raises:
        ValueError: If `nme` is True and the evaluation was made without class means.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import class_accuracies, evaluate
        >>> data = torch.utils.data.TensorDataset(torch.eye(2), torch.tensor([0, 0]))
        >>> class_accuracies(evaluate(torch.nn.Identity(), data, torch.tensor([0, 1])))
        tensor([0.5000,    nan], dtype=torch.float64)
    """
    correct = _correct_nme(counts) if nme else counts.correct
    return correct.double() / counts.total


def average_incremental_accuracy(counts: Sequence[StepCounts], *, nme: bool = False) -> float:
    """Mean over the steps of the accuracy on all classes seen by then.

    Args:
        counts: Counts of the evaluation after each step, in order, the first step included.
        nme: Use the nearest class mean instead of the head.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: If the sequence is empty or an entry contains no image.
        ValueError: If `nme` is True and an evaluation was made without class means.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import StepCounts, average_incremental_accuracy
        >>> zeros, total = torch.zeros(1, dtype=torch.float64), torch.tensor([10])
        >>> steps = [StepCounts(torch.tensor([[n]]), None, total, zeros, zeros) for n in (10, 5)]
        >>> average_incremental_accuracy(steps)
        0.75
    """
    _check_not_empty(counts)
    measure = accuracy_nme if nme else accuracy
    return sum(measure(step) for step in counts) / len(counts)


def last_accuracy(counts: Sequence[StepCounts]) -> float:
    """Accuracy after the last step.

    Args:
        counts: Counts of the evaluation after each step, in order, the first step included.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: If the sequence is empty or an entry contains no image.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import StepCounts, last_accuracy
        >>> zeros, total = torch.zeros(1, dtype=torch.float64), torch.tensor([10])
        >>> steps = [StepCounts(torch.tensor([[n]]), None, total, zeros, zeros) for n in (10, 5)]
        >>> last_accuracy(steps)
        0.5
    """
    _check_not_empty(counts)
    return accuracy(counts[-1])


def forgetting(
    counts: Sequence[StepCounts], steps: Int[Tensor, "C"], *, nme: bool = False
) -> float:
    """Mean over the classes of earlier steps of best earlier accuracy minus last accuracy.

    A class counts if it has images in the last evaluation and in an earlier one.

    Args:
        counts: Counts of the evaluation after each step, in order, the first step included.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet.
        nme: Use the nearest class mean instead of the head.

    Returns:
        A number in [-1, 1], negative if accuracies rose; nan in the first step, where nothing can
        be forgotten.

    Raises:
        ValueError: If the sequence is empty or a class with images has no step.
        ValueError: If `nme` is True and an evaluation was made without class means.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import StepCounts, forgetting
        >>> zeros, total = torch.zeros(2, dtype=torch.float64), torch.tensor([10, 10])
        >>> confusions = [torch.tensor([[n, 10 - n], [0, 10]]) for n in (9, 6)]
        >>> counts = [StepCounts(confusion, None, total, zeros, zeros) for confusion in confusions]
        >>> round(forgetting(counts, torch.tensor([0, 1])), 4)
        0.3
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
    """Forgetting heterogeneity (FH) of one evaluation: how unevenly a step is forgotten.

    (1/S) Σ_i (|Γ_i| - Γ_{η(i)})² over S images: the variance of |Γ| (Eq. 6) within each step (Eq.
    7), pooled over the steps. The values published in the paper are 1000 times this number.

    Args:
        counts: Counts of one evaluation, see `evaluate`.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet.

    Returns:
        A number in [0, 1/4].

    Raises:
        ValueError: If the counts contain no image.
        ValueError: If a class with images has no step.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import evaluate, forgetting_heterogeneity
        >>> logits, steps = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0])
        >>> data = torch.utils.data.TensorDataset(logits, torch.tensor([0, 1]))
        >>> round(forgetting_heterogeneity(evaluate(torch.nn.Identity(), data, steps), steps), 4)
        0.145
    """
    num_images = _num_images(counts)
    step_of_class = _steps_of(counts, steps)
    pooled = 0.0
    for step in step_of_class.unique():
        in_step = step_of_class == step
        n, total, squares = (
            float(column[in_step].sum())
            for column in (counts.total, counts.gradient_sum, counts.gradient_square_sum)
        )
        if n:
            pooled += max(squares - total * total / n, 0.0)
    return pooled / num_images


def mean_forgetting_heterogeneity(counts: Sequence[StepCounts], steps: Int[Tensor, "C"]) -> float:
    """Mean over the steps of FH, as in the paper's table except for its factor 1000.

    Args:
        counts: Counts of the evaluation after each step, in order, the first step included.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet.

    Returns:
        A number in [0, 1/4].

    Raises:
        ValueError: If the sequence is empty or an entry contains no image.
        ValueError: If a class with images has no step.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import evaluate, mean_forgetting_heterogeneity
        >>> logits, steps = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0])
        >>> data = torch.utils.data.TensorDataset(logits, torch.tensor([0, 1]))
        >>> counts = evaluate(torch.nn.Identity(), data, steps)
        >>> round(mean_forgetting_heterogeneity([counts, counts], steps), 4)
        0.145
    """
    _check_not_empty(counts)
    return sum(forgetting_heterogeneity(step, steps) for step in counts) / len(counts)


def _steps_of(counts: StepCounts, steps: Int[Tensor, "S"]) -> Int[Tensor, "C"]:
    """The step of each class counted. `steps` may include later classes."""
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
