"""What a run asks of a strategy, and the one adapter through which Avalanche's own answer."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc._types import Experience, State
from avalanche_hfc.plugins.herding import exemplars_of
from avalanche_hfc.strategies import IncrementalTemplate


@runtime_checkable
class Resumable(Protocol):
    """A training that checkpoints can be made of."""

    @property
    def model(self) -> Module:
        """The model that is trained; its weights are what train.csv has the digest of."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the main epochs: a checkpoint holds its moments."""

    @property
    def resumable(self) -> bool:
        """Whether an interrupted training can be resumed by `state_dict` and `load_state_dict`."""

    def state_dict(self) -> State:
        """Everything the rest of the training depends on, as tensors and plain data."""

    def load_state_dict(self, state: State) -> None:
        """Take over a state that a strategy built in the same way gave."""


@runtime_checkable
class RunnableStrategy(Resumable, Protocol):
    """A strategy that can be run, planned and used for predictions.

    `IncrementalTemplate`, and with it every strategy of this package that does not come from
    Avalanche, has these members. `runnable` makes one of any other `SupervisedTemplate`.
    """

    draw_seed: int | None
    """Seeds what random transforms draw, together with step, phase, epoch and position; None: they
    draw from the global generator. A strategy that does not load by position ignores it."""

    @property
    def device(self) -> torch.device:
        """Where model and batches are."""

    @property
    def trains_on_stream(self) -> bool:
        """Whether `train` takes the whole stream, once, instead of one experience at a
        time."""

    def train(self, experiences: Experience | Iterable[Experience], **kwargs: object) -> object:
        """Train on an experience, or on the stream; `kwargs` are those of the loaders."""

    # Predictions

    @property
    def predictor(self) -> Module:
        """Images -> logits, as in the evaluation of the strategy."""

    @property
    def inference(self) -> str:
        """The classifier that the strategy predicts with: "head", the largest logit, or "nme", the
        nearest mean of exemplars."""

    def class_means(self) -> Mapping[int, Tensor] | None:
        """The unit mean of the unit features of each class's exemplars; None for a strategy without
        such means."""

    def nearest_scores(self, x: Tensor) -> Tensor | None:
        """-‖φ(x) - c_k‖² of each image in the column of class k, c_k as in `class_means`; None
        where no means are known."""

    # Records

    def epoch_losses(self) -> Mapping[str, float] | None:
        """The mean of each loss term over the epoch that has just ended, by name; None where the
        strategy keeps no record, and only the loss of a batch can be read."""

    def exemplars(self) -> Mapping[int, Tensor]:
        """Ranked positions of the exemplars of each class; empty for a strategy that keeps no
        positions, or every image."""


def runnable(strategy: SupervisedTemplate) -> RunnableStrategy:
    """The strategy as a run asks it: itself where it is one of ours, else behind the adapter."""
    return strategy if isinstance(strategy, IncrementalTemplate) else AdaptedStrategy(strategy)


class AdaptedStrategy:
    """A `SupervisedTemplate` of Avalanche, or your own, as a `RunnableStrategy`.

    Avalanche's classes do not have these members; your class may have any of them, under the names
    of the protocol. Each is therefore looked up by name, and what Avalanche itself does is the
    default: the model predicts by its head, one experience at a time is trained, nothing is
    recorded and nothing can be saved.

    Args:
        host: The strategy that is asked.
    """

    def __init__(self, host: SupervisedTemplate):
        self.host = host
        self.draw_seed: int | None = None

    @property
    def model(self) -> Module:
        return self.host.model

    @property
    def optimizer(self) -> Optimizer:
        return self.host.optimizer

    @property
    def device(self) -> torch.device:
        return self.host.device

    @property
    def trains_on_stream(self) -> bool:
        return getattr(self.host, "trains_on_stream", False)

    def train(self, experiences: Experience | Iterable[Experience], **kwargs: object) -> object:
        return self.host.train(experiences, **kwargs)

    @property
    def predictor(self) -> Module:
        return getattr(self.host, "predictor", self.host.model)

    @property
    def inference(self) -> str:
        return getattr(self.host, "inference", "head")

    def class_means(self) -> Mapping[int, Tensor] | None:
        return getattr(self.host, "class_means", lambda: None)()

    def nearest_scores(self, x: Tensor) -> Tensor | None:
        return getattr(self.host, "nearest_scores", lambda x: None)(x)

    def epoch_losses(self) -> Mapping[str, float] | None:
        return getattr(self.host, "epoch_losses", lambda: None)()

    def exemplars(self) -> Mapping[int, Tensor]:
        return getattr(self.host, "exemplars", lambda: exemplars_of(self.host.plugins))()

    @property
    def resumable(self) -> bool:
        return hasattr(self.host, "state_dict")

    def state_dict(self) -> State:
        return self.host.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.host.load_state_dict(state)
