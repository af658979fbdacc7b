"""Which step introduced each class, in one table per strategy that all plugins share."""

from collections import Counter
from typing import NamedTuple

import torch
from avalanche.benchmarks.scenarios import OnlineCLExperience
from avalanche.models import MultiTaskModule
from jaxtyping import Float, Int
from torch import Tensor, nn

from avalanche_hfc._types import Experience, State, Strategy
from avalanche_hfc.losses import compensation_weights
from avalanche_hfc.models.heads import check_class_ids
from avalanche_hfc.ranks import world


class SampleWeights(NamedTuple):
    """Weights w_i of Eq. 9 of a batch, and the step that introduced the class of each sample."""

    weights: Float[Tensor, "b"]
    steps: Int[Tensor, "b"]


class StepTable:
    """Which step introduced each class, shared by the plugins of a strategy.

    `step_of` maps a class id to its step. `current` is the number of the current step, -1 before
    the first; `num_seen` is K^o + K^t, `num_old` K^o and `old_fraction` z = K^o / (K^o + K^t), 0 in
    the first step. `sample_weights` holds the weights that the losses of HFC
    gave to the samples of the batch, from the forward pass to the end of the iteration; None
    otherwise.

    Example:
        >>> import torch
        >>> from avalanche_hfc.plugins import StepTable
        >>> table = StepTable()
        >>> table.load_state_dict({"classes": [0, 1, 2], "steps": [0, 0, 1]})
        >>> table.on(torch.zeros(1, 4)), table.num_old
        (tensor([ 0,  0,  1, -1]), 2)
    """

    def __init__(self) -> None:
        self._tensor: Int[Tensor, "C"] | None = None
        self._take({})
        self._weights: tuple[Tensor, Tensor] | None = None
        self.sample_weights: SampleWeights | None = None

    @classmethod
    def of(cls, strategy: Strategy) -> "StepTable":
        """The table of a strategy, created on first use.

        Args:
            strategy: An Avalanche strategy.

        Returns:
            The table, kept as ``strategy.step_table``.
        """
        if not hasattr(strategy, "step_table"):
            strategy.step_table = cls()
        return strategy.step_table

    def learn(self, experience: Experience, step: int) -> None:
        """Record the classes of a step before it is trained.

        Recording them again for the same step changes nothing.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.
            step: Number of the step, counted from 0.

        Raises:
            ValueError: If a class belongs to another step, the classes of an earlier step are
                unknown, or the step was begun with other classes.
        """
        self.check(experience, step)
        self._take(self.step_of | dict.fromkeys(classes_of(experience), step))

    def check(self, experience: Experience, step: int) -> None:
        """Check that an experience can be the next step, without recording it.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.
            step: Number of the step, counted from 0.

        Raises:
            ValueError: See `learn`.
        """
        class_ids = set(classes_of(experience))
        begun = self.classes_of_step(step)
        if begun and class_ids != begun:
            raise ValueError(
                f"Step {step}, with classes {sorted(begun)}, was begun and not finished. Train "
                f"the same experience again; got one with classes {sorted(class_ids)}."
            )
        again = sorted(c for c in class_ids if self.step_of.get(c, step) != step)
        if again:
            raise ValueError(
                f"Classes {again} were learned in step {self.step_of[again[0]]} and come again "
                f"in step {step}. "
                "HFC is for class-incremental benchmarks: each class belongs to one step."
            )
        unknown = sorted(set(range(step)) - set(self.step_of.values()))
        if unknown:
            raise ValueError(
                f"The classes of steps {unknown} are not known: the plugins must be in the "
                "strategy from the first step on."
            )
        if step == 0 and not begun:
            check_stream(experience)

    def _take(self, step_of: dict[int, int]) -> None:
        """Replace the table; counts are computed once because plugins need them in every batch."""
        self.step_of, self._tensor = step_of, None
        self.current = max(step_of.values(), default=-1)
        self.num_seen = len(step_of)
        self.num_old = sum(step < self.current for step in step_of.values())
        self.old_fraction = self.num_old / max(self.num_seen, 1)

    def classes_of_step(self, step: int) -> set[int]:
        """The classes of one step.

        Args:
            step: Number of the step.

        Returns:
            Their class ids.
        """
        return {class_id for class_id, arrival in self.step_of.items() if arrival == step}

    def on(self, logits: Float[Tensor, "b C"]) -> Int[Tensor, "C"]:
        """The table as a tensor, as the losses take it.

        Args:
            logits: Logits of shape ``(b, C)``, which give the width and the device.

        Returns:
            The step of each class, shape ``(C,)``; -1 for classes not seen yet.

        Raises:
            ValueError: If these are no logits, or a class has no column.
        """
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise_for_logits(logits)
        width = logits.shape[1]
        if (
            self._tensor is None
            or len(self._tensor) != width
            or self._tensor.device != logits.device
        ):
            highest = max(self.step_of, default=-1)
            if highest >= width:
                raise ValueError(
                    f"Class {highest} is outside the head: the model gives {width} columns, "
                    f"for class ids 0 to {width - 1}."
                )
            steps = torch.full((width,), -1)
            steps[list(self.step_of)] = torch.tensor(list(self.step_of.values()), dtype=torch.int64)
            self._tensor = steps.to(logits.device)
        return self._tensor

    def weights(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"]
    ) -> Float[Tensor, "b"]:
        """The sample weights of Eq. 9, computed once per batch.

        Args:
            logits: Logits of shape ``(b, C)``.
            targets: Class ids of shape ``(b,)``.

        Returns:
            Weights of shape ``(b,)``, see `compensation_weights`; also kept as `sample_weights`.
        """
        if self._weights is None or self._weights[0] is not logits:
            steps = self.on(logits)
            self._weights = (logits, compensation_weights(logits, targets, steps))
            self.note_weights(self._weights[1], steps[targets])
        return self._weights[1]

    def note_weights(self, weights: Float[Tensor, "b"], steps: Int[Tensor, "b"]) -> None:
        """Keep the sample weights of the batch as `sample_weights`.

        Args:
            weights: Weights of shape ``(b,)``.
            steps: The step of each sample's class, shape ``(b,)``.
        """
        self.sample_weights = SampleWeights(weights.detach(), steps)

    def forget_batch(self) -> None:
        """Discard the weights of the batch."""
        self._weights = None
        self.sample_weights = None

    def state_dict(self) -> State:
        """The table, for `load_state_dict`.

        Returns:
            Two lists of equal length: `classes` and `steps`.
        """
        return {"classes": list(self.step_of), "steps": list(self.step_of.values())}

    def load_state_dict(self, state: State) -> None:
        """Restore the table.

        Args:
            state: A dictionary from `state_dict`.
        """
        self._take(dict(zip(state["classes"], state["steps"], strict=True)))


def classes_of(experience: Experience) -> list[int]:
    """Class ids of an experience, sorted.

    `classes_in_this_experience` is a list or a set, depending on the benchmark; without a class
    timeline it is missing, which raises a ValueError. So do labels that are no class ids.
    """
    if isinstance(experience, OnlineCLExperience):
        raise ValueError(
            f"{type(experience).__name__} is a part of a step: online streams are not supported. "
            "Train on the experiences of the stream that was split."
        )
    class_ids = getattr(experience, "classes_in_this_experience", None)
    if class_ids is None:
        raise ValueError(
            f"{type(experience).__name__} has no classes_in_this_experience. "
            "Wrap the benchmark in avalanche.benchmarks.with_classes_timeline."
        )
    return check_class_ids(type(experience).__name__, class_ids)


def check_stream(experience: Experience) -> None:
    """Raise a ValueError if the stream of the experience has a class in two experiences."""
    stream = getattr(experience, "origin_stream", None)
    benchmark = getattr(stream, "benchmark", None)
    by_stream = getattr(benchmark, "classes_in_experience", None)
    if stream is not None and by_stream is not None:
        steps = by_stream[stream.name]
    else:
        steps = [
            getattr(other, "classes_in_this_experience", None) or ()
            for other in getattr(stream, "exps", ())
        ]
    counts = Counter(int(class_id) for step in steps for class_id in set(step or ()))
    again = sorted(class_id for class_id, count in counts.items() if count > 1)
    if again:
        raise ValueError(
            f"Classes {again} come in several experiences of the stream. HFC is for "
            "class-incremental benchmarks: each class belongs to one step."
        )


def check_single_head(owner: str, model: nn.Module) -> None:
    """Raise a ValueError if a model has a head for each task."""
    for module in model.modules():
        if isinstance(module, MultiTaskModule):
            raise ValueError(
                f"{owner} needs a model with one head for all classes; {type(module).__name__} is "
                "a multi-task module with a head for each task label."
            )


def check_ranks(owner: str, strategy: Strategy) -> None:
    """Raise a ValueError if a strategy on several ranks computes its loss from a part of the
    batch.
    """
    if world().several and not hasattr(strategy, "gathered"):
        raise ValueError(
            f"{owner} cannot act in {type(strategy).__name__} on {world().size} ranks: its loss "
            "would be that of a part of each batch, not of the whole. Use a strategy of "
            "avalanche_hfc, or one rank."
        )


def raise_for_logits(output: object) -> None:
    """Raise a ValueError for the output of a model that is no tensor of shape (batch, classes)."""
    shape = f" of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
    raise ValueError(
        "The model must return logits, a tensor of shape (batch, classes); it returns a "
        f"{type(output).__name__}{shape}."
    )


def known_classes(experience: Experience) -> set[int]:
    """Class ids of an experience and, if the benchmark knows them, of those before and after it."""
    known = set(classes_of(experience))
    for name in ("previous_classes", "future_classes"):
        known |= {int(class_id) for class_id in getattr(experience, name, None) or ()}
    return known
