"""What PODNet and AFC share: cosine head with proxies, NCA, imprinting of new proxies, frozen old
ones, balanced tuning.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.nn.utils import clip_grad_value_
from torch.optim import SGD, Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc._types import State
from avalanche_hfc.losses import nca, nca_gradient, step_factor
from avalanche_hfc.models import CosineHead, Features, proxy_centres
from avalanche_hfc.plugins.features import features_of
from avalanche_hfc.strategies._base.checks import check_flags, checked_lr
from avalanche_hfc.strategies._base.heads import check_model, put_head
from avalanche_hfc.strategies._base.method import GRADIENTS
from avalanche_hfc.strategies._base.phases import trained_only
from avalanche_hfc.strategies._base.replay import NMEMethod
from avalanche_hfc.strategies._base.scale import ScaleRule
from avalanche_hfc.strategies._base.tuning import BalancedTuning

TUNE_MODES = {
    "eval": "with the backbone in eval mode",
    "train": "as released: its batch norm moves",
}
FORMS = {"code": "as released: no margin, no hinge", "paper": "as printed: margin 0.6, hinge"}
LARGEST_GRADIENT = 5.0
NUM_PROXIES = 10  # of each class: published, PODNet and AFC
NME_SHARPNESS = 9.0  # features and proxies scaled by 3


class ProxyMethod(BalancedTuning, NMEMethod):
    """Base class of methods with PODNet's classifier; the head of the model becomes a `CosineHead`.

    From the second step on, new proxies start at k-means centres of the features of their class.
    Old proxies are frozen while backbone, new proxies and scale are trained; balanced tuning then
    trains all proxies with the backbone frozen. Every gradient entry is clipped to ±5
    in both phases.

    The scale η of the head starts at 1. A torch.optim.SGD trains it like any other parameter. Other
    optimizers, such as AdamW, move a single number by at most their learning rate in an update, so
    η would stay near 1: with them it has the rule of the authors, SGD with momentum 0.9. With
    ``inference="nme"`` η stays 1 and the similarities are multiplied by 9.

    Args:
        model: The model to train, with the methods listed in `needs`.
        optimizer: An optimizer over the parameters of the model.
        nca: Form of the NCA loss: ``"code"`` as released, without margin and hinge, or ``"paper"``
            as printed.
        tune_epochs: Number of epochs of balanced tuning, from the second step on.
        tune_lr: Learning rate of balanced tuning. By default half of the head's.
        tune_mode: Mode of the backbone during balanced tuning: ``"eval"``, or ``"train"`` as in the
            released code, where batch norm follows the exemplars although no weight is trained.
        herd_again: Choose the exemplars of the new classes again after balanced tuning, as in the
            released code.
        scale_lr: Learning rate of η with an optimizer other than SGD; it follows the schedule of
            the head's rate.
        inference: ``"head"``: the largest logit. ``"nme"``: the nearest mean of exemplars.
        **kwargs: Arguments of `NMEMethod`. `gradient` may also be ``"nca"``, the derivative of the
            NCA; ``"host"`` is 1 - p, which equals it on correctly classified samples.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = (
        "nca",
        "tune_epochs",
        "tune_lr",
        "tune_mode",
        "herd_again",
        "scale_lr",
    )
    gradients = GRADIENTS | {"nca": "the derivative of the NCA itself"}
    tune_fraction = 0.5
    tune_limit = LARGEST_GRADIENT
    needs: ClassVar[tuple[str, ...]] = ("embed", "classify", "features")
    keeps_features = True

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        nca: str = "code",
        tune_epochs: int = 20,
        tune_lr: float | int | None = None,
        tune_mode: str = "eval",
        herd_again: bool = False,
        scale_lr: float | int = 0.1,
        inference: str = "head",
        **kwargs: Any,
    ):
        owner = type(self).__name__
        check_model(owner, model, *self.needs)
        lookup(FORMS, nca, "nca")
        lookup(TUNE_MODES, tune_mode, "tune_mode")
        check_flags(owner, herd_again=herd_again)
        self.tune_mode, self.herd_again = tune_mode, herd_again
        self.nca: Any = nca
        self.set_tuning(model, optimizer, tune_epochs, tune_lr)
        self.scale_lr = checked_lr(owner, "scale_lr", scale_lr)
        self.mb_features: Features | None = None
        nearest = inference == "nme"
        head = put_head(
            owner,
            model,
            optimizer,
            CosineHead,
            lambda linear: CosineHead(
                linear.in_features,
                num_proxies=NUM_PROXIES,
                sharpness=NME_SHARPNESS if nearest else 1.0,
                learn_scale=not nearest,
            ),
        )
        self.scale_rule = (
            None if isinstance(optimizer, SGD) or not head.learn_scale else ScaleRule(head.scale)
        )
        super().__init__(model=model, optimizer=optimizer, inference=inference, **kwargs)

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        scale = self.model.head.scale
        if self.share is not None:
            scale = self.share.once(scale)
        return nca(logits, targets, steps, form=self.nca, scale=scale)

    def own_gradient(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        form: Any = self.nca if self.gradient == "nca" else "softmax"
        return nca_gradient(logits, targets, steps, form=form, scale=self.model.head.scale)

    def step_factor(self, steps: Int[Tensor, "C"]) -> Float[Tensor, ""]:
        """The factor s = √(K/K_t) of the distillation terms.

        Args:
            steps: For each class the step that introduced it, -1 if not seen yet, shape ``(C,)``.

        Returns:
            s, a scalar.
        """
        return step_factor(steps, self.model.head.scale.dtype)

    # Forward: maps where they are distilled

    def model_logits(self) -> Tensor:
        if self.is_eval or not self.num_old:
            return super().model_logits()
        self.mb_features = self.model.features(self.mb_x)
        return self.model.classify(self.mb_features.embedding)

    def teacher_logits(self) -> Float[Tensor, "b K"]:
        return self.teacher_features()[1]

    def _after_training_iteration(self, **kwargs: object) -> None:
        super()._after_training_iteration(**kwargs)
        self.mb_features = None

    def _before_update(self, **kwargs: object) -> None:
        clip_grad_value_(self.model.parameters(), LARGEST_GRADIENT)
        super()._before_update(**kwargs)

    # The scale

    def optimizer_step(self) -> None:
        if self.scale_rule is not None:
            self.scale_rule.step(
                self.scale_lr * self.first_groups.course(self.optimizer, self.scale_rule.scale)
            )
        super().optimizer_step()

    def clear_moments(self) -> None:
        super().clear_moments()
        if self.scale_rule is not None:
            self.scale_rule.clear()

    def make_optimizer(self, reset_optimizer_state: bool = False, **kwargs: Any) -> None:
        """Reset the optimizer of the scale together with that of the model."""
        super().make_optimizer(reset_optimizer_state=reset_optimizer_state, **kwargs)
        if reset_optimizer_state and self.scale_rule is not None:
            self.scale_rule.clear()

    def method_state(self) -> State:
        return super().method_state() | (
            {} if self.scale_rule is None else {"scale": self.scale_rule.state_dict()}
        )

    def load_method_state(self, state: State) -> None:
        super().load_method_state(state)
        if self.scale_rule is not None and "scale" in state:  # version 0.1 had no such rule
            self.scale_rule.load_state_dict(state["scale"])

    # A step

    def begin_step(self, **kwargs: Any) -> None:
        if self.num_old:
            data, head = self.experience.dataset, self.model.head
            workers = kwargs.get("num_workers", 0)
            features = features_of(
                self.model,
                data,
                batch_size=self.eval_mb_size,
                device=self.device,
                num_workers=workers,
            )
            seed = int(torch.randint(2**62, ()))
            generator = torch.Generator().manual_seed(seed)
            labels = torch.as_tensor(list(data.targets))
            head.imprint(
                proxy_centres(features, labels, num_proxies=head.num_proxies, generator=generator)
            )
        super().begin_step(**kwargs)

    @contextmanager
    def tuning(self) -> Iterator[None]:
        """Train the proxies only."""
        with trained_only(self.model, eval_mode=self.tune_mode == "eval"):
            self.model.head.train()
            self.model.head.set_phase("tune")
            yield

    def end_step(self, **kwargs: Any) -> None:
        if self.num_old and self.herd_again:
            self.memory.choose_again(self, kwargs.get("num_workers", 0))
        elif self.tune_mode == "train":
            self.memory.forget_features()
        super().end_step(**kwargs)
