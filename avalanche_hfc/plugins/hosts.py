"""Where a host computes its classification loss: one adapter per type of host, for GFC and GRD."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from avalanche.training.losses import ICaRLLossPlugin
from avalanche.training.plugins import BiCPlugin, MIRPlugin, RARPlugin
from avalanche.training.supervised import DER, ER_ACE, ICaRL, JointTraining
from avalanche.training.templates.problem_type.supervised_problem import SupervisedProblem
from avalanche.training.templates.update_type.sgd_update import SGDUpdate
from jaxtyping import Float, Int
from torch import Tensor, nn

from avalanche_hfc._types import Strategy
from avalanche_hfc.plugins.steps import StepTable

HOSTS_THAT_WORK = (
    "Naive, Replay, LwF, EWC, Cumulative, BiC, ICaRL, DER, ER_ACE and other hosts that minimise "
    "the criterion on mb_output"
)
PLAIN_CROSS_ENTROPY = {
    "weight": None,
    "reduction": "mean",
    "label_smoothing": 0.0,
    "ignore_index": -100,
}


class Term(NamedTuple):
    """A mean of per-sample classification losses in the host's objective: scale · mean(losses)."""

    logits: Float[Tensor, "n C"]  # columns outside the host's own cross-entropy are -inf
    targets: Int[Tensor, "n"]
    losses: Float[Tensor, "n"]
    scale: float


class Batch(NamedTuple):
    """The samples of one iteration as the model saw them."""

    x: Tensor
    logits: Float[Tensor, "n C"]
    targets: Int[Tensor, "n"]


Criterion = Callable[[Tensor, Tensor], Tensor]


class Host:
    """A strategy that trains with the mean cross-entropy of `mb_output`.

    Naive, Replay, LwF, EWC, Cumulative and most others.
    """

    # whether mb_x is all that is trained on in an iteration, from `before_forward` on
    sees_whole_batch = True

    def __init__(self, strategy: Strategy):
        self.strategy = strategy

    def check(self) -> None:
        """Raise a ValueError unless the loss is a plain mean cross-entropy of `mb_output`."""
        host_class = type(self.strategy)
        if (
            host_class.training_epoch is not SGDUpdate.training_epoch
            or host_class.criterion is not SupervisedProblem.criterion
        ):
            raise ValueError(
                "it computes its own loss, not the cross-entropy of mb_output. It works in "
                f"{HOSTS_THAT_WORK}"
            )
        check_criterion(self.strategy._criterion)
        for plugin in self.strategy.plugins:
            if isinstance(plugin, MIRPlugin | RARPlugin):
                raise ValueError(
                    f"{type(plugin).__name__} adds replayed rows to the loss, which cannot be "
                    "reached"
                )

    def after_forward(self) -> None:
        """Keep what the host discards before the terms are computed."""

    def terms(self) -> list[Term]:
        """The host's classification loss in this batch, as a sum of means."""
        logits, targets = self.strategy.mb_output, self.strategy.mb_y
        return [Term(logits, targets, F.cross_entropy(logits, targets, reduction="none"), 1.0)]

    def batch(self) -> Batch:
        """The samples of this iteration."""
        return Batch(self.strategy.mb_x, self.strategy.mb_output, self.strategy.mb_y)

    def later_factor(self, plugin: object) -> float:
        """The factor by which the host multiplies the loss after this plugin has added to it."""
        return 1.0


class BiCHost(Host):
    """BiC, which replaces the loss by (1-λ) · loss + λ · KD in `before_backward`.

    What was added before is scaled, what is added after is not.
    """

    def bic(self) -> BiCPlugin:
        """The plugin that does it."""
        return next(p for p in self.strategy.plugins if isinstance(p, BiCPlugin))

    def classification_share(self) -> float:
        """1-λ from the second step on; 1 with a λ set by the user, which does not scale it."""
        bic = self.bic()
        return (
            1 - StepTable.of(self.strategy).old_fraction
            if bic.model_old is not None and bic.lamb == -1
            else 1.0
        )

    def terms(self) -> list[Term]:
        return [term._replace(scale=self.classification_share()) for term in super().terms()]

    def later_factor(self, plugin: object) -> float:
        order = self.strategy.plugins
        return self.classification_share() if order.index(plugin) < order.index(self.bic()) else 1.0


class ReplayLoopHost(Host):
    """A host with its own training loop and cross-entropies.

    Its criterion is used where nothing is replayed.
    """

    sees_whole_batch = False

    def check(self) -> None:
        check_criterion(self.strategy._criterion)

    def terms(self) -> list[Term]:
        return super().terms() if self.strategy.replay_loader is None else self.replay_terms()

    def replay_terms(self) -> list[Term]:
        """The classification loss of a batch with replayed rows."""
        raise NotImplementedError


class DERHost(ReplayLoopHost):
    """DER: `batch_size_mem` memory rows first, with weight β; new rows with weight 1.

    Each group has its own mean.
    """

    def replay_terms(self) -> list[Term]:
        host = self.strategy
        rows = (
            (slice(host.batch_size_mem, None), 1.0),
            (slice(None, host.batch_size_mem), host.beta),
        )
        losses = F.cross_entropy(host.mb_output, host.mb_y, reduction="none")
        return [
            Term(host.mb_output[span], host.mb_y[span], losses[span], scale)
            for span, scale in rows
            if scale
        ]


class ERACEHost(ReplayLoopHost):
    """ER_ACE: half a mean over new rows and half a mean over memory rows.

    New rows compete among the columns of their classes, memory rows among all columns.
    """

    def replay_terms(self) -> list[Term]:
        host = self.strategy
        absent = torch.ones(
            host.mb_output.shape[1], dtype=torch.bool, device=host.mb_output.device
        ).index_fill(0, host.mb_y, False)
        current = host.mb_output.masked_fill(absent, float("-inf"))
        parts = (current, host.mb_y), (host.mb_buffer_out, host.mb_buffer_y)
        return [
            Term(logits, y, F.cross_entropy(logits, y, reduction="none"), 0.5)
            for logits, y in parts
        ]

    def batch(self) -> Batch:
        host = self.strategy
        if host.replay_loader is None:
            return super().batch()
        return Batch(
            torch.cat([host.mb_x, host.mb_buffer_x]),
            torch.cat([host.mb_output, host.mb_buffer_out]),
            torch.cat([host.mb_y, host.mb_buffer_y]),
        )


class ICaRLHost(Host):
    """ICaRL: binary cross-entropy, mean over all columns.

    The targets are the old model's sigmoids in the old columns and the label in the new ones.
    """

    def check(self) -> None:
        if not isinstance(self.strategy._criterion, ICaRLLossPlugin):
            raise ValueError(
                f"its criterion is {self.strategy._criterion!r}; ICaRL's own ICaRLLossPlugin "
                "is needed"
            )

    def after_forward(self) -> None:
        # the criterion drops them when it is called
        self.old_logits = self.strategy._criterion.old_logits

    def terms(self) -> list[Term]:
        logits, targets = self.strategy.mb_output, self.strategy.mb_y
        labels = F.one_hot(targets, logits.shape[1]).to(logits.dtype)
        if self.old_logits is not None:
            old = self.strategy._criterion.old_classes
            labels[:, old] = self.old_logits[:, old].sigmoid()
        losses = F.binary_cross_entropy(logits.sigmoid(), labels, reduction="none").mean(1)
        return [Term(logits, targets, losses, 1.0)]


def check_criterion(criterion: Criterion) -> None:
    """Raise a ValueError unless the criterion is a plain mean cross-entropy."""
    problem = "" if criterion is F.cross_entropy else repr(criterion)
    if isinstance(criterion, nn.CrossEntropyLoss):
        changed = [
            f"{name}={getattr(criterion, name)}"
            for name, usual in PLAIN_CROSS_ENTROPY.items()
            if getattr(criterion, name) != usual
        ]
        problem = f"a CrossEntropyLoss with {', '.join(changed)}" if changed else ""
        # also one that was put into the object
        if getattr(criterion.forward, "__func__", None) is not nn.CrossEntropyLoss.forward:
            problem = f"{type(criterion).__name__}, a CrossEntropyLoss with a forward of its own"
    if problem:
        raise ValueError(f"its criterion is {problem}; a plain CrossEntropyLoss() is needed")


ADAPTERS: dict[type, type[Host]] = {ICaRL: ICaRLHost, DER: DERHost, ER_ACE: ERACEHost}


def host_of(strategy: Strategy, plugin: object) -> Host:
    """The adapter for this strategy, checked.

    Raises a ValueError that names host and plugin if the plugin cannot act.
    """
    adapter = next((a for cls, a in ADAPTERS.items() if isinstance(strategy, cls)), Host)
    if adapter is Host and any(isinstance(p, BiCPlugin) for p in strategy.plugins):
        adapter = BiCHost
    host = adapter(strategy)
    name = type(plugin).__name__
    try:
        if isinstance(strategy, JointTraining):
            raise ValueError("it trains all steps at once, so that no class is old")
        host.check()
    except ValueError as error:
        raise ValueError(f"{name} cannot act in {type(strategy).__name__}: {error}.") from None
    if sum(type(p) is type(plugin) for p in strategy.plugins) > 1:
        raise ValueError(
            f"{type(strategy).__name__} has two {name}s; one is enough, with the sum of "
            "their weights."
        )
    return host
