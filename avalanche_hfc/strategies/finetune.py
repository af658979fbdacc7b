"""Fine-tuning: cross-entropy over the classes seen, on the new data alone. What every method must
beat.
"""

from avalanche_hfc.strategies._base.method import Method


class FineTune(Method):
    """L = mean CE(z, y; S) on the data of the step: old columns are pushed down, old classes are
    forgotten. No memory.

    With losses="hfc" every sample of a batch is new: the weights act within the new step, and L_RD
    is added.
    """

    takes_herding_replay = False
