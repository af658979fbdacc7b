"""What every strategy of ours adds to Avalanche's supervised template: evaluation without traces, a stop at NaN, a state to resume from."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from avalanche.core import BasePlugin
from avalanche.models import DynamicModule
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader

from avalanche_hfc.benchmarks.positions import collate, flatten
from avalanche_hfc.models.heads import UNSEEN_LOGIT
from avalanche_hfc.plugins.steps import StepTable, classes_of, known_classes
from avalanche_hfc.strategies.losses import EpochLosses
from avalanche_hfc.strategies.progress import Progress
from avalanche_hfc.strategies.state import load_state, save_state


class IncrementalTemplate(SupervisedTemplate):
    """Avalanche's template for class-incremental strategies of ours.

    - Columns of classes not trained yet are -1000, in training and evaluation, whatever the head.
    - `eval` leaves no trace: the model does not grow (outputs are padded up to the largest label met), the random state is put back, and
      so are the batch, output and loss of a training that is going on.
    - A loss that is not finite stops the training at the end of the epoch, with step, epoch and the loss terms.
    - `state_dict` / `load_state_dict`: stop after any epoch, go on in a fresh strategy with the same weights bit for bit.
    """

    takes_herding_replay = True

    def __init__(self, *, plugins: Sequence[BasePlugin] | None = None, eval_mb_size: int | None = None, **base_kwargs: Any):
        super().__init__(plugins=list(plugins or ()), eval_mb_size=eval_mb_size, **base_kwargs)
        self._stop_training: bool
        self.losses = EpochLosses()
        self.mb_prefix: Tensor | None = None
        self.progress = Progress()
        self._eval_width = 0
        self._fixed_head_classes = 0

    # Training

    def _before_training_exp(self, **kwargs: Any) -> None:
        table = StepTable.of(self)
        before = table.state_dict()
        self.progress.in_step = True
        try:
            if self.progress.resume is not None:
                self.progress.resume.check(self.experience, table)
            table.learn(self.experience, self.clock.train_exp_counter)
            growing = any(isinstance(module, DynamicModule) for module in self.model.modules())
            self._fixed_head_classes = 0 if growing else max(known_classes(self.experience)) + 1
            super()._before_training_exp(**kwargs)
        except ValueError:  # refused: the step has not begun
            self.progress.in_step = False
            table.load_state_dict(before)
            raise

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        event = self.progress.go_on(self)
        if event == "after_training_epoch":
            self.progress.take_turns(self, event, skip=EvaluationPlugin, **kwargs)  # what it gathered in the epoch is gone
        for _ in range(self.clock.train_exp_epochs, self.clock.train_exp_epochs if event == "after_training_exp" else self.train_epochs):
            self._before_training_epoch(**kwargs)
            if self._stop_training:
                self._stop_training = False
                break
            self.losses.start()
            self.training_epoch(**kwargs)
            self._after_training_epoch(**kwargs)

    def _before_training_epoch(self, **kwargs: Any) -> None:
        self.progress.take_turns(self, "before_training_epoch", **kwargs)

    def _after_training_epoch(self, **kwargs: Any) -> None:
        self.losses.finish(step=self.clock.train_exp_counter, epoch=self.clock.train_exp_epochs)
        self.progress.take_turns(self, "after_training_epoch", **kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        self.progress.take_turns(self, "after_training_exp", **kwargs)
        self.progress.in_step = False

    def optimizer_step(self) -> None:
        super().optimizer_step()
        torch.clear_autocast_cache()  # it holds the weights from before the step as long as the user's `autocast` block lasts

    def forward(self) -> Tensor:
        """Logits of the batch; -1000 in the columns of classes not seen."""
        torch.clear_autocast_cache()  # an evaluation leaves weights without gradient in it
        if self.is_training and getattr(self.model, "shares_prefix", False):
            self.mb_prefix = self.model.prefix(self.mb_x)
            logits = self.model.classify(self.model.embed(self.mb_x, self.mb_prefix))
        else:
            logits = super().forward()
        if self.is_training and logits.shape[1] < self._fixed_head_classes:
            raise ValueError(
                f"The benchmark has class {self._fixed_head_classes - 1}, the model gives {logits.shape[1]} columns and cannot grow. "
                "Give it a wider head, or one that grows: GrowingLinear, or Avalanche's IncrementalClassifier."
            )
        if self.is_eval:
            logits = F.pad(logits, (0, max(self._eval_width - logits.shape[1], 0)), value=UNSEEN_LOGIT)
        return logits.masked_fill(StepTable.of(self).on(logits) < 0, UNSEEN_LOGIT)

    def _before_backward(self, **kwargs: Any) -> None:
        classification = self.loss.detach()
        super()._before_backward(**kwargs)
        terms = {"criterion": classification}
        for plugin in self.plugins:
            terms |= getattr(plugin, "loss_terms", {})
        self.losses.add(self.loss.detach(), terms)

    def _after_training_iteration(self, **kwargs: Any) -> None:
        super()._after_training_iteration(**kwargs)
        self.mb_prefix = None

    # Data

    def make_train_dataloader(self, shuffle: bool = True, drop_last: bool = False, **kwargs: Any) -> None:
        if not self._load_positions(self.train_mb_size, kwargs, shuffle=shuffle, drop_last=drop_last):
            super().make_train_dataloader(shuffle=shuffle, drop_last=drop_last, **kwargs)

    def make_eval_dataloader(self, **kwargs: Any) -> None:
        if not self._load_positions(self.eval_mb_size, kwargs):
            super().make_eval_dataloader(**kwargs)

    def _load_positions(self, batch_size: int, asked: dict[str, Any], **options: Any) -> bool:
        """Load whole batches by position, past Avalanche's layers; False where the data set's structure is not understood."""
        several_tasks = len(getattr(self.experience, "task_labels", ())) > 1
        flat = None if several_tasks or "ffcv_args" in asked else flatten(self.adapted_dataset)
        if flat is not None:
            options |= {name: asked[name] for name in ("num_workers", "pin_memory", "persistent_workers") if name in asked}
            options = self._obtain_common_dataloader_parameters(batch_size=batch_size, **options)
            self.dataloader = DataLoader(flat, collate_fn=collate, **options)
        return flat is not None

    # Evaluation

    def eval(self, exp_list: Any, **kwargs: Any) -> dict[str, Any]:
        on_host = self.device.type == "cpu"
        fork = torch.random.fork_rng([] if on_host else [self.device], device_type="cuda" if on_host else self.device.type)
        with self.progress.evaluation(), fork:
            return super().eval(exp_list, **kwargs)

    def model_adaptation(self, model: Module | None = None) -> Module:
        """Parameters grow in training only: in evaluation the model stays as it is."""
        if self.is_training:
            return super().model_adaptation(model)
        return (self.model if model is None else model).to(self.device)

    def _before_eval_exp(self, **kwargs: Any) -> None:
        self._eval_width = max(self._eval_width, max(classes_of(self.experience), default=-1) + 1)
        super()._before_eval_exp(**kwargs)

    def _eval_cleanup(self) -> None:
        super()._eval_cleanup()
        self._eval_width = 0

    def _save_train_state(self) -> dict[str, Any]:
        return super()._save_train_state() | {"batch": (self.mbatch, self.mb_output, self.loss)}

    def _load_train_state(self, prev_state: dict[str, Any]) -> None:
        super()._load_train_state(prev_state)
        self.mbatch, self.mb_output, self.loss = prev_state["batch"]

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything the rest of the training depends on, as tensors and plain data: read it back with `weights_only=True`.

        Call it between steps, or from a plugin's `before_training_epoch`, `after_training_epoch` or `after_training_exp`. The user's own
        plugins take part if they have `state_dict` and `load_state_dict`. Not in it: what loggers wrote and metrics gathered, and the
        random state inside loader processes that outlive an epoch (`persistent_workers`).
        """
        return save_state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state in a strategy built like the one that gave it. If it was saved inside a step, train that experience next."""
        load_state(self, state)
