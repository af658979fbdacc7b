"""BiC (Wu et al., CVPR 2019): distillation balanced by the share of old classes, then two numbers
against the bias to new classes.
"""

import warnings
from typing import Any, ClassVar

import torch
from avalanche.benchmarks.utils import concat_datasets
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from avalanche_hfc._types import HostDataset, Options
from avalanche_hfc.losses import corrected_objective, knowledge_distillation
from avalanche_hfc.losses._common import full_precision
from avalanche_hfc.models import BiasLayer, CorrectedHead
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.hold_out import HoldOutReplayPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.checks import checked_count
from avalanche_hfc.strategies._base.heads import check_model, put_head
from avalanche_hfc.strategies._base.replay import BalancedReplay

FALLS = (0.3, 0.6, 0.8, 0.9)  # of the rounds, each to a tenth: 60, 120, 160, 180 of 200


class BiC(BalancedReplay):
    """BiC: replay with distillation, then a bias correction fitted on held-out images.

    L = ρ mean KD_2(z̃°, z; O) + (1-ρ) mean CE(z, y; S), where z̃° are the corrected logits of the
    previous step and ρ is the fraction of old classes. Then (α, β) minimise mean CE(ẑ, y; S) + 0.1
    β²/2 on held-out images with all weights frozen, where ẑ = α z + β in the new columns.
    Predictions use ẑ. A tenth of the memory is held out. Herding uses features that are not scaled.
    The head of the model becomes a `CorrectedHead`, whose new rows start with U(±√(3/D)) and bias
    0, as in ports of BiC.

    Args:
        model: The model to train, with `embed` and `classify`.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        bias_rounds: Number of rounds of gradient descent for (α, β); logits are computed once.
        bias_lr: Learning rate of these rounds.
        **kwargs: Arguments of `HerdingReplay` (memory and losses) and of Avalanche's
            SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    settings: ClassVar[tuple[str, ...]] = ("bias_rounds", "bias_lr")
    memory: HoldOutReplayPlugin
    head_start = "uniform"
    rule = "raw"

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        bias_rounds: int = 200,
        bias_lr: float | int = 0.1,
        **kwargs: Any,
    ):
        check_model("BiC", model, "embed", "classify")
        checked_count("BiC", "bias_rounds", bias_rounds)
        if not bias_lr > 0:
            raise ValueError(f"BiC: bias_lr must be above 0, got {bias_lr!r}.")
        self.bias_rounds = bias_rounds
        self.bias_lr = bias_lr
        put_head("BiC", model, optimizer, CorrectedHead, CorrectedHead)
        super().__init__(model=model, optimizer=optimizer, **kwargs)

    def make_memory(self, **budget: Any) -> HerdingReplayPlugin:
        return HoldOutReplayPlugin(**budget)

    def distillation(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> dict[str, Tensor]:
        return {"distillation": knowledge_distillation(logits, self.teacher_logits(), steps)}

    def end_step(self, **kwargs: object) -> None:
        if self.num_old:
            old, new = self.memory.held_out_data(self)
            if old and new:
                logits, targets = self.held_out_logits(concat_datasets([*old, *new]), kwargs)
                fit_bias(
                    self.model.head.bias,
                    logits,
                    targets,
                    StepTable.of(self).on(logits),
                    rounds=self.bias_rounds,
                    lr=self.bias_lr,
                )
            else:
                warnings.warn(
                    "BiC: the memory is too small to hold out images of old and new classes. "
                    "The bias is not corrected in this step.",
                    stacklevel=2,
                )
        super().end_step(**kwargs)

    @torch.no_grad()
    def held_out_logits(self, data: HostDataset, asked: Options) -> tuple[Tensor, Tensor]:
        """Compute the uncorrected logits of held-out images, in eval mode, in one pass.

        Args:
            data: The held-out images, loaded under the eval transform.
            asked: The arguments of `train`, such as `num_workers`.

        Returns:
            Logits, shape ``(n, C)``, and class ids, shape ``(n,)``.
        """
        generator = torch.Generator()  # a loader draws a seed: not from the stream of the training
        loader = self.loader_of(data.eval(), self.eval_mb_size, asked, generator=generator)
        head = self.model.head
        with evaluation_mode(self.model):
            pairs = [
                (
                    head.linear(self.model.embed(x.to(self.device, non_blocking=True))),
                    targets.to(self.device, non_blocking=True),
                )
                for x, targets, *_ in loader
            ]
        logits, targets = (torch.cat(column) for column in zip(*pairs, strict=True))
        return full_precision(logits), targets


def fit_bias(
    layer: BiasLayer,
    logits: Float[Tensor, "n C"],
    targets: Int[Tensor, "n"],
    steps: Int[Tensor, "C"],
    *,
    rounds: int,
    lr: float,
) -> None:
    """min over (α, β) of mean CE(ẑ, y; S) + 0.1 β²/2: SGD with momentum 0.9 over all samples at
    once, the rate falls four times.
    """
    layer.requires_grad_()
    optimizer = torch.optim.SGD([layer.alpha, layer.beta], lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, [round(fall * rounds) for fall in FALLS], gamma=0.1
    )
    for _ in range(rounds):
        optimizer.zero_grad()
        corrected_objective(layer(logits), targets, steps, layer.beta).backward()
        optimizer.step()
        schedule.step()
    layer.requires_grad_(False)
