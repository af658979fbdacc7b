"""Opt-in repairs of strategies and plugins that are broken in avalanche-lib 0.6.0.

One small class per defect, met with torch 2.14 and dill 0.4. Each takes the arguments of the class
it repairs, is a subclass of it and keeps its attributes and callbacks, so a plugin that works in
the original works here. Importing this module changes nothing in Avalanche or torch. Paths below
are relative to the `avalanche` package; a column is a class id. All but `RepairedER_ACE` need the
batches of `nc_benchmark`: (x, y, task label).
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
from avalanche.training.plugins import BiCPlugin, LwFPlugin, RWalkPlugin, SupervisedPlugin
from avalanche.training.supervised import DER, ER_ACE, BiC, ICaRL, LwF
from avalanche.training.utils import cycle
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import CrossEntropyLoss
from torch.optim import Optimizer
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, default_collate

from avalanche_hfc._arguments import LEADING, leading
from avalanche_hfc._types import Strategy
from avalanche_hfc.plugins.moments import KeptMoments

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
    "RepairedRWalkPlugin",
    "KeptMoments",
    "checkpoint_repair",
]

as_host = leading(*LEADING, criterion=CrossEntropyLoss())
# `IncrementalClassifier.mask_value`: the logit of a column that was never trained
MASKED_LOGIT = -1000


def exchange(
    plugins: list, shipped: type[SupervisedPlugin], repaired: type[SupervisedPlugin]
) -> SupervisedPlugin:
    """Replace the strategy's plugin, the last of exactly type `shipped`, by a repaired one.

    The attributes are kept.
    """
    index = max(i for i, plugin in enumerate(plugins) if type(plugin) is shipped)
    replacement = repaired()
    vars(replacement).update(vars(plugins[index]))
    plugins[index] = replacement
    return replacement


class RepairedICaRLLossPlugin(ICaRLLossPlugin):
    """ICaRL's loss with a fresh frozen teacher after every step.

    In Avalanche (`training/losses.py:57-61`) the copy made after the first step stays the teacher,
    and `load_state_dict` into it raises once the head has grown. It also stays in train mode, so
    its BatchNorm statistics drift and its dropout stays on.
    """

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        self.old_model = None  # the parent copies when there is none
        super().after_training_exp(strategy, **kwargs)
        teacher: Any = self.old_model
        # in eval mode it would return distances to class means
        teacher.eval_classifier = teacher.train_classifier
        teacher.eval().requires_grad_(False)


class RepairedICaRL(ICaRL):
    """Avalanche's ICaRL with a head that may grow.

    Uses `RepairedICaRLLossPlugin`, which is both criterion and plugin as in the original. Not
    repaired: the memory holds ceil(memory_size / classes) exemplars of each class
    (`training/supervised/icarl.py:239`), which can exceed `memory_size` in total; pass a multiple
    of the number of classes where that matters.

    Args:
        feature_extractor: Maps images to features.
        classifier: Maps features to logits.
        optimizer: An optimizer over the parameters of both.
        memory_size: Number of exemplars, see `fixed_memory`.
        buffer_transform: Transform of the exemplars; None for none.
        fixed_memory: True: `memory_size` exemplars are shared by all classes seen. False: each
            class has `memory_size` exemplars.
        plugins: Further plugins; the list is not changed.
        **icarl_kwargs: Arguments of Avalanche's ICaRL.
    """

    @leading(
        *("feature_extractor", "classifier", "optimizer"),
        *("memory_size", "buffer_transform", "fixed_memory"),
    )
    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, **icarl_kwargs: object):
        super().__init__(plugins=list(plugins or ()), **icarl_kwargs)
        self._criterion = exchange(self.plugins, ICaRLLossPlugin, RepairedICaRLLossPlugin)


def collate_ragged_logits(samples: list) -> list[Tensor]:
    """Batch of (x, y, task label, logits), with logits of different widths padded with NaN."""
    *columns, logits = zip(*samples, strict=True)
    padded = torch.nn.utils.rnn.pad_sequence(
        list(logits), batch_first=True, padding_value=float("nan")
    )
    return [*(default_collate(list(column)) for column in columns), padded]


def known_logits(
    stored: Float[Tensor, "b old"], current: Float[Tensor, "b C"]
) -> Float[Tensor, "b C"]:
    """The stored logits, padded to C columns with the current logits where nothing is known.

    Absent, NaN and masked values are unknown; the current logits are detached there, so they give
    no loss and no gradient.
    """
    stored = F.pad(stored, (0, current.shape[1] - stored.shape[1]), value=float("nan"))
    unknown = stored.isnan() | (stored == MASKED_LOGIT)
    return torch.where(unknown, current.detach(), stored)


class RepairedDER(DER):
    """Avalanche's DER and DER++ with a head that may grow; takes the arguments of DER.

    In Avalanche (`training/supervised/der.py:307`) the logits kept with an exemplar have the width
    of the head at that time. They cannot be stacked with later ones or subtracted from wider ones,
    and a masked -1000 meets a trained column in the squared error. The mean of the squared error
    still runs over all columns.
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
    """BiC's plugin for current torch, which distils over classes and restores mode and data.

    Defects in Avalanche (`training/plugins/bic.py`), by line: 383 passes `verbose` to a torch
    scheduler that no longer accepts it; 292 takes the teacher's softmax over the batch (`dim=0`)
    and ignores `T`; 360 leaves the model in eval mode; 173 replaces `experience.dataset` by what
    the validation split leaves. The experience still needs a writable `dataset`: use
    `nc_benchmark`.
    """

    def before_train_dataset_adaptation(self, strategy: Strategy, **kwargs: object) -> None:
        strategy.experience = copy(strategy.experience)  # the caller's experience keeps its data
        super().before_train_dataset_adaptation(strategy, **kwargs)

    def cross_entropy(
        self, new_outputs: Float[Tensor, "b old"], old_outputs: Float[Tensor, "b old"]
    ) -> Float[Tensor, ""]:
        """Distillation loss: -mean over samples of Σ_c softmax(old / T)_c · log softmax(new / T)_c.

        There is no factor T², as in the original.

        Args:
            new_outputs: Logits of the model for the old classes, shape ``(b, old)``.
            old_outputs: Logits of the teacher for the old classes, shape ``(b, old)``.

        Returns:
            A scalar.
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
        # a namespace for this call alone: nothing is patched, not even for a moment
        names = {**shipped.__globals__, "MultiStepLR": multi_step_lr}
        FunctionType(shipped.__code__, names)(self, strategy, persistent_workers, num_workers)
        for module, training in modes:
            module.train(training)  # parents come first, so every module ends as it was


class RepairedBiC(BiC):
    """Avalanche's BiC with `RepairedBiCPlugin`.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss of a batch.
        plugins: Further plugins; the list is not changed.
        **bic_kwargs: Arguments of Avalanche's BiC.
    """

    @as_host
    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, **bic_kwargs: object):
        super().__init__(plugins=list(plugins or ()), **bic_kwargs)
        exchange(self.plugins, BiCPlugin, RepairedBiCPlugin)


class RepairedACECriterion(ACECriterion):
    """ER_ACE's loss: half a cross-entropy of memory rows, half of new rows.

    Memory rows compete among all columns, new rows among the columns of the classes in the batch.
    In Avalanche (`training/regularization.py:26`) a softmax, then a logarithm, is multiplied by a
    one-hot target: 0 · log 0 = NaN once two logits of the batch's classes differ by about 104.

    Example:
        >>> import torch
        >>> from avalanche_hfc.compat import RepairedACECriterion
        >>> logits, targets = torch.tensor([[0.0, 200.0]]), torch.tensor([0])
        >>> RepairedACECriterion()(logits, targets, logits, targets)
        tensor(100.)
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
    """Avalanche's ER_ACE with `RepairedACECriterion`.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss of a batch.
        **er_ace_kwargs: Arguments of Avalanche's ER_ACE.
    """

    @as_host
    def __init__(self, **er_ace_kwargs: object):
        super().__init__(**er_ace_kwargs)
        self.ace_criterion = RepairedACECriterion()


class RepairedLwFPlugin(LwFPlugin):
    """LwF's plugin with its teacher in eval mode; takes the arguments of LwFPlugin.

    In Avalanche (`training/regularization.py:152`) the teacher is a copy in train mode, so each
    forward pass changes its BatchNorm statistics and its dropout stays on.
    """

    def after_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        super().after_training_exp(strategy, **kwargs)
        self.lwf.prev_model.eval().requires_grad_(False)


class RepairedLwF(LwF):
    """Avalanche's LwF with `RepairedLwFPlugin`.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss of a batch.
        plugins: Further plugins; the list is not changed.
        **lwf_kwargs: Arguments of Avalanche's LwF.
    """

    @as_host
    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, **lwf_kwargs: object):
        super().__init__(plugins=list(plugins or ()), **lwf_kwargs)
        exchange(self.plugins, LwFPlugin, RepairedLwFPlugin)


class RepairedRWalkPlugin(RWalkPlugin):
    """RWalk's plugin for a head without rows before its first step; same arguments.

    In Avalanche (`training/plugins/rwalk.py:164`) the scores have the size of the head before it
    grows. After a first step of fewer than `delta_t` iterations the largest score of a
    `GrowingLinear` is that of an empty tensor, which raises.
    """

    _pending = False

    def before_training(self, strategy: Strategy, *args: object, **kwargs: object) -> None:
        self._pending = True

    def before_training_exp(self, strategy: Strategy, *args: object, **kwargs: object) -> None:
        if self._pending:
            super().before_training(strategy, *args, **kwargs)
        self._pending = False


@contextmanager
def checkpoint_repair() -> Iterator[None]:
    """Let Avalanche's `save_checkpoint` save an optimizer; use it as a context around the call.

    torch deletes the attributes `torch.optim.sgd`, `torch.optim.adam`, …; dill looks up a class
    through its module, does not find it, pickles the class by value and fails with ``PicklingError:
    Can't pickle sentinel``. The attributes exist inside the block only. Loading needs no repair.

    Example:
        >>> import torch
        >>> from avalanche_hfc.compat import checkpoint_repair
        >>> with checkpoint_repair():
        ...     hasattr(torch.optim, "sgd")
        True
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
