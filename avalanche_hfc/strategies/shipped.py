"""Avalanche's own strategies as comparison rows: as avalanche-lib 0.6.0 ships them, and with the
repairs of `avalanche_hfc.compat`.

All take the same keyword arguments, so that `SHIPPED[name](model=…, optimizer=…, …)` builds any of
them. Nothing else is changed: their evaluation and their memory are Avalanche's own. They need the
batches of `nc_benchmark`: (x, y, task label). `predictor` is the module that predicts as
`strategy.eval` does: BiC corrects the logits behind its model's back.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from avalanche.core import BasePlugin
from avalanche.training.plugins import BiCPlugin, EvaluationPlugin
from avalanche.training.plugins.evaluation import default_evaluator
from avalanche.training.supervised import (
    DER,
    ER_ACE,
    EWC,
    BiC,
    Cumulative,
    ICaRL,
    JointTraining,
    LwF,
    Naive,
    Replay,
)
from avalanche.training.templates import SupervisedTemplate
from avalanche.training.templates.base_sgd import PeriodicEval
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module, Sequential
from torch.optim import Optimizer

from avalanche_hfc._arguments import LEADING, leading
from avalanche_hfc._names import lookup
from avalanche_hfc._types import Experience, Options
from avalanche_hfc.compat import (
    RepairedBiC,
    RepairedDER,
    RepairedER_ACE,
    RepairedICaRL,
    RepairedLwF,
)
from avalanche_hfc.models import EmbeddingModel
from avalanche_hfc.plugins.herding import checked_budget
from avalanche_hfc.plugins.hosts import Criterion, check_criterion

Number = float | int


def dataset_is_writable(experience: Experience) -> bool:
    """Whether `experience.dataset` can be replaced."""
    attribute = getattr(type(experience), "dataset", None)
    return not isinstance(attribute, property) or attribute.fset is not None


NEEDS: dict[str, Callable[[Experience], bool]] = {
    "data with task labels": lambda experience: hasattr(experience.dataset, "targets_task_labels"),
    "an experience with `benchmark`": lambda experience: hasattr(experience, "benchmark"),
    "an experience with a `dataset` that can be replaced": dataset_is_writable,
}
TASK_LABELS, BENCHMARK, WRITABLE = NEEDS


class ComparisonRow(SupervisedTemplate):
    """What the rows share: the common arguments, and `plugins` copied. Comes before the host among
    a row's bases.

    An option that is not the row's is a TypeError; those with a memory, and no others, have
    `mem_size` in their signature.
    """

    cannot_run: ClassVar[str | None] = (
        None  # why the row fails on current torch or with a growing head; None: it runs
    )
    upper_bound: ClassVar[bool] = False  # as in `IncrementalTemplate`
    trains_on_all_seen: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()  # of NEEDS: what it asks of an experience
    trains_on_stream: ClassVar[bool] = (
        False  # True: `train(stream)` once; False: `train(experience)` for each step
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "__init__" in vars(cls):
            leading(*LEADING, criterion=CrossEntropyLoss())(cls.__init__)
        super().__init_subclass__(**kwargs)

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        criterion: Criterion = CrossEntropyLoss(),  # noqa: B008  # stateless, and Avalanche's own default
        train_mb_size: int = 1,
        train_epochs: int = 1,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[BasePlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = default_evaluator,
        eval_every: int = -1,
        host_options: Options | None = None,  # from the row itself, under the host's names
        **base_kwargs: Any,
    ):
        arguments = dict(
            **self._trained(model, criterion),
            **(host_options or {}),
            optimizer=optimizer,
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=list(plugins or ()),  # Avalanche appends to the list it is given
            evaluator=evaluator,
            eval_every=eval_every,
            **base_kwargs,
        )
        super().__init__(**arguments)

    def _before_train_dataset_adaptation(self, **kwargs: object) -> None:
        for need in self.needs:
            if not NEEDS[need](self.experience):
                raise ValueError(
                    f"{type(self).__name__} needs {need}, which {type(self.experience).__name__} "
                    "does not have. Use nc_benchmark, or the splits of avalanche_hfc.benchmarks."
                )
        super()._before_train_dataset_adaptation(**kwargs)

    @property
    def predictor(self) -> Module:
        """Images -> logits, as in evaluation."""
        return self.model

    def _trained(self, model: Module, criterion: Criterion) -> Options:
        """Model and criterion under the names the host has for them."""
        return {"model": model, "criterion": criterion}

    def _check_plain(self, criterion: Criterion) -> None:
        """Raise where the host would leave out what is special about a criterion."""
        try:
            check_criterion(criterion)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} has a loss of its own: {error}.") from None


# Without a memory


class ShippedNaive(ComparisonRow, Naive):
    """Fine-tuning."""


class ShippedCumulative(ComparisonRow, Cumulative):
    """Each step trains on the data of all steps so far."""

    trains_on_all_seen = True


class ShippedJointTraining(ComparisonRow, JointTraining):
    """The upper bound. Call `train(stream)` once, with the whole stream or a part of it; a second
    call raises `AlreadyTrainedError`.
    """

    trains_on_stream = True
    upper_bound = True


class _LwFRow(ComparisonRow):
    """LwF (Li and Hoiem, 2017): their weight 1 and temperature 2. `alpha` may be a sequence, one
    for each step.
    """

    needs = (TASK_LABELS,)

    def __init__(self, *, alpha: Number | Sequence[Number] = 1.0, **common: Any):
        super().__init__(host_options={"alpha": alpha, "temperature": 2.0}, **common)


class ShippedLwF(_LwFRow, LwF):
    """LwF as shipped: its teacher stays in train mode."""


class FixedLwF(_LwFRow, RepairedLwF):
    """LwF with a teacher in eval mode."""


class ShippedEWC(ComparisonRow, EWC):
    """EWC (Kirkpatrick et al., 2017) with the squared gradient of a batch as importance, kept for
    each step. `ewc_lambda` 1 is Avalanche's own baseline's.
    """

    def __init__(self, *, ewc_lambda: Number = 1.0, **common: Any):
        super().__init__(host_options={"ewc_lambda": ewc_lambda}, **common)


# With a memory: `mem_size` exemplars in total, 2000 if not specified


class ShippedReplay(ComparisonRow, Replay):
    """Replay of a random sample of each step."""

    def __init__(self, *, mem_size: int | None = None, **common: Any):
        super().__init__(
            host_options={"mem_size": checked_budget(mem_size, None)["total"]}, **common
        )


class _ReplayLoopRow(ComparisonRow):
    """A host that replays nothing, and says nothing, while its memory holds fewer images than its
    batch of exemplars: here that is min(train_mb_size, mem_size), which the memory holds after the
    first step unless that has fewer images.
    """

    def __init__(
        self,
        *,
        mem_size: int | None = None,
        train_mb_size: int = 1,
        criterion: Criterion = CrossEntropyLoss(),  # noqa: B008
        host_options: Options | None = None,
        **common: Any,
    ):
        total = checked_budget(mem_size, None)["total"]
        self._check_plain(criterion)
        options = {"mem_size": total, "batch_size_mem": min(train_mb_size, total)}
        super().__init__(
            train_mb_size=train_mb_size,
            criterion=criterion,
            host_options=options | (host_options or {}),
            **common,
        )


class _DERRow(_ReplayLoopRow):
    """DER++ (Buzzega et al., 2020): `alpha` weighs the squared error of logits; the cross-entropy
    of exemplars has their weight 0.5.
    """

    needs = (TASK_LABELS,)
    refused_options = ("batch_size_mem", "beta")  # of the host: they follow, or are fixed here

    def __init__(self, *, mem_size: int | None = None, alpha: Number = 0.1, **common: Any):
        super().__init__(mem_size=mem_size, host_options={"alpha": alpha, "beta": 0.5}, **common)


class ShippedDER(_DERRow, DER):
    """DER++ as shipped."""

    cannot_run = (
        "The logits kept with an exemplar have the width of their time: once the head has grown, "
        "their squared error raises "
        "`The size of tensor a … must match the size of tensor b …` (where the first step brings "
        "the largest class id, the head has its "
        "width at once, and the error is that to the -1000 of columns not trained then)."
    )


class FixedDER(_DERRow, RepairedDER):
    """DER++ that compares the logits known at the time only."""


class ShippedER_ACE(_ReplayLoopRow, ER_ACE):
    """ER-ACE (Caccia et al., 2022) as shipped: its loss is NaN once logits of a batch differ by
    about 104.
    """


class FixedER_ACE(_ReplayLoopRow, RepairedER_ACE):
    """ER-ACE with a cross-entropy that stays finite."""


class EmbeddingOf(Module):
    """`embed` of a model as a module: shares the model, and with it the parameters of the head."""

    def __init__(self, model: EmbeddingModel):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model.embed(x)


class _ICaRLRow(ComparisonRow):
    """iCaRL (Rebuffi et al., 2017): binary cross-entropy in training, nearest mean of exemplars in
    evaluation.

    The parts are `model.embed` and `model.head`, no copies: an optimizer over `model.parameters()`
    trains them. `strategy.model` is the host's own module around them; in eval mode it answers with
    negative distances. The memory holds ceil(mem_size / classes) of each class, which can be more
    than `mem_size`.
    """

    needs = (TASK_LABELS, BENCHMARK)

    def __init__(self, *, mem_size: int | None = None, **common: Any):
        peval_mode = common.pop("peval_mode", "epoch")  # which the host does not take
        lookup(dict.fromkeys(("epoch", "iteration")), peval_mode, "peval_mode")
        total = checked_budget(mem_size, None)["total"]
        options = {"memory_size": total, "buffer_transform": None, "fixed_memory": True}
        super().__init__(host_options=options, **common)
        next(p for p in self.plugins if isinstance(p, PeriodicEval)).peval_mode = peval_mode

    def _trained(self, model: Module, criterion: Criterion) -> Options:
        self._check_plain(criterion)
        if not isinstance(model, EmbeddingModel):
            own, given = type(self).__name__, type(model).__name__
            raise TypeError(
                f"{own} needs an EmbeddingModel (TSAViT, ViT, ResNet32, …), whose embed and "
                f"head it trains; got {given}."
            )
        return {"feature_extractor": EmbeddingOf(model), "classifier": model.head}


class ShippedICaRL(_ICaRLRow, ICaRL):
    """iCaRL as shipped: its teacher stays in train mode, and takes over a grown head by
    `load_state_dict`.

    `GrowingLinear` allows that. With Avalanche's `IncrementalClassifier` as `model.head` it raises
    `size mismatch` after the second step.
    """


class FixedICaRL(_ICaRLRow, RepairedICaRL):
    """iCaRL with a fresh teacher in eval mode after each step."""


class _BiCRow(ComparisonRow):
    """BiC (Wu et al., 2019). Beside `mem_size` exemplars it keeps val_percentage · mem_size images,
    never trained on, for the correction, `stage_2_epochs` with learning rate `lr`. Temperature 2;
    distillation has the share of the old classes as its weight.
    """

    needs = (TASK_LABELS, WRITABLE)

    def __init__(
        self,
        *,
        mem_size: int | None = None,
        val_percentage: Number = 0.1,
        stage_2_epochs: int = 200,
        lr: Number = 0.1,
        **common: Any,
    ):
        total = checked_budget(mem_size, None)["total"]
        if not (0 < val_percentage < 1 and int(val_percentage * total) >= 1):
            raise ValueError(
                f"val_percentage must be in (0, 1), and 1 image or more of mem_size={total}; "
                f"got {val_percentage!r}."
            )
        options = {
            "mem_size": total,
            "val_percentage": val_percentage,
            "T": 2,
            "stage_2_epochs": stage_2_epochs,
            "lamb": -1,
            "lr": lr,
        }
        super().__init__(host_options=options, **common)

    @property
    def predictor(self) -> Module:
        layer = next(plugin for plugin in self.plugins if isinstance(plugin, BiCPlugin)).bias_layer
        return self.model if layer is None else Sequential(self.model, layer)


class ShippedBiC(_BiCRow, BiC):
    """BiC as shipped."""

    cannot_run = (
        "Its correction after the second step gives torch's scheduler an argument that torch has "
        "removed: "
        "`MultiStepLR.__init__() got an unexpected keyword argument 'verbose'`."
    )


class FixedBiC(_BiCRow, RepairedBiC):
    """BiC that runs on current torch, distils over the classes and gives back the experience's
    data.
    """
