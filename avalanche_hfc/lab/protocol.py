"""What a run asks of a strategy, and how Avalanche's own answer."""

from typing import Any

from avalanche.training.templates import SupervisedTemplate

from avalanche_hfc._types import Strategy
from avalanche_hfc.plugins.herding import exemplars_of
from avalanche_hfc.strategies import IncrementalTemplate

DEFAULTS = {  # what Avalanche itself does
    "trains_on_stream": lambda host: False,
    "predictor": lambda host: host.model,
    "inference": lambda host: "head",
    "class_means": lambda host: lambda: None,
    "nearest_scores": lambda host: lambda images: None,
    "epoch_losses": lambda host: lambda: None,
    "exemplars": lambda host: lambda: exemplars_of(host.plugins),
}


def runnable(strategy: SupervisedTemplate) -> "Strategy | AdaptedStrategy":
    """The strategy as a run asks it: itself where it is one of ours, else behind the adapter."""
    return strategy if isinstance(strategy, IncrementalTemplate) else AdaptedStrategy(strategy)


class AdaptedStrategy:
    """A `SupervisedTemplate` of Avalanche, or your own, with what a run asks of it.

    Your class may have any of the attributes below; where it has none, the model predicts by its
    head, one experience at a time is trained, nothing is recorded and nothing can be saved.

    Args:
        host: The strategy that is asked.

    Attributes:
        resumable: Whether it has `state_dict` and `load_state_dict`, which hold all that the rest
            of a training depends on, as tensors and plain data.
        draw_seed: Seeds what random transforms draw, together with step, phase, epoch and position.
            A strategy that does not load by position ignores it.
        trains_on_stream: Whether `train` takes the whole stream, once.
        predictor: Images to logits, as in the evaluation of the strategy.
        inference: The classifier that it predicts with: "head", the largest logit, or "nme", the
            nearest mean of exemplars.
        class_means: The unit mean of each class's exemplars in the space of features, or None.
        nearest_scores: -‖φ(x) - c_k‖² of each image in the column of class k, or None.
        epoch_losses: The mean of each loss term over the epoch that has just ended, or None.
        exemplars: Ranked positions of the exemplars of each class.
    """

    draw_seed: int | None = None

    def __init__(self, host: SupervisedTemplate):
        self.host = host
        self.resumable = hasattr(host, "state_dict")

    def __getattr__(self, name: str) -> Any:
        if name in DEFAULTS and not hasattr(self.host, name):
            return DEFAULTS[name](self.host)
        return getattr(self.host, name)
