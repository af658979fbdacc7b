"""PODNet (Douillard et al., ECCV 2020): pooled distillation of maps and features under a cosine
classifier.
"""

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses import pod_flat, pod_spatial
from avalanche_hfc.strategies._base.checks import check_numbers
from avalanche_hfc.strategies._base.proxies import ProxyMethod


class PODNet(ProxyMethod):
    """PODNet: pooled distillation of feature maps and features under a cosine classifier.

    L = mean NCA + s (λ_c POD-spatial + λ_f POD-flat) with s = √(K/K_t). ImageNet settings are λ_c =
    8 and λ_f = 10. L_RD is added, because there is no distillation of logits to replace. The head
    of the model becomes a `CosineHead`; from the second step on, the proxies are tuned on balanced
    exemplars after the main epochs.

    Args:
        model: The model to train, with `embed`, `classify` and `features`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        spatial_weight: λ_c. By default 3, or 5 with ``inference="nme"`` (CIFAR-100).
        flat_weight: λ_f.
        inference: ``"head"``: the largest logit. ``"nme"``: the nearest mean of exemplars.
        **kwargs: `nca` (``"code"`` or ``"paper"``), `tune_epochs`,
            `tune_lr`, `tune_mode`, `herd_again`, `scale_lr` and `flip`; arguments of
            `HerdingReplay` (memory and losses) and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("spatial_weight", "flat_weight")
    distils = True

    def __init__(
        self,
        *,
        spatial_weight: float | int | None = None,
        flat_weight: float | int = 1.0,
        inference: str = "head",
        **kwargs: Any,
    ):
        self.spatial_weight = (
            (5.0 if inference == "nme" else 3.0) if spatial_weight is None else spatial_weight
        )
        self.flat_weight = flat_weight
        check_numbers(
            type(self).__name__, spatial_weight=self.spatial_weight, flat_weight=flat_weight
        )
        super().__init__(inference=inference, **kwargs)

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        assert self.mb_features is not None
        own, teacher = self.mb_features, self.teacher_features()[0]
        factor = self.step_factor(steps)
        return {
            "pod_spatial": factor
            * self.spatial_weight
            * self.averaged(pod_spatial(own.stages, teacher.stages)),
            "pod_flat": factor
            * self.flat_weight
            * self.averaged(pod_flat(own.embedding, teacher.embedding)),
        }
