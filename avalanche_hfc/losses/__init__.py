"""Losses as pure functions: HFC's two losses and those of the methods it is compared with."""

from avalanche_hfc.losses.afc import add_importance, importance_distillation, normalised_importance
from avalanche_hfc.losses.classification import corrected_objective, cross_entropy, softmax_gradient
from avalanche_hfc.losses.compensation import (
    compensation_weights,
    forgetting_compensation,
    target_gradient,
    weights_from_gradient,
)
from avalanche_hfc.losses.cscct import controlled_transfer, cross_space_clustering
from avalanche_hfc.losses.distillation import divergence_per_column, knowledge_distillation
from avalanche_hfc.losses.foster import (
    class_weights,
    compression,
    compression_targets,
    divided_cross_entropy,
    divided_gradient,
)
from avalanche_hfc.losses.official import official_hfc
from avalanche_hfc.losses.podnet import nca, nca_gradient, pod_flat, pod_spatial, step_factor
from avalanche_hfc.losses.relation import relation_distillation, relation_targets
from avalanche_hfc.losses.separated import (
    separated_cross_entropy,
    separated_distillation,
    separated_gradient,
    separated_relation_distillation,
)
from avalanche_hfc.losses.sigmoid import (
    binary_cross_entropy,
    divergence_binary_cross_entropy,
    later_binary_cross_entropy,
    mixed_binary_cross_entropy,
    mixed_targets,
    sigmoid_gradient,
    sigmoid_relation_distillation,
)

__all__ = [
    "target_gradient",
    "weights_from_gradient",
    "compensation_weights",
    "forgetting_compensation",
    "relation_targets",
    "relation_distillation",
    "official_hfc",
    "cross_entropy",
    "softmax_gradient",
    "corrected_objective",
    "knowledge_distillation",
    "divergence_per_column",
    "mixed_targets",
    "mixed_binary_cross_entropy",
    "binary_cross_entropy",
    "later_binary_cross_entropy",
    "divergence_binary_cross_entropy",
    "sigmoid_gradient",
    "sigmoid_relation_distillation",
    "separated_cross_entropy",
    "separated_gradient",
    "separated_distillation",
    "separated_relation_distillation",
    "nca",
    "nca_gradient",
    "pod_spatial",
    "pod_flat",
    "step_factor",
    "cross_space_clustering",
    "controlled_transfer",
    "class_weights",
    "divided_cross_entropy",
    "divided_gradient",
    "compression_targets",
    "compression",
    "importance_distillation",
    "add_importance",
    "normalised_importance",
]
