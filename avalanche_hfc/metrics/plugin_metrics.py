"""Average incremental accuracy, FH and loss terms as Avalanche plugin metrics.

Which evaluation counts: a step is a training experience; trained several times in a row it stays
one step. Its result is the last evaluation made after its training began and before the training of
the next step began, class by class: evaluating twice replaces the result, evaluating the test
stream one experience at a time adds up. Images of classes not trained yet are ignored, so the full
test stream and its seen part give the same number. Evaluations inside `train()` (`eval_every`)
count like any other and are replaced by later ones. Only the evaluation that Avalanche makes before
training begins is ignored: the step before it has its result, and the next one has not begun. A
step that was never evaluated is not part of the mean.
"""

from abc import abstractmethod

import torch
from avalanche.evaluation.metric_definitions import PluginMetric
from avalanche.evaluation.metric_results import MetricValue
from avalanche.evaluation.metric_utils import (
    default_metric_name_template,
    generic_get_metric_name,
    stream_type,
)
from torch import Tensor

from avalanche_hfc._types import Strategy
from avalanche_hfc.metrics.evaluation import SeenColumns, StepCounts, count
from avalanche_hfc.metrics.summary import (
    average_incremental_accuracy,
    mean_forgetting_heterogeneity,
)


class StepMetric(PluginMetric[dict[str, float]]):
    """Counts per stream and step. A subclass adds a name and the number made of the counts."""

    name: str

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    @abstractmethod
    def number(self, counts: list[StepCounts], steps: Tensor) -> float:
        """The metric of the evaluated steps, in order.

        `steps (C,)` has the step of each class id, counted from 0; -1 for classes not seen yet.
        """

    def __str__(self) -> str:
        return self.name

    def reset(self) -> None:
        """Forget all steps and all classes seen."""
        # step of each class id, -1 for classes not seen yet
        self._steps = torch.empty(0, dtype=torch.int64)
        self._experience: int | None = None  # trained last
        self._step = -1
        self._counts_now = False  # whether an evaluation belongs to a step
        self._seen: SeenColumns | None = None  # of the current evaluation, if it counts
        # stream -> targets, predicted, |Γ| of the current evaluation
        self._batches: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}
        self._counts: dict[str, dict[int, StepCounts]] = {}  # stream -> step -> its last evaluation

    def result(self) -> dict[str, float]:
        """The metric of each stream evaluated so far, by the name of the stream."""
        return {
            stream: self.number(list(by_step.values()), self._steps)
            for stream, by_step in self._counts.items()
        }

    def before_training(self, strategy: Strategy) -> None:
        self._counts_now = False

    def before_training_exp(self, strategy: Strategy) -> None:
        if strategy.experience.current_experience != self._experience:
            self._experience = strategy.experience.current_experience
            self._step += 1
        # joint training takes its whole list at once
        experiences = getattr(strategy, "_experiences", [strategy.experience])
        classes = [
            class_id
            for experience in experiences
            for class_id in experience.classes_in_this_experience
        ]
        steps = torch.full((max(len(self._steps), max(classes) + 1),), -1)
        steps[classes] = self._step
        known = self._steps >= 0
        steps[: len(known)][known] = self._steps[known]
        self._steps = steps
        self._counts_now = True

    def before_eval(self, strategy: Strategy) -> None:
        self._batches = {}
        self._seen = SeenColumns(self._steps, strategy.device) if self._counts_now else None

    def after_eval_iteration(self, strategy: Strategy) -> None:
        if self._seen is None:
            return
        known = torch.isin(strategy.mb_y, self._seen.ids)
        targets = strategy.mb_y[known]
        judged = self._seen.judge(strategy.mb_output[known], targets)
        self._batches.setdefault(stream_type(strategy.experience), []).append((targets, *judged))

    def after_eval(self, strategy: Strategy) -> list[MetricValue]:
        values = []
        for stream, batches in self._batches.items():
            targets, predicted, gradient = (
                torch.cat(column).cpu() for column in zip(*batches, strict=True)
            )
            if len(targets):
                by_step = self._counts.setdefault(stream, {})
                newer = count(targets, predicted, gradient, len(self._steps))
                by_step[self._step] = _overlay(by_step.get(self._step, newer), newer)
                values.append(self._value(strategy, stream))
        return values

    def _value(self, strategy: Strategy, stream: str) -> MetricValue:
        info = {"metric_name": self.name, "phase_name": "eval", "stream_name": stream}
        name = generic_get_metric_name(default_metric_name_template, info)
        return MetricValue(self, name, self.result()[stream], strategy.clock.train_iterations)


def _overlay(older: StepCounts, newer: StepCounts) -> StepCounts:
    """The older counts with the classes of the newer ones replaced."""
    fresh = newer.total > 0
    names = ("total", "gradient_sum", "gradient_square_sum")
    rows = {name: torch.where(fresh, getattr(newer, name), getattr(older, name)) for name in names}
    cells, counts = older.cells.indices(), older.cells.values()
    stays = ~fresh[cells[0]]
    kept = torch.sparse_coo_tensor(
        cells[:, stays], counts[stays], older.cells.shape, check_invariants=True
    )
    return StepCounts(newer.cells + kept, newer.correct_nme, **rows)


class AverageIncrementalAccuracy(StepMetric):
    """Mean over the steps of the accuracy on all classes seen by then."""

    name = "Average_Incremental_Acc"

    def number(self, counts: list[StepCounts], steps: Tensor) -> float:
        return average_incremental_accuracy(counts)


class ForgettingHeterogeneity(StepMetric):
    """FH: mean over the steps of the within-step variance of |Γ| (Eq. 6, 7); raw, in [0, 1/4]."""

    name = "Forgetting_Heterogeneity"

    def number(self, counts: list[StepCounts], steps: Tensor) -> float:
        return mean_forgetting_heterogeneity(counts, steps)


class LossTerms(PluginMetric[dict[str, float]]):
    """The mean of each loss term over an epoch, for the main phase and for later ones.

    `total` is the loss that was minimised. For the strategies of this package, which store the
    terms of a batch in `loss_terms`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def __str__(self) -> str:
        return "Loss_Terms"

    def reset(self) -> None:
        """Start a new epoch."""
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def result(self) -> dict[str, float]:
        """The means so far by term; a term is averaged over the batches that had it."""
        return {name: value.item() / self._counts[name] for name, value in self._sums.items()}

    def before_training_epoch(self, strategy: Strategy) -> None:
        self.reset()

    def after_training_iteration(self, strategy: Strategy) -> None:
        self._add({**getattr(strategy, "loss_terms", {}), "total": strategy.loss.detach()})

    def after_training_epoch(self, strategy: Strategy) -> list[MetricValue]:
        return self._values(strategy, "train")

    def before_phase_epoch(self, strategy: Strategy) -> None:
        self.reset()

    def after_phase_iteration(self, strategy: Strategy) -> None:
        terms = strategy.loss_terms
        self._add({**terms, "total": sum(terms.values())})

    def after_phase_epoch(self, strategy: Strategy) -> list[MetricValue]:
        return self._values(strategy, strategy.phase)

    def _add(self, terms: dict[str, Tensor]) -> None:
        for name, value in terms.items():
            value = value.double()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def _values(self, strategy: Strategy, phase: str) -> list[MetricValue]:
        position = strategy.clock.train_iterations
        return [
            MetricValue(self, f"Loss_Term_{name}/{phase}_phase", value, position)
            for name, value in self.result().items()
        ]


def loss_terms_metrics() -> list[PluginMetric]:
    """Mean of each loss term per epoch, for Avalanche's `EvaluationPlugin`.

    Values are logged as ``Loss_Term_<name>/<phase>_phase``. The phase is ``train`` or a later phase
    of the method, such as ``tune``. The terms come from the strategies of this package; with any
    other strategy only ``total``, the loss, is logged.

    Returns:
        A list with one plugin metric.

    Example:
        >>> from avalanche.logging import InteractiveLogger
        >>> from avalanche.training.plugins import EvaluationPlugin
        >>> from avalanche_hfc.metrics import loss_terms_metrics
        >>> metrics = loss_terms_metrics()
        >>> evaluator = EvaluationPlugin(metrics, loggers=[InteractiveLogger()])
    """
    return [LossTerms()]


def average_incremental_accuracy_metrics() -> list[PluginMetric]:
    """Average incremental accuracy, for Avalanche's `EvaluationPlugin`.

    The mean over the steps of the accuracy on all classes seen by then, see
    `average_incremental_accuracy`. Logged as
    ``Average_Incremental_Acc/eval_phase/<stream>_stream``.

    Returns:
        A list with one plugin metric.

    Example:
        >>> from avalanche.logging import InteractiveLogger
        >>> from avalanche.training.plugins import EvaluationPlugin
        >>> from avalanche_hfc.metrics import average_incremental_accuracy_metrics
        >>> metrics = average_incremental_accuracy_metrics()
        >>> evaluator = EvaluationPlugin(metrics, loggers=[InteractiveLogger()])
    """
    return [AverageIncrementalAccuracy()]


def forgetting_heterogeneity_metrics() -> list[PluginMetric]:
    """Forgetting heterogeneity (FH), for Avalanche's `EvaluationPlugin`.

    The mean over the steps of FH, see `mean_forgetting_heterogeneity`. Logged as
    ``Forgetting_Heterogeneity/eval_phase/<stream>_stream``.

    Returns:
        A list with one plugin metric.

    Example:
        >>> from avalanche.logging import InteractiveLogger
        >>> from avalanche.training.plugins import EvaluationPlugin
        >>> from avalanche_hfc.metrics import forgetting_heterogeneity_metrics
        >>> metrics = forgetting_heterogeneity_metrics()
        >>> evaluator = EvaluationPlugin(metrics, loggers=[InteractiveLogger()])
    """
    return [ForgettingHeterogeneity()]
