"""FOSTER: class weights from counts, the cross-entropy of divided logits, and the compression of
the boosted network.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that brought each class, -1
where none has yet.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import (
    cross_entropy_over,
    full_precision,
    log_probabilities,
    only,
    outside_autocast,
    seen_columns,
)
from avalanche_hfc.losses.compensation import target_gradient
from avalanche_hfc.losses.distillation import soft_cross_entropy


def class_weights(
    counts: Int[Tensor, "C"] | Float[Tensor, "C"], steps: Int[Tensor, "C"], *, beta: float
) -> Float[Tensor, "C"]:
    """w_c = (1-β)/(1-β^{n_c}), scaled to mean 1 over S; n_c = `counts`, taken as 1 where it is 0. 1
    in unseen columns.
    """
    if not 0 <= beta < 1:
        raise ValueError(f"class_weights: beta must be in [0, 1), got {beta}.")
    seen = seen_columns(steps)
    weights = 1 / (1 - beta ** counts.clamp(min=1))  # 1-β goes with the scale
    return (weights * seen.sum() / weights.where(seen, 0.0).sum()).where(seen, 1.0)


def divided_cross_entropy(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
) -> Float[Tensor, "b"]:
    """CE(z_i/w, y_i; S) of each sample, column-wise division. Inference uses z, not z/w."""
    with outside_autocast(logits):
        return cross_entropy_over(seen_columns(steps), logits / weights, targets)


def divided_gradient(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
) -> Float[Tensor, "b"]:
    """|Γ_i| = 1 - softmax_S(z_i/w)_y, with respect to z/w. In [0, 1], detached."""
    return target_gradient(only(seen_columns(steps), logits / weights), targets)


def compression_targets(
    teacher_logits: Float[Tensor, "b C"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
    *,
    temperature: float = 2.0,
) -> Float[Tensor, "b C"]:
    """log r_i, r_ic ∝ w_c softmax_S(z°_i/T)_c with sum 1; z° are the boosted network's logits. 0 in
    unseen columns. Detached.
    """
    seen = seen_columns(steps)
    plain = log_probabilities(
        seen, full_precision(teacher_logits.detach()) / temperature
    )  # small numbers first: log w would be rounded away
    return log_probabilities(seen, plain + weights.log())


def compression(
    logits: Float[Tensor, "b C"],
    teacher_logits: Float[Tensor, "b C"],
    steps: Int[Tensor, "C"],
    weights: Float[Tensor, "C"],
    *,
    temperature: float = 2.0,
) -> Float[Tensor, ""]:
    """-mean_i Σ_{c∈S} r_ic log softmax_S(z_i/T)_c. No label takes part."""
    with outside_autocast(logits):
        log_targets = compression_targets(teacher_logits, steps, weights, temperature=temperature)
        return soft_cross_entropy(
            log_targets,
            log_probabilities(seen_columns(steps), full_precision(logits) / temperature),
        ).mean()
