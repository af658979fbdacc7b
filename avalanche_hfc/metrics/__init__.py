"""Counts of one evaluation, the metrics computed from them, and Avalanche plugin metrics."""

from avalanche_hfc.metrics.evaluation import StepCounts, evaluate
from avalanche_hfc.metrics.plugin_metrics import (
    average_incremental_accuracy_metrics,
    forgetting_heterogeneity_metrics,
    loss_terms_metrics,
)
from avalanche_hfc.metrics.summary import (
    accuracy,
    accuracy_nme,
    average_incremental_accuracy,
    class_accuracies,
    forgetting,
    forgetting_heterogeneity,
    last_accuracy,
    mean_forgetting_heterogeneity,
)

__all__ = [
    "evaluate",
    "StepCounts",
    "accuracy",
    "accuracy_nme",
    "class_accuracies",
    "average_incremental_accuracy",
    "last_accuracy",
    "forgetting",
    "forgetting_heterogeneity",
    "mean_forgetting_heterogeneity",
    "average_incremental_accuracy_metrics",
    "forgetting_heterogeneity_metrics",
    "loss_terms_metrics",
]
