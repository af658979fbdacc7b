"""The paper's ablation baseline: cross-entropy and DyTox's distillation, balanced by the share of
old classes.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses import divergence_per_column
from avalanche_hfc.strategies._base.replay import BalancedReplay


class Baseline(BalancedReplay):
    """The ablation baseline of HFC's paper: replay with cross-entropy and DyTox's distillation.

    L = (1-ρ) mean CE(z, y; S) + ρ KL(softmax_O z° ‖ softmax_O z)/K_o, where ρ is the fraction of
    old classes. ``losses="hfc"`` gives (1-ρ) L_FC + ρ L_RD, the default form of HFC.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        mem_size: Number of exemplars of all classes together. 2000 if `per_class` is not given
            either.
        per_class: Number of exemplars of each class.
        rule: How exemplars are chosen, see `herding_order`. By default the rule of the method.
        own_plugins: Plugins of a subclass, placed after all others.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.
    """

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": divergence_per_column(logits, self.teacher_logits(), steps)}
