"""Herding replay: fine-tuning with exemplars. What a method with a memory must beat."""

from avalanche_hfc.strategies._base.replay import ReplayMethod


class HerdingReplay(ReplayMethod):
    """L = mean CE(z, y; S) on new data and exemplars in one shuffled pool; no teacher. With
    losses="hfc": L_FC + L_RD.
    """
