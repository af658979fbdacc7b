"""How each entry of `STRATEGIES` is built small, and what it cannot promise: `skip = {check:
reason}`, a check being a test's name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, NamedTuple

import pytest
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR

from avalanche_hfc.models import DyToxModel, ResNet32, ViT, ViTEncoder
from avalanche_hfc.strategies import STRATEGIES


def small(depth: int) -> dict[str, Any]:
    return dict(
        image_size=8,
        patch_size=4,
        backbone_options=dict(embed_dim=16, num_heads=2, depth=depth, in_chans=1),
    )


def small_vit() -> nn.Module:
    return ViT("vit_tiny_patch16_224", **small(1))


def wide_vit() -> nn.Module:
    """Random features that are never trained: some more of them tell digits apart."""
    return ViT(
        "vit_tiny_patch16_224",
        image_size=8,
        patch_size=4,
        backbone_options=dict(embed_dim=64, num_heads=2, depth=1, in_chans=1),
    )


def vit_with_maps() -> nn.Module:
    """Two blocks: the class token takes nothing from the patches after the last one, so maps before
    it are needed.
    """
    return ViT("vit_tiny_patch16_224", **small(2))


def small_dytox() -> nn.Module:
    return DyToxModel(ViTEncoder("vit_tiny_patch16_224", msa_blocks=1, **small(1)))


def small_cnn() -> nn.Module:
    model = ResNet32(last_relu=False, in_channels=1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.5  # a dozen batches are all it sees
    return model


@dataclass(frozen=True)
class Entry:
    """`mem_size` None: the entry keeps no memory. `lr_factor(step)`: what the method itself does to
    the learning rate.
    """

    model: Callable[[], nn.Module] = small_vit
    mem_size: int | None = 12
    takes_losses: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    num_epochs: int = 2  # of the main phase of a step
    num_phase_epochs: tuple[int, int] = (
        0,
        0,
    )  # of later phases: in the first step, in each later one
    lr_factor: Callable[[int], float] = lambda step: 1.0
    full_batch: dict[str, Any] = field(
        default_factory=dict
    )  # what it needs, beside a large train_mb_size, to see all images in a batch
    only: tuple[str, list[str]] | None = None  # (reason, checks): nothing but these
    skip: dict[str, str] = field(default_factory=dict)
    skip_host: dict[str, str] = field(default_factory=dict)  # with losses="host" only


MEMORY = (
    "test_the_memory_is_within_its_budget_at_every_moment_and_holds_exemplars_of_the_right_class"
)
AS_SHIPPED = (
    "cannot run as shipped: `cannot_run` says why",
    ["test_every_step_can_be_trained_or_the_class_says_why_not"],
)
AT_ONCE = (
    "is trained once, on the whole stream",
    [
        "test_every_step_can_be_trained_or_the_class_says_why_not",
        "test_the_first_step_is_learned",
        "test_steps_of_unequal_size_are_learned",
        "test_batches_without_old_or_without_new_samples_are_survived",
        "test_a_class_with_one_image_is_survived_and_its_image_kept",
    ],
)
NO_TEACHER = {"test_the_teacher_is_frozen_during_a_later_step": "its own losses ask no teacher"}
NO_MEMORY = {MEMORY: "keeps no memory"}

ONE_PASS = {
    "test_the_learning_rate_follows_the_schedule_in_every_step": "nothing is trained by gradients"
}


def one_pass(**options: Any) -> Entry:
    """A method that sees each image once, in two batches a step."""
    return Entry(
        model=wide_vit,
        mem_size=None,
        takes_losses=False,
        options={"train_mb_size": 6, **options},
        num_epochs=1,
        skip=NO_MEMORY | NO_TEACHER | ONE_PASS,
    )


OURS = {
    "hfc": Entry(takes_losses=False),
    "finetune": Entry(mem_size=None, skip=NO_MEMORY, skip_host=NO_TEACHER),
    "herding-replay": Entry(skip_host=NO_TEACHER),
    "joint": Entry(mem_size=None, takes_losses=False, skip=NO_MEMORY | NO_TEACHER),
    "baseline": Entry(),
    "icarl": Entry(),
    "bic": Entry(options={"bias_rounds": 5}),
    "podnet": Entry(model=vit_with_maps, options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
    "podnet-cscct": Entry(model=vit_with_maps, options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
    "ssil": Entry(lr_factor=lambda step: 1 / (step + 1), full_batch={"replay_mb_size": 12}),
    "foster": Entry(options={"compress_epochs": 2}, num_phase_epochs=(0, 2)),
    "afc": Entry(model=vit_with_maps, options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
    "dytox": Entry(
        model=small_dytox,
        options={"tune_epochs": 2},
        num_phase_epochs=(0, 2),
        full_batch={"repeats": 1},
    ),
    "ncm": one_pass(),
    "ranpac": one_pass(num_features=40),
    "frozen-replay": Entry(model=wide_vit, skip_host=NO_TEACHER),
    "wa": Entry(),
}
ALL_ROWS = {
    "test_a_run_goes_on_bit_for_bit_from_every_stop": "Avalanche's strategies give no state",
    "test_a_first_step_with_one_class_is_refused": "Avalanche trains on one class without a word",
    "test_the_teacher_is_frozen_during_a_later_step": "a teacher of its own, if any; `compat` and its tests say which of them "
    "drift",
    "test_evaluating_in_between_also_of_future_classes_changes_nothing": "Avalanche's evaluation draws from the generator of the training "
    "and overwrites batch and loss",
}
BY_PLACE = {
    "test_relabelled_classes_give_permuted_logits": "it draws exemplars by their place in the data, which follows the class "
    "ids"
}
FP32_PARTS = {
    "test_relabelled_classes_give_permuted_logits": "parts of it are fp32 whatever the model is",
    "test_bf16_autocast_ends_finite_with_fp32_weights": "it writes bf16 values into fp32 tensors, or the other way: torch "
    "raises",
}
ICARL = (
    ALL_ROWS
    | FP32_PARTS
    | {
        "test_the_first_step_is_learned": "means of classes never seen are preset to zero, and win",
        "test_a_class_of_a_later_step_is_no_label_and_no_prediction_before": "means of classes never seen are preset to zero, and "
        "win",
        MEMORY: "keeps ceil(mem_size / classes) of each class, which may be more",
    }
)
NEEDS_IDS_IN_A_ROW = {
    "test_later_steps_with_a_single_class_are_survived_and_only_ssil_warns_once": "needs class ids "
    "0…n-1"
}
TAKES_VERBOSE = {  # torch before it removed what Avalanche's BiC gives its scheduler
    check: "this torch still takes the argument that stops it on newer ones"
    for check in AS_SHIPPED[1]
    if "verbose" in signature(MultiStepLR).parameters
}
ROW_BIC = {"stage_2_epochs": 3, "val_percentage": 0.2}
ROWS = {
    "avalanche-naive": Entry(mem_size=None, skip=ALL_ROWS | NO_MEMORY),
    "avalanche-cumulative": Entry(mem_size=None, skip=ALL_ROWS | NO_MEMORY),
    "avalanche-lwf": Entry(mem_size=None, skip=ALL_ROWS | NO_MEMORY),
    "avalanche-lwf-fixed": Entry(mem_size=None, skip=ALL_ROWS | NO_MEMORY),
    "avalanche-ewc": Entry(mem_size=None, skip=ALL_ROWS | NO_MEMORY),
    "avalanche-replay": Entry(skip=ALL_ROWS | BY_PLACE),
    "avalanche-der": Entry(only=AS_SHIPPED),
    "avalanche-der-fixed": Entry(skip=ALL_ROWS),
    "avalanche-er_ace": Entry(skip=ALL_ROWS | BY_PLACE),
    "avalanche-er_ace-fixed": Entry(skip=ALL_ROWS | BY_PLACE),
    "avalanche-icarl": Entry(skip=ICARL | NEEDS_IDS_IN_A_ROW),
    "avalanche-icarl-fixed": Entry(skip=ICARL),
    "avalanche-bic": Entry(options=ROW_BIC, only=AS_SHIPPED, skip=TAKES_VERBOSE),
    "avalanche-bic-fixed": Entry(options=ROW_BIC, skip=ALL_ROWS | FP32_PARTS),
    "avalanche-joint": Entry(mem_size=None, only=AT_ONCE),
}
ENTRIES = OURS | ROWS
QUICK = ("hfc", "icarl")  # the two that the quick tier holds to their contracts
# of the others, those with HFC's losses and Avalanche's own belong to the slow tier


class Case(NamedTuple):
    """One entry with one choice of losses; None where it has no such choice."""

    name: str
    losses: str | None

    @property
    def entry(self) -> Entry:
        return ENTRIES.get(self.name, Entry())

    @property
    def ours(self) -> bool:
        return not self.name.startswith("avalanche-")

    def reason(self, check: str) -> str | None:
        """Why this case cannot promise what the check asks; None where it must."""
        if self.entry.only is not None and check not in self.entry.only[1]:
            return self.entry.only[0]
        return self.entry.skip.get(check) or (
            self.entry.skip_host.get(check) if self.losses in (None, "host") else None
        )

    def __str__(self) -> str:
        return self.name if self.losses is None else f"{self.name} {self.losses}"


def choices(name: str) -> tuple[str | None, ...]:
    takes = (
        not name.startswith("avalanche-")
        and ENTRIES.get(name, Entry(takes_losses=name != "hfc")).takes_losses
    )
    return ("host", "hfc") if takes else (None,)


CASES = [Case(name, losses) for name in STRATEGIES for losses in choices(name)]


def every(check: Callable) -> Callable:
    """The check over all cases; those whose entry cannot promise it are skipped with the entry's
    reason.
    """
    name = check.__name__

    def parameter(case: Case) -> Any:
        reason = case.reason(name)
        marks = [pytest.mark.skip(reason=f"{case.name}: {reason}")] if reason else []
        if case.name in QUICK:
            marks.append(pytest.mark.quick)
        elif case.losses == "hfc" or not case.ours:
            marks.append(pytest.mark.slow)
        return pytest.param(case, id=str(case), marks=marks)

    CHECKS.append(name)
    return pytest.mark.parametrize("case", [parameter(case) for case in CASES])(check)


CHECKS: list[str] = []
