"""Opt-in repairs of built-ins that avalanche-lib 0.6.0 ships broken (beside torch 2.14, dill 0.4).

One small class per defect. Each takes the arguments of the class it repairs, is a subclass of it
and keeps its attributes and callbacks, so a plugin that works in the original works here. Importing
this module changes nothing in Avalanche or torch. The caller's `plugins` list is never changed.
Paths below are relative to the `avalanche` package; `C` columns, a column is a class id. All but
`RepairedER_ACE` need the batches of `nc_benchmark`: (x, y, task label).
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from avalanche.core import BasePlugin
from avalanche.training import ACECriterion
from avalanche.training.losses import ICaRLLossPlugin
from avalanche.training.plugins import BiCPlugin, LwFPlugin, SupervisedPlugin
from avalanche.training.supervised import DER, ER_ACE, BiC, ICaRL, LwF
from avalanche.training.utils import cycle
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, default_collate

from avalanche_hfc._types import Strategy

__all__ = [
    "RepairedICaRL",
    "RepairedICaRLLossPlugin",
    "RepairedDER",
    "RepairedBiC",
    "RepairedBiCPlugin",
    "RepairedER_ACE",
    "RepairedACECriterion",
    "RepairedLwF",
    "RepairedLwFPlugin",
    "checkpoint_repair",
]

MASKED_LOGIT = (
    -1000
)  # `IncrementalClassifier.mask_value`: the logit of a column that was never trained


def exchange(
    plugins: list, shipped: type[SupervisedPlugin], repaired: type[SupervisedPlugin]
) -> SupervisedPlugin:
    """Put `repaired`, with the same attributes, in the place of the strategy's own plugin: the last
    one of exactly type `shipped`.
    """
    index = max(i for i, plugin in enumerate(plugins) if type(plugin) is shipped)
    replacement = repaired()
    vars(replacement).update(vars(plugins[index]))
    plugins[index] = replacement
    return replacement


class RepairedICaRLLossPlugin(ICaRLLossPlugin):
    """Takes a fresh frozen teacher after every step.

    Shipped (`training/losses.py:57-61`): the copy made after the first step is the teacher for
        ever and `load_state_dict` into it raises once the head has grown. It also stays in train
        mode, so its BatchNorm statistics drift and its dropout stays on.
    """

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        self.old_model = None  # the parent copies when there is none
        super().after_training_exp(strategy, **kwargs)
        teacher: Any = self.old_model
        teacher.eval_classifier = (
            teacher.train_classifier
        )  # in eval mode it would answer with distances to class means
        teacher.eval().requires_grad_(False)


class RepairedICaRL(ICaRL):
    """ICaRL with a head that may grow. See `RepairedICaRLLossPlugin`; it is both `_criterion` and a
    plugin, as in the original.

    Not repaired: the memory holds ceil(memory_size / classes) exemplars of each class
    (`training/supervised/icarl.py:239`), which can be more than `memory_size` in total; pass a
    multiple of the number of classes where that matters.
    """

    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, **icarl_kwargs: object):
        super().__init__(plugins=list(plugins or ()), **icarl_kwargs)
        self._criterion = exchange(self.plugins, ICaRLLossPlugin, RepairedICaRLLossPlugin)


def collate_ragged_logits(samples: list) -> list[Tensor]:
    """Batch of (x, y, task label, logits), where rows of logits have the width of their time:
    padded with NaN to the widest.
    """
    *columns, logits = zip(*samples, strict=True)
    padded = torch.nn.utils.rnn.pad_sequence(
        list(logits), batch_first=True, padding_value=float("nan")
    )
    return [*(default_collate(list(column)) for column in columns), padded]


def known_logits(
    stored: Float[Tensor, "b old"], current: Float[Tensor, "b C"]
) -> Float[Tensor, "b C"]:
    """`stored`, padded to C columns; where it knows nothing (absent, NaN, masked) the current
    logit, detached: no loss, no gradient.
    """
    stored = F.pad(stored, (0, current.shape[1] - stored.shape[1]), value=float("nan"))
    unknown = stored.isnan() | (stored == MASKED_LOGIT)
    return torch.where(unknown, current.detach(), stored)


class RepairedDER(DER):
    """DER and DER++ with a head that may grow.

    Shipped (`training/supervised/der.py:307`): the logits kept with an exemplar have the width
        of their time. They cannot be stacked with later ones nor subtracted from wider ones, and a
        masked -1000 meets a trained column in the squared error. The mean of the squared error
        still runs over all C columns.
    """

    replay_loader: Iterator | None
    batch_logits: Tensor

    def _before_training_exp(self, **kwargs: Any) -> None:
        super()._before_training_exp(**kwargs)
        if self.replay_loader is not None:
            self.replay_loader = cycle(
                DataLoader(
                    self.storage_policy.buffer,
                    batch_size=self.batch_size_mem,
                    shuffle=True,
                    drop_last=True,
                    num_workers=kwargs.get("num_workers", 0),
                    collate_fn=collate_ragged_logits,
                )
            )

    def _after_forward(self, **kwargs: object) -> None:
        if self.replay_loader is not None:
            self.batch_logits = known_logits(
                self.batch_logits, self.mb_output[: self.batch_size_mem]
            )
        super()._after_forward(**kwargs)


def multi_step_lr(optimizer: Optimizer, *, verbose: bool = False, **options: Any) -> MultiStepLR:
    """`MultiStepLR` that accepts the argument torch has removed."""
    return MultiStepLR(optimizer, **options)


class RepairedBiCPlugin(BiCPlugin):
    """BiC's plugin: runs on current torch, distils over classes, gives back the model's mode and
    the experience's data.

    Shipped (`training/plugins/bic.py`), by line: 383 passes `verbose` to a torch scheduler that no
    longer takes it; 292 takes the teacher's softmax over the batch (`dim=0`) and ignores `T`; 360
    leaves the model in eval mode; 173 replaces `experience.dataset` by what the validation split
    leaves. The experience still needs a writable `dataset`: use `nc_benchmark`.
    """

    def before_train_dataset_adaptation(self, strategy: Strategy, **kwargs: object) -> None:
        strategy.experience = copy(strategy.experience)  # the caller's experience keeps its data
        super().before_train_dataset_adaptation(strategy, **kwargs)

    def cross_entropy(
        self, new_outputs: Float[Tensor, "b old"], old_outputs: Float[Tensor, "b old"]
    ) -> Float[Tensor, ""]:
        """-mean over samples of Σ_c softmax(old / T)_c · log softmax(new / T)_c. No factor T², as
        in the original.
        """
        return F.cross_entropy(new_outputs / self.T, (old_outputs / self.T).softmax(1))

    def bias_correction_step(
        self,
        strategy: Strategy,
        persistent_workers: bool = False,
        num_workers: int = 0,
    ) -> None:
        modes = [(module, module.training) for module in strategy.model.modules()]
        shipped = BiCPlugin.bias_correction_step
        names = {
            **shipped.__globals__,
            "MultiStepLR": multi_step_lr,
        }  # names of its own: nothing is patched, not even for a moment
        FunctionType(shipped.__code__, names)(self, strategy, persistent_workers, num_workers)
        for module, training in modes:
            module.train(training)  # parents come first, so every module ends as it was


class RepairedBiC(BiC):
    """BiC with `RepairedBiCPlugin`."""

    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, **bic_kwargs: object):
        super().__init__(plugins=list(plugins or ()), **bic_kwargs)
        exchange(self.plugins, BiCPlugin, RepairedBiCPlugin)


class RepairedACECriterion(ACECriterion):
    """½ CE(memory rows, all columns) + ½ CE(new rows, columns of the classes among them).

    Shipped (`training/regularization.py:26`): softmax, then log, then times a one-hot target: 0
        · log 0 = NaN once two logits of the batch's classes differ by about 104.
    """

    def __call__(
        self,
        out_in: Float[Tensor, "b C"],
        target_in: Int[Tensor, "b"],
        out_buffer: Float[Tensor, "m C"],
        target_buffer: Int[Tensor, "m"],
    ) -> Float[Tensor, ""]:
        classes, columns = target_in.unique(return_inverse=True)
        return (
            F.cross_entropy(out_buffer, target_buffer)
            + F.cross_entropy(out_in[:, classes], columns)
        ) / 2


class RepairedER_ACE(ER_ACE):
    """ER_ACE with `RepairedACECriterion` as `ace_criterion`."""

    def __init__(self, **er_ace_kwargs: object):
        super().__init__(**er_ace_kwargs)
        self.ace_criterion = RepairedACECriterion()


class RepairedLwFPlugin(LwFPlugin):
    """LwF's plugin with its teacher in eval mode.

    Shipped (`training/regularization.py:152`): the teacher is a copy in train mode, so each
        forward moves its BatchNorm statistics and its dropout stays on.
    """

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        super().after_training_exp(strategy, **kwargs)
        self.lwf.prev_model.eval().requires_grad_(False)


class RepairedLwF(LwF):
    """LwF with `RepairedLwFPlugin`."""

    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, **lwf_kwargs: object):
        super().__init__(plugins=list(plugins or ()), **lwf_kwargs)
        exchange(self.plugins, LwFPlugin, RepairedLwFPlugin)


@contextmanager
def checkpoint_repair() -> Iterator[None]:
    """Around `avalanche.checkpointing.save_checkpoint`: lets dill find the optimizer's class by
    name. Loading needs nothing.

    torch deletes the attributes `torch.optim.sgd`, `.adam`, …; dill looks a class up through its
    module, misses it, pickles the class by value and fails: `PicklingError: Can't pickle sentinel
    …` (`checkpointing/checkpoint.py`, `save_checkpoint`). The attributes are there inside the block
    only.
    """
    missing = {
        name.removeprefix("torch.optim."): module
        for name, module in sys.modules.items()
        if name.startswith("torch.optim.")
        and name.count(".") == 2
        and not hasattr(torch.optim, name.removeprefix("torch.optim."))
    }
    for name, module in missing.items():
        setattr(torch.optim, name, module)
    try:
        yield
    finally:
        for name in missing:
            delattr(torch.optim, name)
