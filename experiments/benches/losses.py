"""Both losses against what a distillation host computes anyway, and against loops over classes and
steps.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from avalanche_hfc.losses import (
    compensation_weights,
    forgetting_compensation,
    relation_distillation,
)
from experiments.benches.timing import Row, side_by_side


def rows() -> Iterator[Row]:
    for b, num_classes, limit in ((64, 100, 5.0), (64, 1000, 4.0), (256, 1000, 4.0)):
        yield from rows_of_size(b, num_classes, limit)


def rows_of_size(b: int, num_classes: int, limit: float) -> Iterator[Row]:
    logits, targets, teacher, steps = batch(b, num_classes)
    works = {
        "ours": lambda: backward(logits, both(logits, targets, teacher, steps)),
        "ce_kd": lambda: backward(logits, cross_entropy_and_distillation(logits, targets, teacher)),
        "loops": lambda: backward(logits, loops(logits, targets, teacher, steps)),
    }
    quick = side_by_side(
        {name: works[name] for name in ("ours", "ce_kd")}, repeats=15, inner=10, warm_up=3
    )
    slow = side_by_side({name: works[name] for name in ("ours", "loops")}, repeats=5)
    name = f"both losses, forward + backward, b = {b}, C = {num_classes}"
    yield Row(
        name,
        "CE + KD on old logits",
        1e3 * quick["ours"],
        1e3 * quick["ce_kd"],
        "ms",
        f"≤ {limit:g}",
        limit,
    )
    yield Row(
        name,
        "loops over classes and steps",
        1e3 * slow["ours"],
        1e3 * slow["loops"],
        "ms",
        "≥ 10 faster",
        10.0,
        faster=True,
    )


def batch(b: int, num_classes: int):
    """The last of ten equal steps."""
    steps = torch.arange(num_classes) // (num_classes // 10)
    logits = torch.randn(b, num_classes, requires_grad=True)
    return logits, torch.randint(num_classes, (b,)), torch.randn(b, num_classes * 9 // 10), steps


def backward(logits, loss):
    logits.grad = None
    loss.backward()


def both(logits, targets, teacher, steps):
    """As a strategy composes them: the weights are computed once."""
    weights = compensation_weights(logits, targets, steps)
    relation = relation_distillation(logits, targets, teacher, steps, weights=weights)
    return (weights * F.cross_entropy(logits, targets, reduction="none")).mean() + relation


def cross_entropy_and_distillation(logits, targets, teacher):
    old = logits[:, : teacher.shape[1]].log_softmax(1)
    return F.cross_entropy(logits, targets) + F.kl_div(
        old, teacher.softmax(1), reduction="batchmean"
    )


def loops(logits, targets, teacher, steps):
    """The same value, one class and one step at a time, over all of them, as the released code
    does.
    """
    z = (steps < steps.max()).float().mean()
    probabilities = logits.softmax(1)
    num_old = teacher.shape[1]
    sharpened = torch.log1p((1 - probabilities.detach().gather(1, targets[:, None])[:, 0]) ** z)
    weights = torch.ones_like(sharpened)
    for step in steps.unique():
        own = steps[targets] == step
        if own.any():
            weights[own] = sharpened[own] / sharpened[own].mean()
    relation = F.one_hot(targets, logits.shape[1]).float()
    relation[:, :num_old] = teacher.softmax(1)
    relation = relation / relation.sum(1, keepdim=True)
    total, present = logits.new_zeros(()), 0
    for k in range(logits.shape[1]):
        own = targets == k
        if own.any():
            target = relation[own].mean(0)
            divergence = (
                torch.special.xlogy(target, target) - target * probabilities[own].mean(0).log()
            ).sum()
            total, present = total + weights[own].mean() * divergence, present + 1
    return (weights * F.cross_entropy(logits, targets, reduction="none")).mean() + total / present


def check() -> None:
    """The two forms agree, or the comparison means nothing."""
    logits, targets, teacher, steps = batch(64, 100)
    torch.testing.assert_close(
        both(logits, targets, teacher, steps), loops(logits, targets, teacher, steps)
    )
    parts = forgetting_compensation(logits, targets, steps) + relation_distillation(
        logits, targets, teacher, steps
    )
    torch.testing.assert_close(both(logits, targets, teacher, steps), parts)
