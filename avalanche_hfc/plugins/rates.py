"""Learning rates as functions of the epoch: the one warm-up and the one cosine. Epochs count from
0.
"""

import math


def cosine(first: float, last: float, epoch: int, num_epochs: int) -> float:
    """From `first` in epoch 0 down along half a cosine, which would reach `last` in epoch
    `num_epochs`.
    """
    return last + (first - last) * (1 + math.cos(math.pi * epoch / num_epochs)) / 2


def warm_up(lr: float, epoch: int, num_epochs: int, start: float | None = None) -> float:
    """The rate of one of the first `num_epochs`: (epoch+1)/(num_epochs+1) of `lr`, or, with a
    `start`, equal parts from it on.
    """
    if start is None:
        return lr * (epoch + 1) / (num_epochs + 1)
    return start + (lr - start) * epoch / num_epochs
