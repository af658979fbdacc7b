"""The cross-entropy of each sample, unreduced: ℓ_i of every host that trains with a softmax over the columns seen.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that brought each class, -1 where none has yet.
Its |Γ_i| is `target_gradient` over the same columns.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses._common import cross_entropy_over, outside_autocast, seen_columns


def cross_entropy(logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Float[Tensor, "b"]:
    """CE(z_i, y_i; S) of each sample."""
    with outside_autocast(logits):
        return cross_entropy_over(seen_columns(steps), logits, targets)
