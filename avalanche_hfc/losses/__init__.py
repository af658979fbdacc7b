"""The two losses of HFC and the released code's, as pure functions of tensors."""

from avalanche_hfc.losses.compensation import compensation_weights, forgetting_compensation, target_gradient, weights_from_gradient
from avalanche_hfc.losses.official import official_hfc
from avalanche_hfc.losses.relation import relation_distillation, relation_targets

__all__ = [
    "target_gradient",
    "weights_from_gradient",
    "compensation_weights",
    "forgetting_compensation",
    "relation_targets",
    "relation_distillation",
    "official_hfc",
]
