"""HFC: herding replay, GFC and GRD around a cross-entropy host, Eq. 14."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from avalanche.core import BasePlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.plugins.evaluation import default_evaluator
from torch.nn import CrossEntropyLoss, Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.hosts import Criterion
from avalanche_hfc.plugins.losses import GFCPlugin, GRDPlugin, Weight
from avalanche_hfc.plugins.official import OfficialLossPlugin, OptimizerQuirksPlugin, further_groups
from avalanche_hfc.strategies._base.checks import check_flags
from avalanche_hfc.strategies._base.template import IncrementalTemplate


class Losses(NamedTuple):
    """α1, α2 of Eq. 14, the form of L_RD, and which losses have gradient weights."""

    compensation_weight: Weight
    relation_weight: Weight
    normalise: bool
    average: Literal["present", "seen"]
    prototypes: bool = True
    gradient_weights: str = "both"


FORMS: dict[str, Losses | None] = {
    "default": Losses("balanced", "balanced", normalise=True, average="present"),
    # Eq. 9 and 13 as printed; the paper prints no α
    "paper": Losses(1.0, 1.0, normalise=False, average="seen"),
    "official": None,  # `official_hfc`: the weights are inside
}
GRADIENT_WEIGHTS = {
    "both": "in L_FC and L_RD",
    "compensation": "in L_FC alone",
    "relation": "in L_RD alone",
    "neither": "in none of them",
}


class HFCStrategy(IncrementalTemplate):
    """HFC (Dong et al., ICCV 2023): herding replay with L_FC (Eq. 9) and L_RD (Eq. 13), Eq. 14.

    With z = K^o/(K^o+K^t), the fraction of old classes, the losses are one of:

    - ``"default"``: (1 - z) L_FC + z L_RD, with relation targets that sum to 1 and the mean over
      the classes present in the batch.
    - ``"paper"``: L_FC + L_RD, the equations as printed.
    - ``"official"``: the loss of the released code replaces the criterion in training, and
      exemplars are chosen by its herding rule.

    Args:
        model: The model to train, for example a `TSAViT`.
        optimizer: An optimizer over the parameters of the model.
        criterion: A plain cross-entropy.
        form: ``"default"``, ``"paper"`` or ``"official"``.
        mem_size: Number of exemplars of all classes together. 2000 if `per_class` is not given
            either.
        per_class: Number of exemplars of each class.
        compensation_weight: α_1, the weight of L_FC: a number above 0, or ``"balanced"`` for 1 - z.
            By default that of the losses.
        relation_weight: α_2, the weight of L_RD: a number above 0, or ``"balanced"`` for z. By
            default that of the losses.
        normalise: Divide each row of the relation targets by its sum, see `relation_distillation`.
            By default that of the losses, as are the following three.
        average: Mean of L_RD over the classes ``"present"`` in the batch or all ``"seen"``.
        prototypes: Whether L_RD compares class prototypes, or each sample with its own target.
        gradient_weights: Losses that are weighted by gradients (Eq. 9 and 12): ``"both"``,
            ``"compensation"``, ``"relation"`` or ``"neither"``.
        optimizer_quirks: With ``"official"`` only: reproduce two defects of the released training
            loop, a new optimizer every epoch, and parameters outside the optimizer's first group
            (TSA, token and head) trained in epochs 0, 3, 6, … of a step only.
        drop_last: Drop the last batch of an epoch if it is incomplete. By default only with
            ``"official"``, as in the released code.
        train_mb_size: Batch size of training.
        train_epochs: Number of epochs of each step.
        eval_mb_size: Batch size of evaluation. By default that of training.
        device: Where the model runs.
        plugins: Further plugins; the list is not changed.
        evaluator: Avalanche's evaluation plugin with metrics and loggers.
        eval_every: Evaluate every so many epochs during training; -1 for never, see Avalanche.
        **base_kwargs: Further arguments of `IncrementalTemplate`, such as `reset_optimizer` and
            `precision`, and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed or has no effect with the others.

    Example:
        >>> import torch
        >>> from avalanche_hfc import HFCStrategy
        >>> from avalanche_hfc.models import ResNet32
        >>> model = ResNet32()
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> strategy = HFCStrategy(model=model, optimizer=optimizer, mem_size=200, train_epochs=5)
    """

    settings: ClassVar[tuple[str, ...]] = ("optimizer_quirks",)

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        criterion: Criterion = CrossEntropyLoss(),  # noqa: B008  # stateless, and Avalanche's own default
        form: str = "default",
        mem_size: int | None = None,
        per_class: int | None = None,
        compensation_weight: Weight | None = None,
        relation_weight: Weight | None = None,
        normalise: bool | None = None,
        average: Literal["present", "seen"] | None = None,
        prototypes: bool | None = None,
        gradient_weights: Literal["both", "compensation", "relation", "neither"] | None = None,
        optimizer_quirks: bool = False,
        drop_last: bool | None = None,
        train_mb_size: int = 1,
        train_epochs: int = 1,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[BasePlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = default_evaluator,
        eval_every: int = -1,
        **base_kwargs: Any,
    ):
        check_flags("HFCStrategy", optimizer_quirks=optimizer_quirks)
        losses = losses_of(
            form,
            compensation_weight=compensation_weight,
            relation_weight=relation_weight,
            normalise=normalise,
            average=average,
            prototypes=prototypes,
            gradient_weights=gradient_weights,
        )
        # the released code's herding goes with its loss
        rule = "greedy" if losses else "icarl-code"
        parts: list[BasePlugin] = [
            HerdingReplayPlugin(mem_size=mem_size, per_class=per_class, rule=rule)
        ]
        if losses is None:
            criterion = OfficialLossPlugin(eval_criterion=criterion)
        else:
            parts += loss_plugins(losses)
        if optimizer_quirks:
            check_quirks(form, optimizer, plugins or ())
            parts.insert(0, OptimizerQuirksPlugin())
        super().__init__(
            model=model,
            optimizer=optimizer,
            criterion=criterion,
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=[*(plugins or ()), *parts],
            evaluator=evaluator,
            eval_every=eval_every,
            drop_last=losses is None if drop_last is None else drop_last,
            **base_kwargs,
        )
        self.form, self.optimizer_quirks = form, optimizer_quirks


def losses_of(form: str, **given: Any) -> Losses | None:
    """The losses of a form, with the values that are not None; None for "official"."""
    losses = lookup(FORMS, form, "form")
    changed = {name: value for name, value in given.items() if value is not None}
    if losses is not None:
        return losses._replace(**changed)
    if changed:
        raise ValueError(
            f"Form 'official' has its weights inside: leave out {' and '.join(changed)}, got "
            f"{' and '.join(map(repr, changed.values()))}."
        )
    return None


def loss_plugins(losses: Losses) -> list[BasePlugin]:
    """L_FC and L_RD of Eq. 14."""
    lookup(GRADIENT_WEIGHTS, losses.gradient_weights, "gradient_weights")
    return [
        GFCPlugin(
            weight=losses.compensation_weight,
            gradient_weights=losses.gradient_weights in ("both", "compensation"),
        ),
        GRDPlugin(
            weight=losses.relation_weight,
            normalise=losses.normalise,
            average=losses.average,
            prototypes=losses.prototypes,
            gradient_weights=losses.gradient_weights in ("both", "relation"),
        ),
    ]


def check_quirks(form: str, optimizer: Optimizer, plugins: Sequence[BasePlugin]) -> None:
    """Raise a ValueError where `optimizer_quirks` would do nothing, or act twice."""
    if form != "official":
        raise ValueError(
            f"HFCStrategy: optimizer_quirks=True acts only with form='official', got form={form!r}."
        )
    if any(isinstance(plugin, OptimizerQuirksPlugin) for plugin in plugins):
        raise ValueError(
            "HFCStrategy: optimizer_quirks=True, and an OptimizerQuirksPlugin among the plugins. "
            "Leave one of them out."
        )
    if not further_groups(optimizer):
        raise ValueError(
            "HFCStrategy: optimizer_quirks=True needs TSA, token and head in a second parameter "
            "group of the optimizer; this one has a single group. `official_parts()` gives such an "
            "optimizer; in a recipe, a train.head_lr_factor other than 1 does."
        )
