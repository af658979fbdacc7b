"""Strategies whose backbone never changes: a linear head is trained on its features, or a head is
computed from them in one pass.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from avalanche.core import BasePlugin
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.models.closed_form import ClosedFormHead
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.plugins.losses import HostedPlugin
from avalanche_hfc.strategies._base.heads import check_model, put_head
from avalanche_hfc.strategies._base.template import IncrementalTemplate


class FrozenBackbone(IncrementalTemplate):
    """A strategy that trains a head on frozen features of the model.

    Features are computed once per batch, in eval mode and without gradients.
    """

    trains_model = False
    mb_embedding: Tensor | None = None

    def frozen_embedding(self) -> Float[Tensor, "b D"]:
        """The features of the current training batch, computed once.

        Returns:
            The embedding, shape ``(b, D)``.
        """
        if self.mb_embedding is None:
            with torch.no_grad(), evaluation_mode(self.model):
                self.mb_embedding = self.embed_batch()
        return self.mb_embedding

    def model_logits(self) -> Tensor:
        if self.is_eval:
            return super().model_logits()
        return self.model.classify(self.frozen_embedding())

    def _after_training_iteration(self, **kwargs: Any) -> None:
        super()._after_training_iteration(**kwargs)
        self.mb_embedding = None


class OnePass(FrozenBackbone):
    """A strategy whose head is computed in one pass over the images of a step.

    The images come in the order of the data, under the eval transform. Nothing is trained by
    gradients, so the optimizer is not used, and neither the losses of HFC nor a memory can be
    added. The logged loss of a batch is that of the head before it has learned the batch.

    Args:
        model: A model with `embed` and `classify`.
        optimizer: An optimizer over the parameters of the model, as Avalanche requires; not used.
        train_epochs: Must be 1.
        drop_last: Must be False: every image counts.
        plugins: Further plugins; the list is not changed.
        **base_kwargs: Arguments of `IncrementalTemplate` and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    takes_herding_replay = False
    head_kind: ClassVar[type[ClosedFormHead]]

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        train_epochs: int = 1,
        drop_last: bool = False,
        plugins: Sequence[BasePlugin] | None = None,
        **base_kwargs: Any,
    ):
        owner = type(self).__name__
        if train_epochs != 1:
            raise ValueError(
                f"{owner} sees the images of a step once: train_epochs must be 1, got "
                f"{train_epochs!r}."
            )
        if drop_last:
            raise ValueError(f"{owner} counts every image: drop_last must be False, got True.")
        hosted = next((p for p in plugins or () if isinstance(p, HostedPlugin)), None)
        if hosted is not None:
            raise ValueError(
                f"{owner} takes no {type(hosted).__name__}: nothing is trained by gradients."
            )
        check_model(owner, model, "embed", "classify")
        put_head(owner, model, optimizer, self.head_kind, self.make_head)
        super().__init__(
            model=model,
            optimizer=optimizer,
            train_epochs=train_epochs,
            plugins=plugins,
            **base_kwargs,
        )

    def make_head(self, linear: GrowingLinear) -> ClosedFormHead:
        """Hook: build the head that replaces the linear one.

        Args:
            linear: The head of the model.

        Returns:
            The new head.
        """
        raise NotImplementedError

    def learn(self, embedding: Float[Tensor, "b D"], targets: Int[Tensor, "b"]) -> None:
        """Hook: add the samples of a batch to the head or to the sums it is computed from.

        Args:
            embedding: Features, shape ``(b, D)``.
            targets: Class ids, shape ``(b,)``.
        """
        raise NotImplementedError

    def train_dataset_adaptation(self, **kwargs: Any) -> None:
        super().train_dataset_adaptation(**kwargs)
        self.adapted_dataset: Any = self.experience.dataset.eval()

    def make_train_dataloader(
        self, shuffle: bool = False, drop_last: bool | None = None, **kwargs: Any
    ) -> None:
        super().make_train_dataloader(shuffle=False, drop_last=drop_last, **kwargs)

    def backward(self) -> None:
        """Do nothing: no loss is differentiated."""

    def optimizer_step(self) -> None:
        with self.hardware.precision.full():
            self.learn(self.gathered(self.frozen_embedding().to(self.mb_x.dtype)), self.mb_y)
