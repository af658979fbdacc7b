"""What every strategy of ours adds to Avalanche's supervised template: a fresh optimizer in each
step, masked logits, evaluation without traces, a stop at NaN, a state to resume from.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from avalanche.core import BasePlugin
from avalanche.models import DynamicModule
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module
from torch.optim import Optimizer

from avalanche_hfc._arguments import LEADING, leading
from avalanche_hfc._types import Experience, Options, State
from avalanche_hfc.models.heads import UNSEEN_LOGIT
from avalanche_hfc.plugins.herding import HerdingReplayPlugin, exemplars_of
from avalanche_hfc.plugins.moments import carry_moments, moments_of
from avalanche_hfc.plugins.ranked import PhasePlugin
from avalanche_hfc.plugins.steps import StepTable, check_single_head, known_classes
from avalanche_hfc.ranks import arrange_layers, begin_epoch, check_agreement, check_ranks
from avalanche_hfc.strategies._base.checks import (
    check_first_step,
    check_flags,
    check_optimizer,
    raise_for_dtype,
    raise_for_labels,
)
from avalanche_hfc.strategies._base.decay_groups import place_parameters
from avalanche_hfc.strategies._base.epoch_log import EpochLosses
from avalanche_hfc.strategies._base.hardware import Hardware
from avalanche_hfc.strategies._base.shares import SharedBatches
from avalanche_hfc.strategies._base.state import Progress, load_state, save_state


class IncrementalTemplate(SharedBatches):
    """Base class of the class-incremental strategies of this package.

    It adds to Avalanche's SupervisedTemplate:

    - The logits of classes not trained yet are -1000, in training and evaluation, for every head.
      Before the first step all columns of the model count, as those of a head trained before.
    - `eval` has no side effects: the model does not grow (outputs are padded up to the largest
      label), modules that follow the experience are restored, and so are the random state and the
      batch, output and loss of a running training.
    - A loss that is not finite stops the training at the end of the epoch, with step, epoch and
      loss terms in the message.
    - Training can stop after any epoch and resume in a new strategy with the same weights, bit for
      bit; see `state_dict` and `load_state_dict`.
    - On several ranks of torch.distributed it trains as on one, up to rounding: `train_mb_size` is
      the size of the global batch, `mb_x` is the share of this rank, `mb_y` and `mb_output` are
      those of all ranks; see `gathered` and `averaged`.

    Args:
        model: The model to train, with one head for all classes. It returns logits.
        optimizer: An optimizer over the parameters of the model. Frozen ones may be absent.
        plugins: Further plugins; the list is not changed.
        eval_mb_size: Batch size of evaluation. By default that of training.
        reset_optimizer: Clear the optimizer's moments before each step; its parameter groups with
            their rates and options stay. A resumed step keeps its moments. With False the moments
            carry on from step to step, those of the old rows of a growing head included.
        drop_last: Drop the last batch of an epoch if it is incomplete, in later phases as well.
            Data of less than one batch is kept. An argument ``train(..., drop_last=...)`` takes
            precedence.
        checkpoint_activations: Keep only the inputs of the model's blocks and compute the rest
            again in the backward pass: the same training in less memory, for one more forward pass.
            For the models of `avalanche_hfc.models`.
        precision: ``"float32"``, or ``"bfloat16"`` or ``"float16"`` for forward passes of the
            training under torch's autocast. Weights, losses and evaluation stay in float32. float16
            scales the gradients, and needs a GPU.
        compile: Compile the model's blocks with torch.compile, once for all steps, those of a
            teacher as well. What cannot be compiled runs uncompiled, with a warning. For the models
            of `avalanche_hfc.models`.
        tf32: Multiply float32 numbers as TF32 while training, by torch's flags, which are restored
            afterwards. Needs a CUDA GPU.
        channels_last: Keep the weights of convolutions and the images with the channels last in
            memory. For models with several convolutions, such as the ResNets.
        **base_kwargs: Arguments of Avalanche's SupervisedTemplate, such as `criterion`,
            `train_mb_size`, `train_epochs`, `device` and `evaluator`.

    Raises:
        ValueError: If the model has a head for each task, or the optimizer lacks a parameter that
            requires gradients. With `checkpoint_activations` or `compile`, if it is not a model of
            `avalanche_hfc.models`. With ``precision="float16"``, if `device` is a CPU; with `tf32`,
            if it is not CUDA. With `channels_last`, if the model is not a convolutional network.
    """

    PLUGIN_CLASS = PhasePlugin
    # attributes that hold options; those of the classes it is made of count as well
    settings: ClassVar[tuple[str, ...]] = ("reset_optimizer", "drop_last")
    takes_herding_replay = True
    trains_model: ClassVar[bool] = True  # whether it trains every parameter that is not frozen
    trains_student: ClassVar[bool] = False  # whether a phase trains a second network beside it
    trains_on_all_seen: ClassVar[bool] = False  # whether a step has the images of all steps so far
    upper_bound: ClassVar[bool] = False  # whether one training on all classes is what it stands for
    cannot_run: ClassVar[str | None] = None  # why it fails; None: it runs
    trains_on_stream: ClassVar[bool] = False
    resumable: ClassVar[bool] = True
    inference = "head"
    phase_running: Any = None  # see `Phased`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "__init__" in vars(cls):
            leading(*LEADING, criterion=CrossEntropyLoss())(cls.__init__)
        if hasattr(cls, "phases") and cls.later_epochs is IncrementalTemplate.later_epochs:
            raise TypeError(f"{cls.__name__} has phases: derive it from Phased first.")
        super().__init_subclass__(**kwargs)

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        plugins: Sequence[BasePlugin] | None = None,
        eval_mb_size: int | None = None,
        reset_optimizer: bool = True,
        drop_last: bool = False,
        checkpoint_activations: bool = False,
        precision: str = "float32",
        compile: bool = False,
        tf32: bool = False,
        channels_last: bool = False,
        **base_kwargs: object,
    ):
        name = type(self).__name__
        check_flags(name, reset_optimizer=reset_optimizer, drop_last=drop_last)
        check_single_head(name, model)
        if self.trains_model:
            check_optimizer(name, model, optimizer)
        super().__init__(
            model=model,
            optimizer=optimizer,
            plugins=list(plugins or ()),
            eval_mb_size=eval_mb_size,
            **base_kwargs,
        )
        self.hardware = Hardware(
            name,
            model,
            self.device,
            checkpoint_activations=checkpoint_activations,
            precision=precision,
            compile=compile,
            tf32=tf32,
            channels_last=channels_last,
        )
        self.reset_optimizer = reset_optimizer
        self.drop_last = drop_last
        self.given_epochs: int = self.train_epochs  # plugins may change those of a step
        self.losses = EpochLosses()
        self.loss_terms: dict[str, Tensor] = {}
        self._prefix: Tensor | None = None
        self.progress = Progress()
        self._fixed_head_classes = 0
        self._stop_training: bool

    # A step

    def _before_training_exp(self, **kwargs: object) -> None:
        check_ranks(self)
        table, progress = StepTable.of(self), self.progress
        before, in_step = table.state_dict(), progress.in_step
        progress.in_step = True
        try:
            progress.check_experience(self.experience, table)
            table.learn(self.experience, self.clock.train_exp_counter)
            check_first_step(table)
            growing = any(isinstance(module, DynamicModule) for module in self.model.modules())
            self._fixed_head_classes = 0 if growing else max(known_classes(self.experience)) + 1
            super()._before_training_exp(**kwargs)
            if progress.loaded is None:
                if self.reset_optimizer:
                    self.clear_moments()
                self.begin_step(**kwargs)
        except ValueError:  # refused: the step has not begun
            progress.in_step = in_step
            table.load_state_dict(before)
            raise

    def _train_exp(
        self, experience: Experience, eval_streams: object = None, **kwargs: object
    ) -> None:
        self.dataloader: Any = self.shared(self.dataloader)
        if self.trains_model:
            arrange_layers(type(self).__name__, self.model, self.device)
        saved = self.progress.resume(self)
        if saved.get("phase") is None:
            begun = saved.get("turn") == "before_training_epoch"
            for _ in range(self.clock.train_exp_epochs, self.train_epochs):
                if not begun:
                    self._before_training_epoch(**kwargs)
                begun = False
                if self._stop_training:
                    self._stop_training = False
                    break
                self.losses.start()
                begin_epoch(self)
                with self.hardware.epoch(), self.hardware.precision.autocast():
                    self.training_epoch(**kwargs)
                self._after_training_epoch(**kwargs)
        self.later_epochs(saved.get("phase"), **kwargs)
        self.end_step(**kwargs)

    def begin_step(self, **kwargs: object) -> None:
        """Hook: called once in each step, after the model has grown and before the first epoch.

        It is not called again when an interrupted step is resumed.

        Args:
            **kwargs: The arguments that `train` was given, such as `num_workers`.
        """

    def later_epochs(self, saved: State | None, **kwargs: object) -> None:
        """Hook: called once in each step, after the main epochs. `Phased` trains its phases here.

        Args:
            saved: What `phase_state` has returned, if a state is resumed.
            **kwargs: The arguments that `train` was given, such as `num_workers`.
        """

    def end_step(self, **kwargs: object) -> None:
        """Hook: called once in each step, after all epochs.

        The `after_training_exp` callbacks of the plugins follow.

        Args:
            **kwargs: The arguments that `train` was given, such as `num_workers`.
        """

    @property
    def phase(self) -> str:
        """The name of the phase that is running, ``"train"`` during the main epochs."""
        return "train" if self.phase_running is None else self.phase_running.name

    def _before_training_epoch(self, **kwargs: Any) -> None:
        data = getattr(self.dataloader, "dataset", None)
        self.seed_draws(data, "train", self.clock.train_exp_epochs)
        self.progress.call(self, "before_training_epoch", **kwargs)

    def _after_training_epoch(self, **kwargs: Any) -> None:
        self.losses.finish(step=self.clock.train_exp_counter, epoch=self.clock.train_exp_epochs)
        self.progress.call(self, "after_training_epoch", **kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        self.progress.call(self, "after_training_exp", **kwargs)
        self.progress.in_step = False
        check_agreement(self)

    # The optimizer

    def make_optimizer(self, **kwargs: Any) -> None:
        known = self.optimized_param_id or {}
        moments = moments_of(known, self.optimizer)
        place_parameters(self.optimizer, self.model, known)
        groups = self.optimizer.param_groups
        present = {id(parameter) for group in groups for parameter in group["params"]}
        # what takes the place of a parameter of the optimizer under the same name stays in it
        replaced = {name for name, parameter in known.items() if id(parameter) in present}
        super().make_optimizer(**kwargs)
        if not kwargs.get("reset_optimizer_state"):
            carry_moments(self.model, self.optimizer, moments)
        present |= {id(p) for name, p in self.model.named_parameters() if name in replaced}
        for group in groups:  # Avalanche adds every parameter, frozen ones as well
            group["params"] = [p for p in group["params"] if p.requires_grad or id(p) in present]

    def clear_moments(self) -> None:
        """Clear the moments of the optimizer.

        A method with a second optimizer overrides this and clears its moments as well.
        """
        self.optimizer.state.clear()

    # A batch

    def _unpack_minibatch(self) -> None:
        super()._unpack_minibatch()
        self.mbatch[0] = self.hardware.arrange(self.mbatch[0])
        self._prefix = None

    @property
    def mb_prefix(self) -> Tensor | None:
        """The output of the model's frozen first blocks for the training batch, which student and
        teacher share; computed once. None where the model shares none.
        """
        if (
            self._prefix is None
            and self.is_training
            and getattr(self.model, "shares_prefix", False)
        ):
            torch.clear_autocast_cache()
            self._prefix = self.model.prefix(self.mb_x)
        return self._prefix

    def forward(self) -> Tensor:
        """Logits of the batch; -1000 in the columns of classes not seen."""
        torch.clear_autocast_cache()  # an evaluation leaves weights without gradient in it
        if self.mb_y.dtype != torch.int64:
            raise_for_labels(self)
        try:
            logits = self.gathered(self.model_logits())
        except RuntimeError as error:
            raise_for_dtype(self, error)
            raise
        table = StepTable.of(self)
        steps = table.on(logits)
        if self.is_training and logits.shape[1] < self._fixed_head_classes:
            raise ValueError(
                f"The benchmark has class {self._fixed_head_classes - 1}, the model gives "
                f"{logits.shape[1]} columns and cannot grow. "
                "Give it a wider head, or one that grows: GrowingLinear, or Avalanche's "
                "IncrementalClassifier."
            )
        if table.step_of:  # else evaluated before the first step: what was trained before counts
            logits = logits.masked_fill(steps < 0, UNSEEN_LOGIT)
        if self.is_eval:
            missing = max(self.eval_width - logits.shape[1], 0)
            logits = F.pad(logits, (0, missing), value=UNSEEN_LOGIT)
        return logits

    def model_logits(self) -> Tensor:
        """Hook: compute the logits of the current batch, in training and in evaluation.

        Returns:
            The logits of the model, shape ``(b, C)``. The columns of classes not seen yet are
            masked afterwards.
        """
        prefix = self.mb_prefix
        return self.model(self.mb_x) if prefix is None else self.model.classify(self.embed_batch())

    def embed_batch(self) -> Tensor:
        """Embed the current training batch; a frozen prefix that is already computed is used.

        Returns:
            The embedding, shape ``(b, D)``.
        """
        prefix = self.mb_prefix
        shared = () if prefix is None else (prefix,)
        return self.model.embed(self.mb_x, *shared)

    def _before_backward(self, **kwargs: object) -> None:
        classification = self.loss.detach().clone()  # plugins add to the loss in place
        super()._before_backward(**kwargs)
        self.loss_terms = self.loss_terms or {"criterion": classification}
        for plugin in self.plugins:
            self.loss_terms |= getattr(plugin, "loss_terms", {})
        self.losses.add(self.loss.detach(), self.loss_terms)

    def backward(self) -> None:
        self.differentiate(self.loss, self.model, self.optimizer)

    def differentiate(self, loss: Tensor, module: Module, optimizer: Optimizer) -> None:
        """Compute the gradients of a loss of the whole batch.

        Args:
            loss: A scalar.
            module: The module that is trained.
            optimizer: The optimizer of its parameters.
        """
        precision = self.hardware.precision
        with precision.full():
            self.backpropagate(precision.scaled(loss), module)
            precision.unscale(optimizer)

    def optimizer_step(self) -> None:
        super().optimizer_step()
        # it holds the weights from before the step as long as the user's `autocast` block lasts
        torch.clear_autocast_cache()

    def _after_training_iteration(self, **kwargs: object) -> None:
        super()._after_training_iteration(**kwargs)
        self._prefix = self.share = None
        self.loss_terms = {}

    # Evaluation

    def eval(
        self, exp_list: Experience | Iterable[Experience], **kwargs: object
    ) -> dict[str, object]:
        with self.hardware.evaluation():
            return super().eval(exp_list, **kwargs)

    def model_adaptation(self, model: Module | None = None) -> Module:
        return self.hardware.arrange(super().model_adaptation(model))

    # What predicts

    @property
    def predictor(self) -> Module:
        """A module that maps images to logits, as evaluation does."""
        return self.model

    def class_means(self) -> dict[int, Tensor] | None:
        """The means of a method that can classify by the nearest mean of exemplars.

        Returns:
            For each class id the unit mean of the unit features of its exemplars, shape ``(D,)``;
            None without a herding memory, or with a model that lacks `embed` and `classify`.
        """
        herding = next((p for p in self.plugins if isinstance(p, HerdingReplayPlugin)), None)
        model = self.predictor
        embeds = all(callable(getattr(model, name, None)) for name in ("embed", "classify"))
        if herding is None or not len(herding.memory) or not embeds:
            return None
        return herding.class_means(self, model=model)

    def nearest_scores(self, x: Tensor) -> Tensor | None:
        """The scores -‖φ(x) - c_k‖² of images, with the means c_k of `class_means`.

        Args:
            x: Images, shape ``(b, c, h, w)``.

        Returns:
            The score of each class in its column, shape ``(b, C)``; None if no means are known.
        """
        return None

    def epoch_losses(self) -> dict[str, float]:
        """The mean of each loss term over the last finished epoch.

        Returns:
            The means by the name of the term.
        """
        return self.losses.means

    def exemplars(self) -> dict[int, Tensor]:
        """The exemplars in memory.

        Returns:
            For each class id the positions of its exemplars in the training stream, in the order
            in which they were chosen; empty without a memory.
        """
        return exemplars_of(self.plugins)

    # State

    def chosen(self) -> Options:
        """The options that must agree between a saved state and the strategy that loads it.

        Returns:
            The value of each option by its name: the attributes listed in `settings` of the class
            and of its bases.
        """
        return {
            name: getattr(self, name)
            for kind in reversed(type(self).__mro__)
            for name in vars(kind).get("settings", ())
        }

    def method_state(self) -> State:
        """Hook: what a method must save in addition to model, optimizer, teacher and plugins.

        Returns:
            Tensors and plain data only, so that it can be loaded with ``weights_only=True``.
        """
        return {}

    def load_method_state(self, state: State) -> None:
        """Hook: restore what `method_state` returned.

        Args:
            state: A return value of `method_state`.
        """

    def phase_state(self) -> State | None:
        """The state of the phase that is running, if any; see `Phased`."""
        return None

    def state_dict(self) -> State:
        """Everything that the rest of the training depends on.

        Call it between steps, or from the callbacks `before_training_epoch`,
        `after_training_epoch`, `before_phase_epoch`, `after_phase_epoch` or `after_training_exp` of
        a plugin: the callbacks of the plugins after it are then called first. Your plugins are
        included if they have `state_dict` and `load_state_dict`. Not included are the output of
        loggers, the values of metrics, and the random state of loader processes that outlive an
        epoch (`persistent_workers`).

        Returns:
            Tensors and plain data only: save it with `torch.save` and load it with
            ``torch.load(..., weights_only=True)``.

        Raises:
            RuntimeError: If it is called inside an epoch or an evaluation.
            ValueError: If a plugin of Avalanche has a state but cannot save it.
        """
        return save_state(self)

    def load_state_dict(self, state: State) -> None:
        """Resume from a state, in a strategy that was built in the same way.

        If the state was saved within a step, call `train` with the experience of that step next.

        Args:
            state: A return value of `state_dict`.

        Raises:
            ValueError: If the state was saved by another method, with other options, or with other
                plugins.
        """
        load_state(self, state)
