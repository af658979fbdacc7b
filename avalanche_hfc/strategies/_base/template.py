"""What every strategy of ours adds to Avalanche's supervised template: evaluation without traces, a
stop at NaN, a state to resume from.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from avalanche.core import BasePlugin
from avalanche.models import DynamicModule
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader

from avalanche_hfc._types import Experience, HostDataset, Options, State
from avalanche_hfc.benchmarks.positions import PositionDataset, collate, flatten
from avalanche_hfc.models.heads import UNSEEN_LOGIT
from avalanche_hfc.plugins.herding import exemplars_of
from avalanche_hfc.plugins.steps import StepTable, classes_of, known_classes
from avalanche_hfc.strategies._base.checks import check_first_step, check_flags
from avalanche_hfc.strategies._base.decay_groups import place_parameters
from avalanche_hfc.strategies._base.epoch_log import EpochLosses
from avalanche_hfc.strategies._base.loaders import RepeatedLoader
from avalanche_hfc.strategies._base.phases import EVENTS, Phase, PhasePlugin, run_phases
from avalanche_hfc.strategies._base.resume import Progress
from avalanche_hfc.strategies._base.state import load_state, save_state


class IncrementalTemplate(SupervisedTemplate):
    """Base class of the class-incremental strategies of this package.

    It adds to Avalanche's SupervisedTemplate:

    - The logits of classes not trained yet are -1000, in training and evaluation, for every head.
    - `eval` has no side effects: the model does not grow (outputs are padded up to the largest
      label), and the random state and the batch, output and loss of a running training are
      restored.
    - A loss that is not finite stops the training at the end of the epoch, with step, epoch and
      loss terms in the message.
    - Training can stop after any epoch and resume in a new strategy with the same weights, bit for
      bit; see `state_dict` and `load_state_dict`.

    Args:
        plugins: Further plugins; the list is not changed.
        eval_mb_size: Batch size of evaluation. By default that of training.
        reset_optimizer: Clear the optimizer's moments before each step; its parameter groups with
            their rates and options stay. A resumed step keeps its moments. With False the moments
            carry on from step to step, as in Avalanche.
        drop_last: Drop the last batch of an epoch if it is incomplete, in later phases as well.
            Data of less than one batch is kept. An argument ``train(..., drop_last=...)`` takes
            precedence.
        **base_kwargs: Arguments of Avalanche's SupervisedTemplate, such as `model`, `optimizer`,
            `criterion`, `train_mb_size`, `train_epochs`, `device` and `evaluator`.
    """

    PLUGIN_CLASS = PhasePlugin
    takes_herding_replay = True
    # attributes that hold options; those of the classes it is made of count as well
    settings: ClassVar[tuple[str, ...]] = ("reset_optimizer", "drop_last")
    cannot_run: ClassVar[str | None] = None  # why it fails; None: it runs
    upper_bound: ClassVar[bool] = False  # whether one training on all classes is what it stands for
    trains_on_all_seen: ClassVar[bool] = False  # whether a step has the images of all steps so far
    # what a run asks, see `avalanche_hfc.engine.protocol`
    trains_on_stream: ClassVar[bool] = False
    resumable: ClassVar[bool] = True
    inference = "head"

    def __init__(
        self,
        *,
        plugins: Sequence[BasePlugin] | None = None,
        eval_mb_size: int | None = None,
        reset_optimizer: bool = True,
        drop_last: bool = False,
        **base_kwargs: object,
    ):
        check_flags(type(self).__name__, reset_optimizer=reset_optimizer, drop_last=drop_last)
        super().__init__(plugins=list(plugins or ()), eval_mb_size=eval_mb_size, **base_kwargs)
        self.reset_optimizer = reset_optimizer
        self.drop_last = drop_last
        self.given_epochs: int = self.train_epochs  # plugins may change those of a step
        self._stop_training: bool
        self.losses = EpochLosses()
        self.loss_terms: dict[str, Tensor] = {}
        self.mb_prefix: Tensor | None = None
        self.phase_running: Phase | None = None
        self.draw_seed: int | None = None
        self.progress = Progress()
        self._eval_width = 0
        self._fixed_head_classes = 0

    # Training

    def _before_training_exp(self, **kwargs: object) -> None:
        table = StepTable.of(self)
        before = table.state_dict()
        self.progress.in_step = True
        try:
            if self.progress.resume is not None:
                self.progress.resume.check(self.experience, table)
            table.learn(self.experience, self.clock.train_exp_counter)
            growing = any(isinstance(module, DynamicModule) for module in self.model.modules())
            self._fixed_head_classes = 0 if growing else max(known_classes(self.experience)) + 1
            check_first_step(table)
            super()._before_training_exp(**kwargs)
            if self.progress.resume is None:
                if self.reset_optimizer:
                    self.clear_moments()
                self.begin_step(**kwargs)
        except ValueError:  # refused: the step has not begun
            self.progress.in_step = False
            table.load_state_dict(before)
            raise

    def make_optimizer(self, **kwargs: Any) -> None:
        place_parameters(self.optimizer, self.model, self.optimized_param_id or {})
        super().make_optimizer(**kwargs)

    def clear_moments(self) -> None:
        """Forget the moments of the optimizer; a method with another optimizer of its own extends
        it.
        """
        self.optimizer.state.clear()

    def begin_step(self, **kwargs: object) -> None:
        """What a method does once, when the model has grown and before the first epoch. A resumed
        step has done it.
        """

    def phases(self) -> Sequence[Phase]:
        """What follows the main epochs of the step being trained."""
        return ()

    @property
    def phase(self) -> str:
        """The name of the phase that runs: "train" is that of the main epochs."""
        return "train" if self.phase_running is None else self.phase_running.name

    def _train_exp(
        self, experience: Experience, eval_streams: object = None, **kwargs: object
    ) -> None:
        event = self.progress.go_on(self)
        saved = self.progress.take_phase()
        if event == "after_training_epoch":
            self.progress.take_turns(
                self, event, skip=EvaluationPlugin, **kwargs
            )  # what it gathered in the epoch is gone
        over = event == "after_training_exp" or event in EVENTS
        for _ in range(
            self.clock.train_exp_epochs, self.clock.train_exp_epochs if over else self.train_epochs
        ):
            self._before_training_epoch(**kwargs)
            if self._stop_training:
                self._stop_training = False
                break
            self.losses.start()
            self.training_epoch(**kwargs)
            self._after_training_epoch(**kwargs)
        if event != "after_training_exp":
            run_phases(self, self.phases(), event, saved, **kwargs)
            self.end_step(**kwargs)

    def end_step(self, **kwargs: object) -> None:
        """What a method does once, when the last phase is over and before `after_training_exp` of
        the plugins.
        """

    def _before_training_epoch(self, **kwargs: Any) -> None:
        self.seed_draws(
            getattr(self.dataloader, "dataset", None), "train", self.clock.train_exp_epochs
        )
        self.progress.take_turns(self, "before_training_epoch", **kwargs)

    def _after_training_epoch(self, **kwargs: Any) -> None:
        self.losses.finish(step=self.clock.train_exp_counter, epoch=self.clock.train_exp_epochs)
        self.progress.take_turns(self, "after_training_epoch", **kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        self.progress.take_turns(self, "after_training_exp", **kwargs)
        self.progress.in_step = False

    def optimizer_step(self) -> None:
        super().optimizer_step()
        # it holds the weights from before the step as long as the user's `autocast` block lasts
        torch.clear_autocast_cache()

    def forward(self) -> Tensor:
        """Logits of the batch; -1000 in the columns of classes not seen."""
        torch.clear_autocast_cache()  # an evaluation leaves weights without gradient in it
        if (
            self.is_eval and not StepTable.of(self).num_seen
        ):  # nothing has been learned; not every head can answer yet
            return torch.full((len(self.mb_x), self._eval_width), UNSEEN_LOGIT, device=self.device)
        logits = self.model_logits()
        if self.is_training and logits.shape[1] < self._fixed_head_classes:
            raise ValueError(
                f"The benchmark has class {self._fixed_head_classes - 1}, the model gives "
                f"{logits.shape[1]} columns and cannot grow. "
                "Give it a wider head, or one that grows: GrowingLinear, or Avalanche's "
                "IncrementalClassifier."
            )
        if self.is_eval:
            logits = F.pad(
                logits, (0, max(self._eval_width - logits.shape[1], 0)), value=UNSEEN_LOGIT
            )
        return logits.masked_fill(StepTable.of(self).on(logits) < 0, UNSEEN_LOGIT)

    def model_logits(self) -> Tensor:
        """Logits of the batch as the model gives them."""
        if self.is_training and self.mb_prefix is not None:
            return self.model.classify(self.embed_batch())
        return super().forward()

    def embed_batch(self) -> Tensor:
        """The model's embedding of the batch, in training."""
        return (
            self.model.embed(self.mb_x)
            if self.mb_prefix is None
            else self.model.embed(self.mb_x, self.mb_prefix)
        )

    def _before_forward(self, **kwargs: object) -> None:
        """A frozen prefix is computed first, for the student and for a teacher that a plugin asks
        before it.
        """
        if getattr(self.model, "shares_prefix", False):
            torch.clear_autocast_cache()
            self.mb_prefix = self.model.prefix(self.mb_x)
        super()._before_forward(**kwargs)

    def _before_backward(self, **kwargs: object) -> None:
        classification = self.loss.detach()
        super()._before_backward(**kwargs)
        terms = dict(self.loss_terms) or {"criterion": classification}
        for plugin in self.plugins:
            terms |= getattr(plugin, "loss_terms", {})
        self.loss_terms = terms
        self.losses.add(self.loss.detach(), terms)

    def _after_training_iteration(self, **kwargs: object) -> None:
        super()._after_training_iteration(**kwargs)
        self.mb_prefix = None
        self.loss_terms = {}
        StepTable.of(self).forget_batch()

    # Data

    def drops_last(self, num_images: int, asked: bool | None = None) -> bool:
        """Whether an epoch over that many images leaves out an incomplete last batch; `asked` is
        what `train` was given.
        """
        return self.drop_last and num_images >= self.train_mb_size if asked is None else asked

    def make_train_dataloader(
        self, shuffle: bool = True, drop_last: bool | None = None, **kwargs: object
    ) -> None:
        drop_last = self.drops_last(len(self.adapted_dataset), drop_last)
        flat = self._flat(kwargs)
        if flat is None:
            super().make_train_dataloader(shuffle=shuffle, drop_last=drop_last, **kwargs)
        else:
            self.dataloader = self.loader_of(
                flat, self.train_mb_size, kwargs, shuffle=shuffle, drop_last=drop_last
            )

    def make_eval_dataloader(self, **kwargs: object) -> None:
        flat = self._flat(kwargs)
        if flat is None:
            super().make_eval_dataloader(**kwargs)
        else:
            self.dataloader = self.loader_of(flat, self.eval_mb_size, kwargs)

    def _flat(self, asked: Options) -> PositionDataset | None:
        """The step's data for loading by position, past Avalanche's layers; None where their
        structure is not understood.
        """
        several_tasks = len(getattr(self.experience, "task_labels", ())) > 1
        return None if several_tasks or "ffcv_args" in asked else flatten(self.adapted_dataset)

    def loader_of(
        self,
        data: HostDataset | PositionDataset,
        batch_size: int | None,
        asked: Options,
        **options: Any,
    ) -> DataLoader:
        """A loader of whole batches by position, with what the user asked `train` or `eval` for."""
        flat = data if isinstance(data, PositionDataset) else flatten(data)
        options |= {
            name: asked[name]
            for name in ("num_workers", "pin_memory", "persistent_workers")
            if name in asked
        }
        options = self._obtain_common_dataloader_parameters(batch_size=batch_size, **options)
        if "batch_sampler" in options:
            options.pop("batch_size")
        if flat is not None and flat.in_memory:
            options |= {"num_workers": 0, "persistent_workers": False}
        elif flat is not None and self.draw_seed is not None and options.get("num_workers"):
            options["persistent_workers"] = True  # what is drawn does not depend on the process
        loader: DataLoader = RepeatedLoader(
            data if flat is None else flat,
            collate_fn=data.collate_fn if flat is None else collate,
            **options,
        )
        self.seed_draws(loader.dataset, "pass", 0)
        return loader

    def seed_draws(self, data: object, phase: str, epoch: int) -> None:
        """With a `draw_seed`, let what random transforms draw follow from (draw_seed, step, phase,
        epoch, position) alone.

        In passes that are no epoch the phase is "pass". Data sets that are not read by position
        draw as ever.
        """
        if self.draw_seed is not None and isinstance(data, PositionDataset):
            data.seed_draws(self.draw_seed, self.clock.train_exp_counter, phase, epoch)

    # Evaluation

    @property
    def predictor(self) -> Module:
        """Images -> logits, as in evaluation."""
        return self.model

    def class_means(self) -> dict[int, Tensor] | None:
        """Means of exemplars, where a method classifies by them."""
        return None

    def nearest_scores(self, x: Tensor) -> Tensor | None:
        """-‖φ(x) - c_k‖² by class, where a method classifies by means and knows them."""
        return None

    def epoch_losses(self) -> dict[str, float]:
        """The mean of each loss term over the epoch that has just ended, by name."""
        return self.losses.means

    def exemplars(self) -> dict[int, Tensor]:
        """Ranked positions of the exemplars of each class; empty without a memory."""
        return exemplars_of(self.plugins)

    def eval(
        self, exp_list: Experience | Iterable[Experience], **kwargs: object
    ) -> dict[str, object]:
        on_host = self.device.type == "cpu"
        fork = torch.random.fork_rng(
            [] if on_host else [self.device], device_type="cuda" if on_host else self.device.type
        )
        with self.progress.evaluation(), fork:
            return super().eval(exp_list, **kwargs)

    def model_adaptation(self, model: Module | None = None) -> Module:
        """Parameters grow in training only: in evaluation the model stays as it is."""
        if self.is_training:
            return super().model_adaptation(model)
        return (self.model if model is None else model).to(self.device)

    def _before_eval_exp(self, **kwargs: object) -> None:
        self._eval_width = max(self._eval_width, max(classes_of(self.experience), default=-1) + 1)
        super()._before_eval_exp(**kwargs)

    def _eval_cleanup(self) -> None:
        super()._eval_cleanup()
        self._eval_width = 0

    def _save_train_state(self) -> State:
        return super()._save_train_state() | {"batch": (self.mbatch, self.mb_output, self.loss)}

    def _load_train_state(self, prev_state: State) -> None:
        super()._load_train_state(prev_state)
        self.mbatch, self.mb_output, self.loss = prev_state["batch"]

    # State

    def chosen(self) -> Options:
        """The options of the method as chosen: a state trained with others is refused."""
        return {
            name: getattr(self, name)
            for kind in reversed(type(self).__mro__)
            for name in vars(kind).get("settings", ())
        }

    def method_state(self) -> State:
        """What a method keeps beside model, teacher and plugins, as tensors and plain data."""
        return {}

    def load_method_state(self, state: State) -> None:
        """Take over what `method_state` gave."""

    def state_dict(self) -> State:
        """Everything the rest of the training depends on, as tensors and plain data: read it back
        with `weights_only=True`.

        Call it between steps, or from a plugin's `before_training_epoch`, `after_training_epoch`,
        `before_phase_epoch`, `after_phase_epoch` or `after_training_exp`. The user's own plugins
        take part if they have `state_dict` and `load_state_dict`. Not in it: what loggers wrote and
        metrics gathered, and the random state inside loader processes that outlive an epoch
        (`persistent_workers`).
        """
        return save_state(self)

    def load_state_dict(self, state: State) -> None:
        """Take over a state in a strategy built like the one that gave it. If it was saved inside a
        step, train that experience next.
        """
        load_state(self, state)
