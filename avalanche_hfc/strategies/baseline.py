"""The paper's ablation baseline: cross-entropy and DyTox's distillation, balanced by the share of
old classes.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses import divergence_per_column
from avalanche_hfc.strategies._base.replay import BalancedReplay


class Baseline(BalancedReplay):
    """L = (1-ρ) mean CE(z, y; S) + ρ KL(softmax_O z° ‖ softmax_O z)/K_o. With losses="hfc": (1-ρ)
    L_FC + ρ L_RD, HFC's default recipe.
    """

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": divergence_per_column(logits, self.teacher_logits(), steps)}
