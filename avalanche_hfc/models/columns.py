"""Heads with one output per class id, which grow in training and give -1000 for other classes."""

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import torch
import torch.nn.functional as F
from avalanche.models import DynamicModule
from jaxtyping import Bool, Float, Int
from torch import Tensor

UNSEEN_LOGIT = -1000.0
"""The logit of a class that has not been trained: `mask_value` of Avalanche's
IncrementalClassifier.
"""
LARGEST_CLASS_ID = 99_999  # a class id is a column: more of them are ids of something else
PHASES = ("train", "tune")


def check_phase(owner: str, phase: str) -> None:
    """Raise a ValueError unless the phase is "train" or "tune"."""
    if phase not in PHASES:
        raise ValueError(f"{owner}: phase must be one of {', '.join(PHASES)}, got {phase!r}.")


def check_class_ids(owner: str, class_ids: Iterable[object]) -> list[int]:
    """Class ids as sorted Python integers, each once; a ValueError names one that is no column."""
    checked = set()
    for class_id in class_ids:
        number = class_id.item() if isinstance(class_id, Tensor) else class_id
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise ValueError(
                f"{owner}: a label must be a whole number, the id of a class; got {class_id!r} "
                f"({type(number).__name__})."
            )
        checked.add(operator.index(number))
    for class_id in (min(checked, default=0), max(checked, default=0)):
        if not 0 <= class_id <= LARGEST_CLASS_ID:
            raise ValueError(
                f"{owner}: a class id is a column of the head and must be 0 or more, at most "
                f"{LARGEST_CLASS_ID}, got {class_id}. Number the classes from 0."
            )
    return sorted(checked)


class ClassColumns(DynamicModule):
    """A head with a column per class id, which grows in training.

    In evaluation its outputs are padded with -1000 and nothing else changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._padded_width = 0

    def adaptation(self, experience: object) -> None:
        """In training mode, grow by the classes of the experience.

        In eval mode only the width of later outputs is remembered, until training resumes.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.

        Raises:
            ValueError: If the experience has no `classes_in_this_experience`.
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
        """Add columns for new classes; columns of classes seen before keep their values.

        Args:
            class_ids: Class ids, new or seen before.

        Raises:
            ValueError: If a class id is negative.
        """
        raise NotImplementedError

    def _checked(self, class_ids: Iterable[SupportsIndex]) -> list[int]:
        """Class ids as sorted Python integers, each once."""
        return check_class_ids(type(self).__name__, class_ids)

    def train(self, mode: bool = True) -> "ClassColumns":
        """Set the mode as in torch; forgets the width remembered by an evaluation that has ended.

        Args:
            mode: True for training, False for evaluation.

        Returns:
            The module itself.
        """
        if mode or self.training:
            self._padded_width = 0
        super().train(mode)
        return self

    def padded(self, logits: Float[Tensor, "*b C"]) -> Float[Tensor, "*b padded"]:
        """Pad logits with -1000 up to the largest class id of the current evaluation.

        Args:
            logits: Logits of shape ``(*b, C)``.

        Returns:
            Logits with at least as many columns; unchanged in training mode.
        """
        missing = 0 if self.training else self._padded_width - logits.shape[-1]
        return F.pad(logits, (0, missing), value=UNSEEN_LOGIT) if missing > 0 else logits


class GrowingColumns(ClassColumns):
    """A head whose `K` outputs are spread over the `C` columns of their class ids.

    C is the largest trained class id + 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 0  # C
        self._known: set[int] = set()  # the same as `class_ids`, without asking the device

    def class_ids(self) -> Int[Tensor, "K"]:
        """The class id of each output.

        Returns:
            Class ids of shape ``(K,)``, in the order of the outputs.
        """
        raise NotImplementedError

    @property
    def seen(self) -> Bool[Tensor, "C"]:
        """Which columns belong to trained classes, shape ``(C,)``."""
        class_ids = self.class_ids()
        return torch.zeros(self.out_features, dtype=torch.bool, device=class_ids.device).index_fill(
            0, class_ids, True
        )

    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Add outputs for new classes, all of one step; outputs of other classes keep their values.

        Args:
            class_ids: Class ids, new or seen before.

        Raises:
            ValueError: If a class id is negative.
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
        """Record that these classes, and only these, have outputs."""
        self._known = set(class_ids)
        self.out_features = max(class_ids, default=-1) + 1

    def spread(self, outputs: Float[Tensor, "b K"]) -> Float[Tensor, "b C"]:
        """Put each output in the column of its class, and -1000 without gradient in the others.

        Args:
            outputs: One output per trained class, shape ``(b, K)``.

        Returns:
            Logits of shape ``(b, C)``.
        """
        return self.padded(
            outputs.new_full((outputs.shape[0], self.out_features), UNSEEN_LOGIT).index_copy(
                1, self.class_ids(), outputs
            )
        )
