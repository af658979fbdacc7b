"""SS-IL (Ahn et al., ICCV 2021): separated softmax, distillation inside each old step, new and
replayed images in a fixed ratio.
"""

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Sampler

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Experience
from avalanche_hfc.losses import (
    separated_cross_entropy,
    separated_distillation,
    separated_gradient,
    separated_relation_distillation,
)
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.checks import checked_count
from avalanche_hfc.strategies._base.replay import ReplayMethod

DRAWS = {
    "in-turn": "each exemplar once before any comes again",
    "repeated": "as released: some several times in an epoch, others not at all",
}


class SSIL(ReplayMethod):
    """SS-IL: a separated softmax for old and new classes, and distillation within each old step.

    L = mean CE(z, y; block of the sample) + Σ_{s<t} T² mean KL(softmax_{C_s} z°/T ‖ softmax_{C_s}
    z/T) with T = 2; the blocks are the old and the new columns, also in L_RD. An epoch
    is one pass over the new data. The memory holds the first images of each class, exactly
    `mem_size` in total. New rows of the head start as those of nn.Linear. A step with a single
    class cannot be learned, because its softmax is 1; a warning says so.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        replay_mb_size: Number of exemplars added to the `train_mb_size` new images of a batch. By
            default a quarter of `train_mb_size`.
        replay_draws: How exemplars are drawn: ``"in-turn"``, each once before any comes again, or
            ``"repeated"`` as in the released code, where an epoch draws from the memory repeated to
            the length of all training data, so that some come several times.
        lr_by_step: Divide the learning rate by the number of the step, counted from 1.
        reset_optimizer: See `IncrementalTemplate`; False as in the original.
        drop_last: See `IncrementalTemplate`; True as in the original.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed or has no effect with the others.
    """

    settings: ClassVar[tuple[str, ...]] = (
        "replay_mb_size",
        "replay_draws",
        "lr_by_step",
    )
    distils = True
    head_start = "linear"
    rule = "first"

    def __init__(
        self,
        *,
        replay_mb_size: int | None = None,
        replay_draws: str = "in-turn",
        lr_by_step: bool = True,
        reset_optimizer: bool = False,
        drop_last: bool = True,
        **kwargs: Any,
    ):
        lookup(DRAWS, replay_draws, "replay_draws")
        if replay_mb_size is not None:
            checked_count("SSIL", "replay_mb_size", replay_mb_size)
        super().__init__(reset_optimizer=reset_optimizer, drop_last=drop_last, **kwargs)
        self.replay_mb_size = replay_mb_size or max(self.train_mb_size // 4, 1)
        self.replay_draws = replay_draws
        self.lr_by_step = lr_by_step
        self._warned = False

    def make_memory(self, **budget: Any) -> HerdingReplayPlugin:
        return HerdingReplayPlugin(**budget, share="floor" if budget["per_class"] else "exact")

    def begin_step(self, **kwargs: object) -> None:
        table = StepTable.of(self)
        newest = table.classes_of_step(table.current)
        if len(newest) == 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f"SSIL: step {table.current} has a single class ({min(newest)}). The softmax "
                "over its one column is always 1: "
                "the class is never learned, nor is that of another such step.",
                stacklevel=2,
            )
        super().begin_step(**kwargs)

    def make_train_dataloader(
        self, shuffle: bool = True, drop_last: bool | None = None, **kwargs: object
    ) -> None:
        num_new = len(self.experience.dataset)
        num_replayed = len(self.adapted_dataset) - num_new
        if not num_replayed:
            super().make_train_dataloader(shuffle=shuffle, drop_last=drop_last, **kwargs)
            return
        drop_last = self.drops_last(num_new, drop_last)
        batches = RatioBatches(
            num_new,
            num_replayed,
            self.train_mb_size,
            self.replay_mb_size,
            shuffle=shuffle,
            drop_last=drop_last,
            length=num_images(self.experience) if self.replay_draws == "repeated" else None,
        )
        data = self.flat_data(kwargs)
        self.dataloader = self.loader_of(
            self.adapted_dataset if data is None else data, None, kwargs, batch_sampler=batches
        )

    def optimizer_step(self) -> None:
        """Update with the scheduled learning rate divided by the number of the step, from 1."""
        if not self.lr_by_step:
            super().optimizer_step()
            return
        asked = [group["lr"] for group in self.optimizer.param_groups]
        for group, lr in zip(self.optimizer.param_groups, asked, strict=True):
            group["lr"] = lr / (StepTable.of(self).current + 1)
        super().optimizer_step()
        for group, lr in zip(self.optimizer.param_groups, asked, strict=True):
            group["lr"] = lr

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        return separated_cross_entropy(logits, targets, steps)

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        return separated_gradient(logits, targets, steps)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": separated_distillation(logits, self.teacher_logits(), steps)}

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        return separated_relation_distillation(
            logits, targets, self.teacher_logits(), steps, weights=weights
        )


def num_images(experience: Experience) -> int:
    """The number of images in the stream of an experience."""
    return sum(len(other.dataset) for other in experience.origin_stream)


class RatioBatches(Sampler[list[int]]):
    """Positions of batches: `new_size` of the first `num_new`, and `replay_size` of the
    `num_replayed` behind, repeated to `length` if it is given, which come round again.
    """

    def __init__(
        self,
        num_new: int,
        num_replayed: int,
        new_size: int,
        replay_size: int,
        *,
        shuffle: bool,
        drop_last: bool,
        length: int | None = None,
    ):
        self.num_new = num_new
        self.num_replayed = num_replayed
        self.new_size = new_size
        self.replay_size = replay_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.length = num_replayed if length is None else length

    def __len__(self) -> int:
        return (
            self.num_new // self.new_size if self.drop_last else -(-self.num_new // self.new_size)
        )

    def __iter__(self) -> Iterator[list[int]]:
        new = self._order(self.num_new)
        replayed: list[int] = []
        for number in range(len(self)):
            while len(replayed) < self.replay_size:
                replayed += [place % self.num_replayed for place in self._order(self.length)]
            current, replayed = replayed[: self.replay_size], replayed[self.replay_size :]
            yield new[number * self.new_size : (number + 1) * self.new_size] + [
                self.num_new + position for position in current
            ]

    def _order(self, size: int) -> list[int]:
        return torch.randperm(size).tolist() if self.shuffle else list(range(size))
