"""The cross-entropy of each sample, unreduced: ℓ_i of every host that trains with a softmax over
the columns seen.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that brought each class, -1
where none has yet.
|Γ_i| of it is `softmax_gradient`.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import cross_entropy_over, only, outside_autocast, seen_columns
from avalanche_hfc.losses.compensation import target_gradient

BETA_DECAY = 0.1


def cross_entropy(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """CE(z_i, y_i; S) of each sample."""
    with outside_autocast(logits):
        return cross_entropy_over(seen_columns(steps), logits, targets)


def softmax_gradient(
    logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
) -> Float[Tensor, "b"]:
    """|Γ_i| = 1 - softmax_S(z_i)_y, Eq. 6 over the columns seen. In [0, 1], detached."""
    return target_gradient(only(seen_columns(steps), logits), targets)


def corrected_objective(
    logits: Float[Tensor, "b C"],
    targets: Int[Tensor, "b"],
    steps: Int[Tensor, "C"],
    beta: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """mean CE(ẑ_i, y_i; S) + 0.1 β²/2, what BiC fits its pair by; `logits` are the corrected
    ones.
    """
    return cross_entropy(logits, targets, steps).mean() + BETA_DECAY * beta.square() / 2
