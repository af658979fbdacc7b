"""What every strategy of ours adds to Avalanche's supervised template: evaluation without traces, a
stop at NaN, a state to resume from.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from avalanche.core import BasePlugin
from avalanche.models import DynamicModule
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from avalanche_hfc._arguments import LEADING, leading
from avalanche_hfc._compiled import compiled_by
from avalanche_hfc._types import Experience, HostDataset, Options, State
from avalanche_hfc.benchmarks.positions import PositionDataset, collate, flatten
from avalanche_hfc.models.heads import UNSEEN_LOGIT
from avalanche_hfc.models.modes import recompute_activations
from avalanche_hfc.plugins.herding import HerdingReplayPlugin, exemplars_of
from avalanche_hfc.plugins.moments import carry_moments, moments_of
from avalanche_hfc.plugins.steps import (
    StepTable,
    check_logits,
    check_single_head,
    classes_of,
    known_classes,
)
from avalanche_hfc.ranks import (
    GradientMean,
    Share,
    ShareLoader,
    arrange_layers,
    begin_epoch,
    check_agreement,
    check_ranks,
    world,
)
from avalanche_hfc.strategies._base.adaptation import EvalAdaptation
from avalanche_hfc.strategies._base.checks import (
    check_convolutional,
    check_first_step,
    check_flags,
    check_labels,
    check_optimizer,
    named_dtypes,
)
from avalanche_hfc.strategies._base.compilation import compile_model, compiled_loss
from avalanche_hfc.strategies._base.decay_groups import place_parameters
from avalanche_hfc.strategies._base.epoch_log import EpochLosses
from avalanche_hfc.strategies._base.loaders import RepeatedLoader
from avalanche_hfc.strategies._base.phases import EVENTS, Phase, PhasePlugin, run_phases
from avalanche_hfc.strategies._base.precision import Precision
from avalanche_hfc.strategies._base.resume import StepProgress
from avalanche_hfc.strategies._base.state import load_state, save_state

Placed = TypeVar("Placed", Module, Tensor)


class IncrementalTemplate(SupervisedTemplate):
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
        compile: Compile the forward pass of the model and the losses with torch.compile, anew in
            each step. What cannot be compiled runs uncompiled, with a warning.
        tf32: Multiply float32 numbers as TF32 while training, by torch's flags, which are restored
            afterwards. Needs a CUDA GPU.
        channels_last: Keep the weights of convolutions and the images with the channels last in
            memory. For models with several convolutions, such as the ResNets.
        **base_kwargs: Arguments of Avalanche's SupervisedTemplate, such as `criterion`,
            `train_mb_size`, `train_epochs`, `device` and `evaluator`.

    Raises:
        ValueError: If the model has a head for each task, or the optimizer lacks a parameter that
            requires gradients. With `checkpoint_activations`, if it is not a model of
            `avalanche_hfc.models`. With ``precision="float16"``, if `device` is a CPU; with `tf32`,
            if it is not CUDA. With `channels_last`, if the model is not a convolutional network.
    """

    PLUGIN_CLASS = PhasePlugin
    takes_herding_replay = True
    # attributes that hold options; those of the classes it is made of count as well
    settings: ClassVar[tuple[str, ...]] = ("reset_optimizer", "drop_last")
    cannot_run: ClassVar[str | None] = None  # why it fails; None: it runs
    upper_bound: ClassVar[bool] = False  # whether one training on all classes is what it stands for
    trains_on_all_seen: ClassVar[bool] = False  # whether a step has the images of all steps so far
    # what a run asks, see `avalanche_hfc.lab.protocol`
    trains_on_stream: ClassVar[bool] = False
    resumable: ClassVar[bool] = True
    inference = "head"
    trains_model: ClassVar[bool] = True  # whether it trains every parameter that is not frozen
    trains_student: ClassVar[bool] = False  # whether a phase trains a second network beside it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "__init__" in vars(cls):
            leading(*LEADING, criterion=CrossEntropyLoss())(cls.__init__)
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
        check_flags(
            type(self).__name__,
            reset_optimizer=reset_optimizer,
            drop_last=drop_last,
            checkpoint_activations=checkpoint_activations,
            compile=compile,
            tf32=tf32,
            channels_last=channels_last,
        )
        check_single_head(type(self).__name__, model)
        if self.trains_model:
            check_optimizer(type(self).__name__, model, optimizer)
        if checkpoint_activations:
            recompute_activations(type(self).__name__, model)
        if channels_last:
            check_convolutional(type(self).__name__, model)
        super().__init__(
            model=model,
            optimizer=optimizer,
            plugins=list(plugins or ()),
            eval_mb_size=eval_mb_size,
            **base_kwargs,
        )
        self.reset_optimizer = reset_optimizer
        self.drop_last = drop_last
        self.precision = Precision(type(self).__name__, precision, self.device, tf32=tf32)
        self.compile = compile
        self.channels_last = channels_last
        self.arrange(self.model)
        self.given_epochs: int = self.train_epochs  # plugins may change those of a step
        self._stop_training: bool
        self.losses = EpochLosses()
        self.loss_terms: dict[str, Tensor] = {}
        self.mb_prefix: Tensor | None = None
        self.phase_running: Phase | None = None
        self.draw_seed: int | None = None
        self.progress = StepProgress()
        self._eval_width = 0
        self._eval_adaptation = EvalAdaptation()
        self._fixed_head_classes = 0
        self.share: Share | None = None  # of the batch being trained; None on one rank
        self.gradient_mean = GradientMean()

    # Training

    def _before_training_exp(self, **kwargs: object) -> None:
        check_ranks(self)
        table = StepTable.of(self)
        before, in_step = table.state_dict(), self.progress.in_step
        self.progress.in_step = True
        try:
            if self.progress.resume is not None:
                self.progress.resume.check(self.experience, table)
            table.learn(self.experience, self.clock.train_exp_counter)
            check_first_step(table)
            growing = any(isinstance(module, DynamicModule) for module in self.model.modules())
            self._fixed_head_classes = 0 if growing else max(known_classes(self.experience)) + 1
            super()._before_training_exp(**kwargs)
            if self.progress.resume is None:
                if self.reset_optimizer:
                    self.clear_moments()
                self.begin_step(**kwargs)
        except ValueError:  # refused: the step has not begun
            self.progress.in_step = in_step
            table.load_state_dict(before)
            raise

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

    def begin_step(self, **kwargs: object) -> None:
        """Hook: called once in each step, after the model has grown and before the first epoch.

        It is not called again when an interrupted step is resumed.

        Args:
            **kwargs: The arguments that `train` was given, such as `num_workers`.
        """

    def phases(self) -> Sequence[Phase]:
        """Hook: the phases that follow the main epochs of the current step.

        Returns:
            The phases in the order in which they run. By default there are none.
        """
        return ()

    @property
    def phase(self) -> str:
        """The name of the phase that is running, ``"train"`` during the main epochs."""
        return "train" if self.phase_running is None else self.phase_running.name

    def _train_exp(
        self, experience: Experience, eval_streams: object = None, **kwargs: object
    ) -> None:
        self.dataloader: Any = self.shared(self.dataloader)
        if self.trains_model:
            arrange_layers(type(self).__name__, self.model, self.device)
        if self.compile:
            compile_model(self.model)
        event = self.progress.restore_step(self)
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
            begin_epoch(self)
            with self.epoch_hardware(), self.precision.autocast():
                self.training_epoch(**kwargs)
            self._after_training_epoch(**kwargs)
        if event != "after_training_exp":
            run_phases(self, self.phases(), event, saved, **kwargs)
            self.end_step(**kwargs)

    @contextmanager
    def epoch_hardware(self) -> Iterator[None]:
        """A context for the batches of an epoch, with TF32 and compiled losses if asked for."""
        with self.precision.products(), compiled_by(compiled_loss if self.compile else None):
            yield

    def arrange(self, part: Placed) -> Placed:
        """Put the channels last in memory, if the strategy has `channels_last`.

        Args:
            part: A model, whose 4-d weights are arranged in place, or a tensor; one that is not
                4-d is left as it is.

        Returns:
            The model, or the tensor with the same values.
        """
        if not self.channels_last or (isinstance(part, Tensor) and part.dim() != 4):
            return part
        return part.to(memory_format=torch.channels_last)

    def end_step(self, **kwargs: object) -> None:
        """Hook: called once in each step, after the last phase.

        The `after_training_exp` callbacks of the plugins follow.

        Args:
            **kwargs: The arguments that `train` was given, such as `num_workers`.
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
        check_agreement(self)

    def optimizer_step(self) -> None:
        super().optimizer_step()
        # it holds the weights from before the step as long as the user's `autocast` block lasts
        torch.clear_autocast_cache()

    def forward(self) -> Tensor:
        """Logits of the batch; -1000 in the columns of classes not seen."""
        torch.clear_autocast_cache()  # an evaluation leaves weights without gradient in it
        check_labels(type(self).__name__, self.mb_y)
        with named_dtypes(type(self).__name__, self.model, self.mb_x):
            logits = self.whole(self.model_logits)
        check_logits(logits)
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
        table = StepTable.of(self)
        if not table.num_seen:
            return logits  # evaluated before the first step: what was trained before counts
        return logits.masked_fill(table.on(logits) < 0, UNSEEN_LOGIT)

    def model_logits(self) -> Tensor:
        """Hook: compute the logits of the current batch, in training and in evaluation.

        Returns:
            The logits of the model, shape ``(b, C)``. The columns of classes not seen yet are
            masked afterwards.
        """
        if self.is_training and self.mb_prefix is not None:
            return self.model.classify(self.embed_batch())
        return super().forward()

    def embed_batch(self) -> Tensor:
        """Embed the current training batch; a frozen prefix that is already computed is used.

        Returns:
            The embedding, shape ``(b, D)``.
        """
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
            with named_dtypes(type(self).__name__, self.model, self.mb_x):
                self.mb_prefix = self.model.prefix(self.mb_x)
        super()._before_forward(**kwargs)

    def _before_backward(self, **kwargs: object) -> None:
        classification = self.loss.detach().clone()  # plugins add to the loss in place
        super()._before_backward(**kwargs)
        terms = dict(self.loss_terms) or {"criterion": classification}
        for plugin in self.plugins:
            terms |= getattr(plugin, "loss_terms", {})
        self.loss_terms = terms
        self.losses.add(self.loss.detach(), terms)

    def _after_training_iteration(self, **kwargs: object) -> None:
        super()._after_training_iteration(**kwargs)
        self.mb_prefix = self.share = None
        self.loss_terms = {}
        StepTable.of(self).forget_batch()

    # Several ranks

    def _unpack_minibatch(self) -> None:
        super()._unpack_minibatch()
        self.mbatch[0] = self.arrange(self.mbatch[0])
        self.share = None
        if self.is_training and isinstance(self.dataloader, ShareLoader):
            self.share = self.dataloader.share
            self.mbatch[1:] = [self.share.gather(column) for column in self.mbatch[1:]]

    def shared(self, loader: DataLoader) -> DataLoader | ShareLoader:
        """A loader of the share that this rank has in each batch.

        Args:
            loader: A loader of whole batches, the same on all ranks.

        Returns:
            The loader itself on one rank.

        Raises:
            ValueError: If the data set cannot be read by position, so that the random draws of
                its transforms would differ from rank to rank.
        """
        if not world().several:
            return loader
        if not isinstance(getattr(loader, "dataset", None), PositionDataset):
            raise ValueError(
                f"{type(self).__name__}: on {world().size} ranks the data must be an Avalanche "
                "data set that is read by position, with one task and the default collate_fn."
            )
        if self.draw_seed is None:  # ranks read different images: none may draw for the others
            self.draw_seed = torch.initial_seed()
        return ShareLoader(loader)

    def whole(self, forward: Callable[[], Tensor]) -> Tensor:
        """Compute rows of a training batch on all ranks, with the model in training mode.

        Args:
            forward: Computes the rows of the images of this rank.

        Returns:
            The rows of the whole batch.
        """
        return self.gathered(forward())

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of the whole batch, from those of the images of this rank.

        For what a loss compares across samples. Gradients flow to the rows of this rank.

        Args:
            rows: One row for each image in `mb_x`, shape ``(b_r, ...)``.

        Returns:
            One row for each sample in `mb_y`, shape ``(b, ...)``; on one rank `rows` itself.
        """
        return rows if self.share is None else self.share.gather(rows)

    def averaged(self, mean: Tensor) -> Tensor:
        """The mean over the whole batch, from that over the images of this rank.

        For loss terms that are plain means over samples: only a number is sent.

        Args:
            mean: A scalar.

        Returns:
            A scalar; on one rank `mean` itself.
        """
        return mean if self.share is None else self.share.average(mean)

    def backward(self) -> None:
        self.differentiate(self.loss, self.model, self.optimizer)

    def differentiate(self, loss: Tensor, module: Module, optimizer: Optimizer) -> None:
        """Compute the gradients of a loss of the whole batch.

        Args:
            loss: A scalar.
            module: The module that is trained.
            optimizer: The optimizer of its parameters.
        """
        with self.precision.full():
            loss = self.precision.scaled(loss)
            if self.share is None:
                loss.backward()
            else:
                self.gradient_mean.backward(loss * self.share.scale, module)
            self.precision.unscale(optimizer)

    # Data

    def drops_last(self, num_images: int, asked: bool | None = None) -> bool:
        """Whether an epoch leaves out its incomplete last batch.

        Args:
            num_images: Number of images of the epoch.
            asked: The argument `drop_last` of `train`, which takes precedence; None if it was not
                given.

        Returns:
            True if the incomplete last batch is left out.
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
        """Build a loader that reads whole batches by position.

        Args:
            data: An Avalanche data set, or its flat view. A data set that cannot be flattened is
                loaded sample by sample.
            batch_size: Number of images of a batch; None together with a `batch_sampler`.
            asked: The arguments of `train` or `eval`, of which `num_workers`, `pin_memory` and
                `persistent_workers` are used.
            **options: Further arguments of torch's DataLoader, such as `shuffle`.

        Returns:
            The loader.
        """
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
        """Seed the random draws of transforms, if the strategy has a `draw_seed`.

        The draws of a sample then depend on (`draw_seed`, step, phase, epoch, position) only. Data
        that is not read by position is not affected.

        Args:
            data: The data that is about to be loaded.
            phase: ``"train"``, the name of a later phase, or ``"pass"`` for a pass over the data
                that is not an epoch.
            epoch: Epoch of the phase, from 0.
        """
        if self.draw_seed is not None and isinstance(data, PositionDataset):
            data.seed_draws(self.draw_seed, self.clock.train_exp_counter, phase, epoch)

    # Evaluation

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

    def eval(
        self, exp_list: Experience | Iterable[Experience], **kwargs: object
    ) -> dict[str, object]:
        on_host = self.device.type == "cpu"
        fork = torch.random.fork_rng(
            [] if on_host else [self.device], device_type="cuda" if on_host else self.device.type
        )
        with (
            self.progress.evaluation(),
            self._eval_adaptation.running(),
            self.precision.exact(),
            fork,
        ):
            return super().eval(exp_list, **kwargs)

    def model_adaptation(self, model: Module | None = None) -> Module:
        """Parameters grow in training only; in evaluation modules follow the experience without."""
        if self.is_training:
            return self.arrange(super().model_adaptation(model))
        adapted = self.model if model is None else model
        self._eval_adaptation.adapt(adapted, self.experience)
        return adapted.to(self.device)

    def _before_eval_exp(self, **kwargs: object) -> None:
        self._eval_width = max(self._eval_width, max(classes_of(self.experience), default=-1) + 1)
        super()._before_eval_exp(**kwargs)

    def _eval_cleanup(self) -> None:
        super()._eval_cleanup()
        self._eval_width = 0

    def _save_train_state(self) -> State:
        batch = self.mbatch, self.mb_output, self.loss, self.share
        self.share = None  # an evaluation has all images on every rank
        return super()._save_train_state() | {"batch": batch}

    def _load_train_state(self, prev_state: State) -> None:
        super()._load_train_state(prev_state)
        self.mbatch, self.mb_output, self.loss, self.share = prev_state["batch"]

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

    def state_dict(self) -> State:
        """Everything that the rest of the training depends on.

        Call it between steps, or from the callbacks `before_training_epoch`,
        `after_training_epoch`, `before_phase_epoch`, `after_phase_epoch` or `after_training_exp` of
        a plugin. Your plugins are included if they have `state_dict` and `load_state_dict`. Not
        included are the output of loggers, the values of metrics, and the random state of loader
        processes that outlive an epoch (`persistent_workers`).

        Returns:
            Tensors and plain data only: save it with `torch.save` and load it with
            ``torch.load(..., weights_only=True)``.

        Raises:
            RuntimeError: If it is called from a plugin that was added after Avalanche's clock.
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
