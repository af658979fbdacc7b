"""Methods with an exemplar memory, and nearest mean of exemplars as a way to predict."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from avalanche.core import BasePlugin
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc._names import lookup
from avalanche_hfc._types import State, Strategy
from avalanche_hfc.losses._common import full_precision
from avalanche_hfc.models.heads import UNSEEN_LOGIT, closeness
from avalanche_hfc.plugins.features import feature_function
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.strategies._base.method import Method

INFERENCES = {"head": "the largest logit", "nme": "the nearest mean of exemplars"}


class ReplayMethod(Method):
    """A method that trains on new data and exemplars in one shuffled pool.

    Args:
        mem_size: Number of exemplars of all classes together. 2000 if `per_class` is not given
            either.
        per_class: Number of exemplars of each class.
        rule: How exemplars are chosen, see `herding_order`. By default the rule of the method.
        own_plugins: Plugins of a subclass, placed after all others.
        **kwargs: Arguments of `Method`.
    """

    memory: HerdingReplayPlugin
    rule = "greedy"

    def __init__(
        self,
        *,
        mem_size: int | None = None,
        per_class: int | None = None,
        rule: str | None = None,
        own_plugins: Sequence[BasePlugin] = (),
        **kwargs: Any,
    ):
        memory = self.make_memory(mem_size=mem_size, per_class=per_class, rule=rule or self.rule)
        super().__init__(memory=memory, own_plugins=own_plugins, **kwargs)

    def make_memory(self, **budget: Any) -> HerdingReplayPlugin:
        """Hook: build the exemplar memory.

        Args:
            **budget: `mem_size`, `per_class` and `rule` of the constructor.

        Returns:
            The replay plugin.
        """
        return HerdingReplayPlugin(**budget)


class BalancedReplay(ReplayMethod):
    """A replay method with the factors 1-ρ for classification and ρ for distillation.

    ρ = K_o/K is the fraction of old classes.
    """

    distils = True

    @property
    def classification_factor(self) -> float:
        return 1 - self.old_fraction

    @property
    def distillation_factor(self) -> float:
        return self.old_fraction


class NMEMethod(ReplayMethod):
    """A replay method that predicts by its head or by the nearest mean of exemplars.

    The means are computed at the end of a step: an evaluation within a step uses the head.

    Args:
        inference: ``"head"``: the largest logit. ``"nme"``: the nearest mean of exemplars.
        flip: Average the means with those of mirrored exemplars.
        own_plugins: Plugins of a subclass, placed after all others.
        **kwargs: Arguments of `ReplayMethod`.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("inference", "flip")

    def __init__(
        self,
        *,
        inference: str = "head",
        flip: bool = False,
        own_plugins: Sequence[BasePlugin] = (),
        **kwargs: Any,
    ):
        lookup(INFERENCES, inference, "inference")
        self.inference = inference
        self.flip = flip
        self.nearest = NearestMeans(flip=flip)
        super().__init__(own_plugins=[*own_plugins, self.nearest], **kwargs)

    def class_means(self) -> dict[int, Float[Tensor, "D"]] | None:
        return self.nearest.means(self)

    def nearest_scores(self, x: Tensor) -> Float[Tensor, "b C"] | None:
        if not self.nearest.known:
            return None
        return self.nearest.scores(feature_function(self.model)(x).flatten(1))

    def model_logits(self) -> Tensor:
        scores = (
            self.nearest_scores(self.mb_x) if self.is_eval and self.inference == "nme" else None
        )
        return super().model_logits() if scores is None else scores


class NearestMeans(RankedPlugin):
    """Computes c_k, the unit mean of the unit features of the exemplars of class k, after a step.

    Args:
        flip: Average the means with those of mirrored exemplars.
    """

    def __init__(self, *, flip: bool):
        super().__init__()
        self.flip = flip
        self._means: dict[int, Tensor] = {}

    @property
    def known(self) -> bool:
        return bool(self._means)

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        self._means = {}

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        if strategy.inference == "nme":
            self.means(strategy)

    def means(self, strategy: Strategy) -> dict[int, Float[Tensor, "D"]]:
        if not self._means:
            self._means = {
                k: mean.clone()
                for k, mean in strategy.memory.class_means(strategy, flip=self.flip).items()
            }
        return self._means

    def scores(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        """-‖φ(x) - c_k‖² in the column of each class, -1000 in the others."""
        class_ids = torch.tensor(list(self._means), device=embedding.device)
        means = torch.stack(list(self._means.values())).to(embedding.device)
        scores = closeness(F.normalize(full_precision(embedding)) @ means.T)
        return scores.new_full((len(embedding), max(self._means) + 1), UNSEEN_LOGIT).index_copy(
            1, class_ids, scores
        )

    def state_dict(self) -> State:
        return {
            "classes": list(self._means),
            "means": [mean.clone() for mean in self._means.values()],
        }

    def load_state_dict(self, state: State) -> None:
        self._means = dict(
            zip(state["classes"], (mean.clone() for mean in state["means"]), strict=True)
        )
