"""PODNet with CSCCT (Ashok et al., ECCV 2022): cross-space clustering and controlled transfer
beside PODNet's losses.
"""

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._names import lookup
from avalanche_hfc.losses import controlled_transfer, cross_space_clustering
from avalanche_hfc.strategies._base.checks import check_numbers
from avalanche_hfc.strategies.podnet import PODNet

TRANSFER_WEIGHT = 1.5  # of CT: published, CSCCT's code
REDUCTIONS = {
    "elements": "the mean over all pairs, as released: tiny",
    "rows": "the mean over new samples",
}


class PODNetCSCCT(PODNet):
    """PODNet with CSCCT: cross-space clustering (CSC) and controlled transfer (CT) of features.

    Both are added to PODNet's losses in the main phase, CT with weight 1.5.

    Args:
        model: The model to train, with `embed`, `classify` and `features`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        clustering_weight: Weight of CSC, see `cross_space_clustering`.
        reduction: ``"elements"``: CT is the mean over all pairs, as in the released code, which
            makes it tiny. ``"rows"``: the mean over new samples.
        **kwargs: Arguments of `PODNet`.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("clustering_weight", "reduction")

    def __init__(
        self,
        *,
        clustering_weight: float | int = 3.0,
        reduction: str = "elements",
        **kwargs: Any,
    ):
        check_numbers("PODNetCSCCT", clustering_weight=clustering_weight)
        lookup(REDUCTIONS, reduction, "reduction")
        self.clustering_weight = clustering_weight
        self.reduction: Any = reduction
        super().__init__(**kwargs)

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        terms = super().further_terms(logits, targets, steps)
        assert self.mb_features is not None
        own, teacher = (
            self.gathered(features.embedding)
            for features in (self.mb_features, self.teacher_features()[0])
        )
        transfer = controlled_transfer(own, teacher, targets, steps, reduction=self.reduction)
        return terms | {
            "clustering": self.clustering_weight * cross_space_clustering(own, teacher, targets),
            "transfer": TRANSFER_WEIGHT * transfer,
        }
