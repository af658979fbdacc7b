"""Learning rates as functions of the epoch, counted from 0: one warm-up and one cosine."""

import math


def cosine(first: float, last: float, epoch: int, num_epochs: int) -> float:
    """Half a cosine from `first` in epoch 0, which would reach `last` in epoch `num_epochs`."""
    return last + (first - last) * (1 + math.cos(math.pi * epoch / num_epochs)) / 2


def warm_up(lr: float, epoch: int, num_epochs: int, start: float | None = None) -> float:
    """The rate in one of the first `num_epochs` epochs.

    (epoch+1)/(num_epochs+1) of `lr`, or with a `start` equal increments from it.
    """
    if start is None:
        return lr * (epoch + 1) / (num_epochs + 1)
    return start + (lr - start) * epoch / num_epochs
