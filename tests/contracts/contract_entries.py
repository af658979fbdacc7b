"""How each entry of `STRATEGIES` is built small, and what it cannot promise: `skip = {check: reason}`, a check being a test's name."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from torch import nn

from avalanche_hfc.models import DyToxModel, ResNet32, ViT, ViTEncoder
from avalanche_hfc.strategies import STRATEGIES

SMALL = dict(image_size=8, patch_size=4, backbone_options=dict(embed_dim=16, num_heads=2, depth=1, in_chans=1))


def small_vit() -> nn.Module:
    return ViT("vit_tiny_patch16_224", **SMALL)


def small_dytox() -> nn.Module:
    return DyToxModel(ViTEncoder("vit_tiny_patch16_224", msa_blocks=1, **SMALL))


def small_cnn() -> nn.Module:
    return ResNet32(last_relu=False, in_channels=1)


@dataclass(frozen=True)
class Entry:
    """`mem_size` None: the entry keeps no memory. `lr_factor(step)`: what the method itself does to the learning rate."""

    model: Callable[[], nn.Module] = small_vit
    mem_size: int | None = 12
    takes_losses: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    num_phase_epochs: tuple[int, int] = (0, 0)  # of later phases: in the first step, in each later one
    lr_factor: Callable[[int], float] = lambda step: 1.0
    full_batch: dict[str, Any] = field(default_factory=dict)  # what it needs, beside a large train_mb_size, to see all images in a batch
    skip: dict[str, str] = field(default_factory=dict)
    skip_host: dict[str, str] = field(default_factory=dict)  # with losses="host" only


NO_TEACHER = {"test_the_teacher_is_frozen_during_a_later_step": "its own losses ask no teacher"}
NO_MEMORY = {"test_the_memory_is_within_its_budget_at_every_moment_and_holds_exemplars_of_the_right_class": "keeps no memory"}

OURS = {
    "hfc": Entry(takes_losses=False),
    "finetune": Entry(mem_size=None, skip=NO_MEMORY, skip_host=NO_TEACHER),
    "herding-replay": Entry(skip_host=NO_TEACHER),
    "joint": Entry(mem_size=None, takes_losses=False, skip=NO_MEMORY | NO_TEACHER),
    "baseline": Entry(),
    "icarl": Entry(),
    "bic": Entry(),
    "podnet": Entry(options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
    "podnet-cscct": Entry(options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
    "ssil": Entry(lr_factor=lambda step: 1 / (step + 1), full_batch={"replay_mb_size": 12}),
    "foster": Entry(options={"compress_epochs": 2}, num_phase_epochs=(0, 2)),
    "afc": Entry(options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
    "dytox": Entry(model=small_dytox, options={"tune_epochs": 2}, num_phase_epochs=(0, 2)),
}
ENTRIES = OURS


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
        return self.entry.skip.get(check) or (self.entry.skip_host.get(check) if self.losses in (None, "host") else None)

    def __str__(self) -> str:
        return self.name if self.losses is None else f"{self.name} {self.losses}"


def choices(name: str) -> tuple[str | None, ...]:
    takes = not name.startswith("avalanche-") and ENTRIES.get(name, Entry(takes_losses=name != "hfc")).takes_losses
    return ("host", "hfc") if takes else (None,)


CASES = [Case(name, losses) for name in STRATEGIES for losses in choices(name)]


def every(check: Callable) -> Callable:
    """The check over all cases; those whose entry cannot promise it are skipped with the entry's reason."""
    name = check.__name__

    def parameter(case: Case) -> Any:
        reason = case.reason(name)
        return pytest.param(case, id=str(case), marks=[pytest.mark.skip(reason=f"{case.name}: {reason}")] if reason else [])

    CHECKS.append(name)
    return pytest.mark.parametrize("case", [parameter(case) for case in CASES])(check)


CHECKS: list[str] = []
