"""DyTox (Douillard et al., CVPR 2022): a token and a head per step behind one attention block, a divergence head, balanced tuning."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc.losses import (
    binary_cross_entropy,
    divergence_binary_cross_entropy,
    divergence_per_column,
    sigmoid_gradient,
    sigmoid_relation_distillation,
)
from avalanche_hfc.models import DyToxModel
from avalanche_hfc.strategies.baseline import BalancedReplay
from avalanche_hfc.strategies.checks import check_numbers
from avalanche_hfc.strategies.tuning import BalancedTuning

RELATIONS = {"sigmoid": "RD^σ", "softmax": "L_RD over the softmax"}


class DyTox(BalancedTuning, BalancedReplay):
    """L = (1-ρ) mean BCE(z, y; S) + ρ KL(softmax_O z° ‖ softmax_O z)/K_o + 0.1 mean BCE(divergence head).

    Tokens and heads of earlier steps rest. Then balanced tuning trains all but the encoder, at `tune_lr`; None: a tenth of the rate that
    they have in the optimizer. `divergence_weight` is 0.1; `relation` the form of L_RD. Needs a DyToxModel.
    """

    settings: ClassVar[tuple[str, ...]] = ("divergence_weight", "tune_epochs", "tune_lr", "relation_form")
    distils = True
    rule = "icarl-code"
    tune_fraction = 0.1

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        divergence_weight: float | int = 0.1,
        tune_epochs: int = 20,
        tune_lr: float | int | None = None,
        relation: str = "sigmoid",
        **kwargs: Any,
    ):
        if not isinstance(model, DyToxModel):
            raise ValueError(
                f"DyTox needs tokens of each step: a DyToxModel, got a {type(model).__name__}. "
                "DyToxModel(ViTEncoder(…)) makes one of a timm ViT, DyToxModel() is DyTox's own."
            )
        check_numbers("DyTox", divergence_weight=divergence_weight)
        lookup(RELATIONS, relation, "relation")
        self.divergence_weight = divergence_weight
        self.set_tuning(model, optimizer, tune_epochs, tune_lr)
        self.relation_form = relation
        self._divergence: Tensor | None = None
        super().__init__(model=model, optimizer=optimizer, **kwargs)
        if relation != "sigmoid" and not self.relates:
            raise ValueError(f"DyTox: relation={relation!r} acts only with losses='grd' or 'hfc'.")

    def model_logits(self) -> Tensor:
        if self.is_eval or not self.num_old:
            return super().model_logits()
        embedding = self.embed_batch()
        self._divergence = self.model.divergence(embedding)
        return self.model.classify(embedding)

    def classification(self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Float[Tensor, "b"]:
        return binary_cross_entropy(logits, targets, steps)

    def own_gradient(self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Float[Tensor, "b"]:
        return sigmoid_gradient(logits, targets)

    def distillation(self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> dict[str, Tensor]:
        return {"distillation": divergence_per_column(logits, self.teacher_logits(), steps)}

    def relation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"], weights: Float[Tensor, "b"]
    ) -> Float[Tensor, ""]:
        if self.relation_form == "softmax":
            return super().relation(logits, targets, steps, weights)
        return sigmoid_relation_distillation(logits, targets, self.teacher_logits(), steps, weights=weights)

    def further_terms(self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> dict[str, Tensor]:
        assert self._divergence is not None
        divergence, self._divergence = self._divergence, None
        return {"divergence": self.divergence_weight * divergence_binary_cross_entropy(divergence, targets, steps).mean()}

    # Balanced tuning

    @contextmanager
    def tuning(self) -> Iterator[None]:
        """Tokens, heads and the shared block train; the encoder and the divergence head rest."""
        self.model.set_phase("tune")
        try:
            yield
        finally:
            self.model.set_phase("train")

    def after_tuning(self) -> None:
        self.memory.forget_features()  # tokens and block have moved
