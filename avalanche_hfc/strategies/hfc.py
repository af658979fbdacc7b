"""HFC: herding replay, GFC and GRD around a cross-entropy host, Eq. 14."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from avalanche.core import BasePlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.plugins.evaluation import default_evaluator
from torch.nn import CrossEntropyLoss, Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.losses import GFCPlugin, GRDPlugin, Weight
from avalanche_hfc.plugins.official import OfficialLossPlugin
from avalanche_hfc.strategies.template import IncrementalTemplate


class Losses(NamedTuple):
    """α1, α2 of Eq. 14 and the form of L_RD."""

    compensation_weight: Weight
    relation_weight: Weight
    normalise: bool
    average: Literal["present", "seen"]


RECIPES: dict[str, Losses | None] = {
    "default": Losses("balanced", "balanced", normalise=True, average="present"),
    "paper": Losses(1.0, 1.0, normalise=False, average="seen"),  # Eq. 9, 13 as printed; the paper prints no α
    "official": None,  # `official_hfc`: the weights are inside
}


class HFCStrategy(IncrementalTemplate):
    """HFC (Dong et al., ICCV 2023) as an Avalanche strategy.

    `recipe` chooses the losses and their weights. "default": α1 = 1 - z, α2 = z with z = K^o/(K^o+K^t), relation targets that sum to 1,
    mean over the classes present. "paper": α1 = α2 = 1, the equations as printed. "official": the released code's loss takes the place of
    the criterion in training, and exemplars are ranked by its herding rule. `compensation_weight` (α1) and `relation_weight` (α2) replace
    the recipe's: a number above 0, or "balanced".
    Memory: `mem_size` exemplars in total (2000 if nothing is said) or `per_class` of each class.
    The other arguments are those of Avalanche's `SupervisedTemplate`.
    """

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        criterion: Any = CrossEntropyLoss(),  # noqa: B008  # stateless, and Avalanche's own default
        recipe: str = "default",
        mem_size: int | None = None,
        per_class: int | None = None,
        compensation_weight: Weight | None = None,
        relation_weight: Weight | None = None,
        train_mb_size: int = 1,
        train_epochs: int = 1,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[BasePlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = default_evaluator,
        eval_every: int = -1,
        **base_kwargs: Any,
    ):
        parts = loss_parts(recipe, compensation_weight, relation_weight)
        rule = "greedy" if parts else "icarl-code"  # the released code's herding goes with its loss
        super().__init__(
            model=model,
            optimizer=optimizer,
            criterion=criterion if parts else OfficialLossPlugin(eval_criterion=criterion),
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=[*(plugins or ()), HerdingReplayPlugin(mem_size=mem_size, per_class=per_class, rule=rule), *parts],
            evaluator=evaluator,
            eval_every=eval_every,
            **base_kwargs,
        )
        self.recipe = recipe


def loss_parts(recipe: str, compensation_weight: Weight | None, relation_weight: Weight | None) -> list[BasePlugin]:
    """The two loss plugins of a recipe; none for "official", whose loss is one piece."""
    losses = lookup(RECIPES, recipe, "recipe")
    if losses is None:
        if compensation_weight is not None or relation_weight is not None:
            raise ValueError(
                "Recipe 'official' has its weights inside: leave out compensation_weight and relation_weight, "
                f"got {compensation_weight!r} and {relation_weight!r}."
            )
        return []
    compensation = losses.compensation_weight if compensation_weight is None else compensation_weight
    relation = losses.relation_weight if relation_weight is None else relation_weight
    return [GFCPlugin(weight=compensation), GRDPlugin(weight=relation, normalise=losses.normalise, average=losses.average)]
