"""What heads with one output per class id share: they grow in training, and give -1000 for a class
never trained.
"""

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import torch
import torch.nn.functional as F
from avalanche.models import DynamicModule
from jaxtyping import Bool, Float, Int
from torch import Tensor

UNSEEN_LOGIT = -1000.0  # mask_value of Avalanche's IncrementalClassifier
PHASES = ("train", "tune")


def check_phase(owner: str, phase: str) -> None:
    if phase not in PHASES:
        raise ValueError(f"{owner}: phase must be one of {', '.join(PHASES)}, got {phase!r}.")


class ClassColumns(DynamicModule):
    """A head with a column per class id. It grows in training; in evaluation its outputs are padded
    with -1000, nothing more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._padded_width = 0

    def adaptation(self, experience: object) -> None:
        """Training mode: `grow` by the experience's classes. Eval mode: only remember how wide
        outputs must be, until training goes on.
        """
        class_ids = getattr(experience, "classes_in_this_experience", None)
        if class_ids is None:
            raise ValueError(
                f"{type(self).__name__}: {type(experience).__name__} has no "
                "classes_in_this_experience. "
                "Wrap the benchmark in avalanche.benchmarks.with_classes_timeline."
            )
        if self.training:
            self.grow(class_ids)
        else:
            self._padded_width = max(
                [self._padded_width, *(class_id + 1 for class_id in self._checked(class_ids))]
            )

    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Make room for the classes that arrive; what there is for classes seen keeps its bits."""
        raise NotImplementedError

    def _checked(self, class_ids: Iterable[SupportsIndex]) -> list[int]:
        """Class ids as sorted Python integers, each once."""
        checked = sorted({operator.index(class_id) for class_id in class_ids})
        if checked and checked[0] < 0:
            raise ValueError(
                f"{type(self).__name__}: a class id is a column and must be 0 or more, got "
                f"{checked[0]}."
            )
        return checked

    def train(self, mode: bool = True) -> "ClassColumns":
        """Also forgets the width remembered by an evaluation, unless that evaluation is still going
        on.
        """
        if mode or self.training:
            self._padded_width = 0
        super().train(mode)
        return self

    def padded(self, logits: Float[Tensor, "*b C"]) -> Float[Tensor, "*b padded"]:
        """-1000 in the columns up to the largest class id met in this evaluation."""
        missing = 0 if self.training else self._padded_width - logits.shape[-1]
        return F.pad(logits, (0, missing), value=UNSEEN_LOGIT) if missing > 0 else logits


class GrowingColumns(ClassColumns):
    """Spreads `K` outputs over the `C` columns of their class ids, C = largest trained class id +
    1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 0  # C
        self._known: set[int] = set()  # the same as `class_ids`, without asking the device

    def class_ids(self) -> Int[Tensor, "K"]:
        """The class id of each output, in the order of the outputs."""
        raise NotImplementedError

    @property
    def seen(self) -> Bool[Tensor, "C"]:
        """The columns whose classes were trained."""
        class_ids = self.class_ids()
        return torch.zeros(self.out_features, dtype=torch.bool, device=class_ids.device).index_fill(
            0, class_ids, True
        )

    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Add outputs for the classes that arrive; one step brings them all. Outputs of classes
        seen keep their bits.
        """
        arriving = [
            class_id for class_id in self._checked(class_ids) if class_id not in self._known
        ]
        if arriving:
            self._add(arriving)
            self._know([*self._known, *arriving])

    def _add(self, class_ids: list[int]) -> None:
        raise NotImplementedError

    def _know(self, class_ids: list[int]) -> None:
        """These, and only these, have outputs."""
        self._known = set(class_ids)
        self.out_features = max(class_ids, default=-1) + 1

    def spread(self, outputs: Float[Tensor, "b K"]) -> Float[Tensor, "b C"]:
        """Each output in the column of its class, exactly -1000 in the others, without gradient."""
        return self.padded(
            outputs.new_full((len(outputs), self.out_features), UNSEEN_LOGIT).index_copy(
                1, self.class_ids(), outputs
            )
        )
