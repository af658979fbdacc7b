"""AFC (Kang et al., CVPR 2022): distillation of maps weighted by how much the loss depends on each
channel.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from avalanche.benchmarks.utils import concat_datasets
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Options, State
from avalanche_hfc.losses import add_importance, importance_distillation, normalised_importance
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.checks import check_numbers
from avalanche_hfc.strategies._base.proxies import ProxyMethod

IMPORTANCE_PASSES = {
    "eval": "in eval mode, each image by its own loss",
    "train": "as released: in training mode, by the mean loss of a batch",
}


class AFC(ProxyMethod):
    """AFC: distillation of feature maps weighted by the importance of each channel.

    L = mean NCA + λ s DISC with s = √(K/K_t), see `importance_distillation`. At the end of each
    step, one pass over images under the training transform computes the importance from the
    gradients of the NCA with respect to the maps. L_RD is added. The classifier and its tuning are
    those of `PODNet`.

    Args:
        model: The model to train, with `embed`, `classify`, `features` and
            `stage_gradients`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        importance_weight: λ; 4 for CIFAR-100, 10 for ImageNet.
        importance_pass: ``"eval"``: over the new data and the exemplars kept, in eval mode, from
            the gradients of each image's own loss. ``"train"``, as released: over the shuffled
            batches that the step was trained on, in training mode, so that batch norm moves, and
            from the gradients of a batch's mean loss.
        **kwargs: `inference`, `nca`, `tune_epochs`, `tune_lr`, `tune_mode`,
            `herd_again`, `scale_lr` and `flip` as in `PODNet`; arguments of `HerdingReplay` (memory
            and losses) and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("importance_weight", "importance_pass")
    distils = True
    needs = (*ProxyMethod.needs, "stage_gradients")

    def __init__(
        self,
        *,
        importance_weight: float | int = 4.0,
        importance_pass: str = "eval",
        **kwargs: Any,
    ):
        check_numbers("AFC", importance_weight=importance_weight)
        lookup(IMPORTANCE_PASSES, importance_pass, "importance_pass")
        self.importance_weight = importance_weight
        self.importance_pass = importance_pass
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
        """Compute the importance of each channel, in one pass over images.

        Args:
            asked: The arguments of `train`, such as `num_workers`.

        Returns:
            The importance of the channels of each stage.
        """
        if self.importance_pass == "train":
            self.memory.forget_features()  # batch norm moves
            size = self.train_mb_size
            drop_last = self.drops_last(len(self.adapted_dataset), asked.get("drop_last"))
            loader = self.loader_of(
                self.adapted_dataset, size, asked, shuffle=True, drop_last=drop_last
            )
            mode: AbstractContextManager[None] = nullcontext()
        else:
            data = concat_datasets(
                [self.experience.dataset.train(), *self.memory.old_exemplars(self.experience)]
            )
            loader, mode = (
                self.loader_of(data, self.eval_mb_size, asked),
                evaluation_mode(self.model),
            )
        sums: list[Tensor] | None = None
        with mode, torch.enable_grad():
            for batch in loader:
                x, targets = (column.to(self.device, non_blocking=True) for column in batch[:2])
                sums = add_importance(self._stage_gradients(x, targets), sums)
        assert sums is not None
        return normalised_importance(sums)

    def _stage_gradients(self, x: Tensor, targets: Tensor) -> list[Tensor]:
        # the squares of the mean loss's gradients are averaged over the batch, not summed
        divisor = len(targets) ** 1.5 if self.importance_pass == "train" else 1.0

        def loss(embedding: Tensor) -> Tensor:
            logits = self.model.classify(embedding)
            losses = self.classification(logits, targets, StepTable.of(self).on(logits))
            return losses.sum() / divisor

        return self.model.stage_gradients(x, loss)

    def method_state(self) -> State:
        return super().method_state() | {"importance": self.importance}

    def load_method_state(self, state: State) -> None:
        super().load_method_state(state)
        self.importance = [importance.to(self.device) for importance in state["importance"]]
