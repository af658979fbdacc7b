"""DyTox (Douillard et al., CVPR 2022): a token and a head per step behind one attention block, a
divergence head, balanced tuning.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Sampler

from avalanche_hfc._names import lookup
from avalanche_hfc._types import HostDataset, Options
from avalanche_hfc.benchmarks.positions import PositionDataset, flatten
from avalanche_hfc.losses import (
    binary_cross_entropy,
    divergence_binary_cross_entropy,
    divergence_per_column,
    sigmoid_gradient,
    sigmoid_relation_distillation,
)
from avalanche_hfc.models import DyToxModel
from avalanche_hfc.strategies._base.checks import check_numbers, checked_count
from avalanche_hfc.strategies._base.replay import BalancedReplay
from avalanche_hfc.strategies._base.tuning import BalancedTuning

TUNE_ORDERS = {
    "shuffled": "all exemplars, in a new order each epoch",
    "by-class": "as released: class by class, without the incomplete last batch",
}
ROUND = 256  # to what the original sampler cuts an epoch: the batches of two processes


class DyTox(BalancedTuning, BalancedReplay):
    """DyTox: one task token and one head per step, distillation and a divergence head.

    L = (1-ρ) mean BCE(z, y; S) + ρ KL(softmax_O z° ‖ softmax_O z)/K_o + λ mean BCE(divergence
    head), where ρ is the fraction of old classes. Tokens and heads of earlier steps are frozen;
    balanced tuning then trains all but the encoder.

    Args:
        model: A `DyToxModel`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        divergence_weight: λ.
        tune_epochs: Number of epochs of balanced tuning after the main epochs, from the second step
            on.
        tune_lr: Learning rate of balanced tuning. By default a tenth of the head's.
        repeats: Repeated augmentation: in an epoch an image comes this many times in a row, each
            time with new random draws. The length of the epoch stays the same, rounded down to a
            multiple of 256 (if there are at least 256 images), so that one image in `repeats` is
            used. With 1 every image comes once.
        tune_order: Order of the exemplars in balanced tuning. ``"shuffled"``: a new one each epoch.
            ``"by-class"``: as in the released code, class by class without repeats, and without the
            incomplete last batch, so that a batch has a few classes and the last exemplars of the
            newest class are not tuned on.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.

    Raises:
        ValueError: If the model is no `DyToxModel`, or a value is not allowed or has no effect.
    """

    settings: ClassVar[tuple[str, ...]] = (
        "divergence_weight",
        "tune_epochs",
        "tune_lr",
        "repeats",
        "tune_order",
    )
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
        repeats: int = 3,
        tune_order: str = "shuffled",
        **kwargs: Any,
    ):
        if not isinstance(model, DyToxModel):
            raise ValueError(
                f"DyTox needs tokens of each step: a DyToxModel, got a {type(model).__name__}. "
                "DyToxModel(ViTEncoder(…)) makes one of a timm ViT, DyToxModel() is DyTox's own."
            )
        check_numbers("DyTox", divergence_weight=divergence_weight)
        lookup(TUNE_ORDERS, tune_order, "tune_order")
        self.divergence_weight = divergence_weight
        self.set_tuning(model, optimizer, tune_epochs, tune_lr)
        self.repeats = checked_count("DyTox", "repeats", repeats)
        self.tune_order = tune_order
        self.tune_in_order = tune_order == "by-class"
        self._divergence: Tensor | None = None
        super().__init__(model=model, optimizer=optimizer, **kwargs)

    # Data

    def make_train_dataloader(
        self, shuffle: bool = True, drop_last: bool | None = None, **kwargs: object
    ) -> None:
        if self.repeats == 1:
            super().make_train_dataloader(shuffle=shuffle, drop_last=drop_last, **kwargs)
            return
        flat = self.flat_data(kwargs)
        data = self.adapted_dataset if flat is None else flat
        drop_last = self.drops_last(len(data), drop_last)
        self.dataloader = self.loader_of(
            data, self.train_mb_size, kwargs, shuffle=shuffle, drop_last=drop_last
        )

    def drops_last(self, num_images: int, asked: bool | None = None) -> bool:
        return super().drops_last(
            num_images if self.repeats == 1 else epoch_length(num_images), asked
        )

    def loader_of(
        self, data: HostDataset, batch_size: int | None, asked: Options, **options: Any
    ) -> DataLoader:
        """Build a loader; one that is given `shuffle`, for training, repeats each image.

        Args:
            data: An Avalanche data set, or its flat view.
            batch_size: Number of images of a batch.
            asked: The arguments of `train` or `eval`, such as `num_workers`.
            **options: Further arguments of torch's DataLoader, such as `shuffle`.

        Returns:
            The loader.
        """
        if self.repeats > 1 and "shuffle" in options:
            flat = data if isinstance(data, PositionDataset) else flatten(data)
            if flat is not None:
                data, flat.copies = flat, self.repeats
            repeated = RepeatedPositions(
                len(data), self.repeats, shuffle=options.pop("shuffle"), told_apart=flat is not None
            )
            options["sampler"] = repeated
        return super().loader_of(data, batch_size, asked, **options)

    # The objective

    def model_logits(self) -> Tensor:
        if self.is_eval or not self.num_old:
            return super().model_logits()
        embedding = self.embed_batch()
        self._divergence = self.model.divergence(embedding)
        return self.model.classify(embedding)

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        return binary_cross_entropy(logits, targets, steps)

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        return sigmoid_gradient(logits, targets)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": divergence_per_column(logits, self.teacher_logits(), steps)}

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        return sigmoid_relation_distillation(
            logits, targets, self.teacher_logits(), steps, weights=weights
        )

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        assert self._divergence is not None
        divergence, self._divergence = self.gathered(self._divergence), None
        return {
            "divergence": self.divergence_weight
            * divergence_binary_cross_entropy(divergence, targets, steps).mean()
        }

    # Balanced tuning

    @contextmanager
    def tuning(self) -> Iterator[None]:
        """Train tokens, heads and the shared block; freeze encoder and divergence head."""
        self.model.set_phase("tune")
        try:
            yield
        finally:
            self.model.set_phase("train")

    def after_tuning(self) -> None:
        self.memory.forget_features()  # tokens and block have moved


def epoch_length(num_images: int) -> int:
    """Images of an epoch of repeated augmentation."""
    return num_images // ROUND * ROUND or num_images


class RepeatedPositions(Sampler[int]):
    """Positions of an epoch: those of a permutation, each `repeats` times in a row, cut to the
    number of images rounded down to 256.

    The c-th copy of position p is p + c·size if the copies are `told_apart`, as in a
    PositionDataset with `copies`; else p again.
    """

    def __init__(self, size: int, repeats: int, *, shuffle: bool, told_apart: bool):
        self.size = size
        self.repeats = repeats
        self.shuffle = shuffle
        self.stride = size if told_apart else 0

    def __len__(self) -> int:
        return epoch_length(self.size)

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.size) if self.shuffle else torch.arange(self.size)
        copies = order[:, None] + self.stride * torch.arange(self.repeats)
        yield from copies.flatten()[: len(self)].tolist()
