"""AFC (Kang et al., CVPR 2022): distillation of maps weighted by how much the loss depends on each
channel.
"""

from typing import Any, ClassVar

import torch
from avalanche.benchmarks.utils import concat_datasets
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._types import Options, State
from avalanche_hfc.losses import add_importance, importance_distillation, normalised_importance
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.checks import check_numbers
from avalanche_hfc.strategies._base.proxies import ProxyMethod


class AFC(ProxyMethod):
    """AFC: distillation of feature maps weighted by the importance of each channel.

    L = mean NCA + λ s DISC with s = √(K/K_t), see `importance_distillation`. At the end of each
    step, one pass over the new data and the exemplars, in eval mode and under the training
    transform, computes the importance from the gradients of the NCA with respect to the maps. L_RD
    is added. The classifier and its tuning are those of `PODNet`.

    Args:
        model: The model to train, with `embed`, `classify`, `features` and
            `stage_gradients`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        importance_weight: λ; 4 for CIFAR-100, 10 for ImageNet.
        **kwargs: `inference`, `nca`, `num_proxies`, `tune_epochs`, `tune_lr`,
            `scale_lr` and `flip` as in `PODNet`; arguments of `HerdingReplay` (memory and losses)
            and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("importance_weight",)
    distils = True
    needs = (*ProxyMethod.needs, "stage_gradients")

    def __init__(self, *, importance_weight: float | int = 4.0, **kwargs: Any):
        check_numbers("AFC", importance_weight=importance_weight)
        self.importance_weight = importance_weight
        self.importance: list[Tensor] = []
        super().__init__(**kwargs)

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        assert self.mb_features is not None
        distance = self.averaged(
            importance_distillation(
                self.mb_features.stages, self.teacher_features()[0].stages, self.importance
            )
        )
        return {"importance": self.importance_weight * self.step_factor(steps) * distance}

    def end_step(self, **kwargs: object) -> None:
        self.importance = self.find_importance(kwargs)
        super().end_step(**kwargs)

    def find_importance(self, asked: Options) -> list[Tensor]:
        """Compute the importance of each channel, in one pass over new data and exemplars.

        Args:
            asked: The arguments of `train`, such as `num_workers`.

        Returns:
            The importance of the channels of each stage.
        """
        data = concat_datasets(
            [self.experience.dataset.train(), *self.memory.old_exemplars(self.experience)]
        )
        sums: list[Tensor] | None = None
        with evaluation_mode(self.model), torch.enable_grad():
            for batch in self.loader_of(data, self.eval_mb_size, asked):
                x, targets = (column.to(self.device, non_blocking=True) for column in batch[:2])
                sums = add_importance(self._stage_gradients(x, targets), sums)
        assert sums is not None
        return normalised_importance(sums)

    def _stage_gradients(self, x: Tensor, targets: Tensor) -> list[Tensor]:
        def loss(embedding: Tensor) -> Tensor:
            logits = self.model.classify(embedding)
            return self.classification(logits, targets, StepTable.of(self).on(logits)).sum()

        return self.model.stage_gradients(x, loss)

    def method_state(self) -> State:
        return super().method_state() | {"importance": self.importance}

    def load_method_state(self, state: State) -> None:
        super().load_method_state(state)
        self.importance = [importance.to(self.device) for importance in state["importance"]]
