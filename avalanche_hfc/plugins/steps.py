"""Which step brought each class: what GFC, GRD and a strategy must agree on. One table per
strategy.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._types import Experience, State, Strategy
from avalanche_hfc.losses import compensation_weights


class SampleWeights(NamedTuple):
    """W_i of Eq. 9 of a batch, and the step that brought the class of each sample."""

    weights: Float[Tensor, "b"]
    steps: Int[Tensor, "b"]


class StepTable:
    """class id -> step. `on(logits)` gives `steps (C,)` for the losses, on the logits' device.

    `sample_weights` are those that the losses of HFC gave the batch, from the forward pass to the
    end of the iteration; else None.
    """

    def __init__(self) -> None:
        self.step_of: dict[int, int] = {}
        self._num_old = 0
        self._tensor: Int[Tensor, "C"] | None = None
        self._weights: tuple[Tensor, Tensor] | None = None
        self.sample_weights: SampleWeights | None = None

    @classmethod
    def of(cls, strategy: Strategy) -> "StepTable":
        """The strategy's one table, made when first asked for."""
        if not hasattr(strategy, "step_table"):
            strategy.step_table = cls()
        return strategy.step_table

    def learn(self, experience: Experience, step: int) -> None:
        """Note the classes of a step before it is trained. Saying it again for the same step
        changes nothing.
        """
        class_ids = {int(class_id) for class_id in classes_of(experience)}
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
        self._take(self.step_of | dict.fromkeys(sorted(class_ids), step))

    def _take(self, step_of: dict[int, int]) -> None:
        """Counted here, once: plugins ask in every batch."""
        self.step_of, self._tensor = step_of, None
        current = self.current
        self._num_old = sum(step < current for step in step_of.values())

    @property
    def current(self) -> int:
        return max(self.step_of.values(), default=-1)

    @property
    def num_seen(self) -> int:
        return len(self.step_of)

    @property
    def num_old(self) -> int:
        """K^o: classes of all steps but the current one."""
        return self._num_old

    @property
    def old_fraction(self) -> float:
        """z = K^o / (K^o + K^t); 0 in the first step."""
        return self.num_old / max(self.num_seen, 1)

    def classes_of_step(self, step: int) -> set[int]:
        return {class_id for class_id, own in self.step_of.items() if own == step}

    def on(self, logits: Float[Tensor, "b C"]) -> Int[Tensor, "C"]:
        """`steps (C,)`: -1 in the columns of classes not seen yet."""
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
        """Weights of Eq. 9 for these logits, computed once per batch however many plugins ask."""
        if self._weights is None or self._weights[0] is not logits:
            steps = self.on(logits)
            self._weights = (logits, compensation_weights(logits, targets, steps))
            self.note_weights(self._weights[1], steps[targets])
        return self._weights[1]

    def note_weights(self, weights: Float[Tensor, "b"], steps: Int[Tensor, "b"]) -> None:
        """Keep the weights of the batch for whoever wants to look at them; `steps` are those of its
        samples.
        """
        self.sample_weights = SampleWeights(weights.detach(), steps)

    def forget_batch(self) -> None:
        self._weights = None
        self.sample_weights = None

    def state_dict(self) -> State:
        return {"classes": list(self.step_of), "steps": list(self.step_of.values())}

    def load_state_dict(self, state: State) -> None:
        self._take(dict(zip(state["classes"], state["steps"], strict=True)))


def classes_of(experience: Experience) -> list[int]:
    """Class ids of an experience. `classes_in_this_experience` is a list or a set, by benchmark;
    absent without a timeline.
    """
    class_ids = getattr(experience, "classes_in_this_experience", None)
    if class_ids is None:
        raise ValueError(
            f"{type(experience).__name__} has no classes_in_this_experience. "
            "Wrap the benchmark in avalanche.benchmarks.with_classes_timeline."
        )
    return sorted(int(class_id) for class_id in class_ids)


def known_classes(experience: Experience) -> set[int]:
    """Class ids of an experience and, where the benchmark tells them, of those before and
    after it.
    """
    known = set(classes_of(experience))
    for name in ("previous_classes", "future_classes"):
        known |= {int(class_id) for class_id in getattr(experience, name, None) or ()}
    return known
