"""FOSTER (Wang et al., ECCV 2022): a second extractor boosts the first, then both are compressed
into one.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc._types import State
from avalanche_hfc.losses import (
    class_weights,
    compression,
    cross_entropy,
    divided_cross_entropy,
    divided_gradient,
    knowledge_distillation,
)
from avalanche_hfc.models import BoostedHead, BoostedNetwork
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies._base.checks import checked_count, checked_fractions
from avalanche_hfc.strategies._base.groups import FirstGroups
from avalanche_hfc.strategies._base.heads import check_model, put_head
from avalanche_hfc.strategies._base.phases import Phase, Phased
from avalanche_hfc.strategies._base.replay import ReplayMethod

NETWORKS = {
    "compressed": "the one extractor that is trained on",
    "boosted": "as released: both extractors",
}


class FOSTER(Phased, ReplayMethod):
    """FOSTER: boosting with a second extractor, then compression into one network.

    Boosting minimises L = mean CE(z/w, y; S) + mean CE(z^a, y; S) + mean KD_2(z°, z; O) with z =
    W[φ°(x); φ(x)] + c and z^a = W^a φ(x) + c^a. φ° is the frozen model of the previous step, φ
    starts as its copy, and w are weights from class counts. Then one network, started from φ°,
    learns the weighted softmax of z on the same data, without weight decay and with rates that fall
    along a cosine. That network is φ° of the next step. The head of the model becomes a
    `BoostedHead`.

    Args:
        model: The model to train, with `embed` and `classify`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        beta: β of the class weights w in boosting: a number, or a sequence with one for each step
            from the second on; the last one also holds for all later steps.
        compress_beta: β of the class weights in compression, given in the same way.
        compress_epochs: Number of epochs of compression. By default `train_epochs`.
        network: Which network chooses the exemplars and predicts after a step: ``"compressed"``, or
            ``"boosted"``, the one of both extractors, as in the released code.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = (
        "beta",
        "compress_beta",
        "compress_epochs",
        "network",
    )
    distils = True
    trains_student = True

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        beta: float | int | Sequence[float | int] = 0.96,
        compress_beta: float | int | Sequence[float | int] = 0.97,
        compress_epochs: int | None = None,
        network: str = "compressed",
        **kwargs: Any,
    ):
        check_model("FOSTER", model, "embed", "classify")
        lookup(NETWORKS, network, "network")
        self.beta = checked_fractions("FOSTER", "beta", beta)
        self.compress_beta = checked_fractions("FOSTER", "compress_beta", compress_beta)
        put_head(
            "FOSTER", model, optimizer, BoostedHead, lambda linear: BoostedHead(linear.in_features)
        )
        super().__init__(model=model, optimizer=optimizer, **kwargs)
        compress_epochs = self.train_epochs if compress_epochs is None else compress_epochs
        self.compress_epochs = checked_count("FOSTER", "compress_epochs", compress_epochs)
        self.first_groups = FirstGroups(optimizer)
        self.network = network
        self.student: Any = None
        self._boosted: BoostedNetwork | None = None  # after a step, if it predicts
        self._auxiliary: Tensor | None = None
        self._old: Tensor | None = None  # φ° of the batch
        self._weights: dict[float, Tensor] = {}

    # Boosting

    def begin_step(self, **kwargs: object) -> None:
        self._weights, self._boosted = {}, None
        if self.num_old:
            self.model.head.begin_boosting(self._teacher().head)
            for parameter in self.model.head.parameters():  # drawn anew
                self.optimizer.state.pop(parameter, None)
        super().begin_step(**kwargs)

    def _of_step(self, values: float | tuple[float, ...]) -> float:
        """The value of the step being trained; of steps behind the last value, the last."""
        return (
            values[min(StepTable.of(self).current, len(values)) - 1]
            if isinstance(values, tuple)
            else values
        )

    def _teacher(self) -> Any:
        return FrozenTeacher.of(self).model

    def model_logits(self) -> Tensor:
        if self.is_eval and self._boosted is not None:
            return self._boosted(self.mb_x)
        if self.is_eval or not self.num_old:
            return super().model_logits()
        new = self.embed_batch()
        self._auxiliary = self.model.head.single(new)
        return self.model.head.boost(self._old, new)

    def _before_forward(self, **kwargs: object) -> None:
        super()._before_forward(**kwargs)
        self._old = self._teacher_outputs()[0] if self.num_old else None

    def _after_training_iteration(self, **kwargs: object) -> None:
        super()._after_training_iteration(**kwargs)
        self._old = None

    def _teacher_outputs(self) -> tuple[Tensor, Tensor]:
        """(φ°(x), z°) from one forward: φ° of the images of this rank, z° of the whole batch."""

        def forward(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            prefix = self.mb_prefix
            old = model.embed(x) if prefix is None else model.embed(x, prefix)
            return old, self.gathered(model.classify(old))

        return FrozenTeacher.of(self).output(self.mb_x, forward)

    def teacher_logits(self) -> Float[Tensor, "b K"]:
        return self._teacher_outputs()[1]

    def class_weights(
        self, steps: Int[Tensor, "C"], values: float | tuple[float, ...]
    ) -> Float[Tensor, "C"]:
        """The weights w of the current step, from the number of training images of each class.

        Args:
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.
            values: β, as a number or one for each step from the second on.

        Returns:
            One weight per class, shape ``(C,)``.
        """
        beta = self._of_step(values)
        if beta not in self._weights:
            counts = torch.bincount(
                torch.as_tensor(list(self.adapted_dataset.targets)), minlength=len(steps)
            )
            counts = counts.to(steps.device, self.model.head.single.weight.dtype)
            self._weights[beta] = class_weights(counts, steps, beta=beta)
        return self._weights[beta]

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        if not self.num_old:
            return cross_entropy(logits, targets, steps)
        return divided_cross_entropy(logits, targets, steps, self.class_weights(steps, self.beta))

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        return divided_gradient(logits, targets, steps, self.class_weights(steps, self.beta))

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": knowledge_distillation(logits, self.teacher_logits(), steps)}

    def further_terms(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        assert self._auxiliary is not None
        auxiliary, self._auxiliary = self.gathered(self._auxiliary), None
        return {"auxiliary": cross_entropy(auxiliary, targets, steps).mean()}

    # Compression

    def phases(self) -> Sequence[Phase]:
        if not self.num_old:
            return ()
        return (
            Phase(
                "compress",
                num_epochs=self.compress_epochs,
                first_groups=self.first_groups,
                lr=lambda rate: rate,
                module=lambda: self.student,
                data=lambda: self.adapted_dataset,
                loss=self.compression_loss,
                entered=self.compressing,
                finish=self.take_student,
                schedule="cosine",
                overrides={"weight_decay": 0.0},
            ),
        )

    @contextmanager
    def compressing(self) -> Iterator[None]:
        """Create the student for the phase, with the boosted network in eval mode.

        The student starts as the model of the previous step, with new rows for the new classes.
        """
        student = copy.deepcopy(self._teacher()).train()
        flags = {name: parameter.requires_grad for name, parameter in self.model.named_parameters()}
        self.model_adaptation(student)
        for name, parameter in student.named_parameters():
            parameter.requires_grad_(flags[name])
        self.student = student
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()

    def compression_loss(self, x: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The distillation of the boosted network into the student on a batch.

        Args:
            x: Images, shape ``(b, c, h, w)``.
            targets: Not used: compression does not depend on labels.

        Returns:
            A scalar for each term, by its name.
        """
        with torch.no_grad():
            boosted = self.gathered(
                self.model.head.boost(self._teacher().embed(x), self.model.embed(x))
            )
        logits = self.gathered(self.student(x))
        steps = StepTable.of(self).on(logits)
        return {
            "compression": compression(
                logits, boosted, steps, self.class_weights(steps, self.compress_beta)
            )
        }

    def take_student(self) -> None:
        """Copy the weights of the student into the model.

        If the boosted network chooses the exemplars and predicts, it does the one before, and is
        kept for the other.
        """
        if self.network == "boosted":
            boosted = self._keep_boosted(self._teacher(), copy.deepcopy(self.model))
            self.memory.update(self, model=boosted)
        self.model.load_state_dict(self.student.state_dict())
        self.student = None

    # The boosted network after a step

    def _keep_boosted(self, old: Module, new: Module) -> BoostedNetwork:
        network = self._boosted = BoostedNetwork(old, new).eval().requires_grad_(False)
        return network

    @property
    def predictor(self) -> Module:
        return self.model if self._boosted is None else self._boosted

    def method_state(self) -> State:
        kept = {} if self._boosted is None else {"boosted": dict(self._boosted.state_dict())}
        return super().method_state() | kept

    def load_method_state(self, state: State) -> None:
        super().load_method_state(state)
        self._boosted = None
        if "boosted" in state:
            boosted = self._keep_boosted(copy.deepcopy(self.model), copy.deepcopy(self.model))
            boosted.load_state_dict(state["boosted"])
