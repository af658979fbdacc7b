"""Exemplars as ranked positions in the training data: who is kept, in which order, within which
budget.
"""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Options, State
from avalanche_hfc.memory.herding import check_rule, herding_order

SHARES = {
    "floor": "⌊total / classes⌋ of each class",
    "exact": "the remainder goes to the newest classes, one each",
}


class ExemplarMemory:
    """At most `total` exemplars, ⌊total / classes⌋ of each class, or a fixed number `per_class`;
    exactly one of the two is given.

    `share="exact"` fills the total: the remainder of the division goes to the newest classes, one
    each (SS-IL). `hold_out` is the fraction of a class's share that is left free for images held
    out elsewhere (BiC): at least one, unless that would be the class's only one. A class's
    exemplars are ranked once, when it arrives; later they only lose their tail. Old classes shrink
    before a new one enters: the sum never exceeds `total`. `reserve` makes room for all classes of
    a step at once; without it each `update` makes room for its own.
    """

    def __init__(
        self,
        *,
        total: int | None = None,
        per_class: int | None = None,
        rule: str = "greedy",
        share: str = "floor",
        hold_out: float = 0.0,
    ):
        if (total is None) == (per_class is None):
            raise ValueError(
                "ExemplarMemory: give exactly one of total and per_class, got "
                f"total={total}, per_class={per_class}."
            )
        for name, value in (("total", total), ("per_class", per_class)):
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or value < 1
            ):
                raise ValueError(
                    f"ExemplarMemory: {name} must be a whole number of 1 or more, got {value!r}."
                )
        check_rule(rule)
        lookup(SHARES, share, "share")
        if share == "exact" and total is None:
            raise ValueError("ExemplarMemory: share='exact' divides a total; per_class is given.")
        if not 0 <= hold_out < 1:
            raise ValueError(f"ExemplarMemory: hold_out must be in [0, 1), got {hold_out}.")
        self.total = total
        self.per_class = per_class
        self.rule = rule
        self.share = share
        self.hold_out = hold_out
        self._ranked: dict[
            int, Tensor
        ] = {}  # class id -> positions, best first; in order of arrival
        self._reserved: set[int] = set()  # announced, not yet given

    def reserve(self, class_ids: Iterable[int]) -> None:
        """Announce classes that will come: exemplars of the classes present shrink to the limit
        that then holds.
        """
        announced = self._reserved | {int(class_id) for class_id in class_ids}
        again = sorted(announced & self._ranked.keys())
        if again:
            raise ValueError(
                f"ExemplarMemory: classes {again} are in the memory already. A class is given once."
            )
        num_classes = len(self._ranked) + len(announced)
        limits = [self._limit(num_classes, place) for place in range(len(self._ranked))]
        self._limit(num_classes, num_classes - 1)  # may refuse: before anything has changed
        self._reserved = announced
        self._ranked = {
            class_id: self._ranked[class_id][:limit].clone()
            for class_id, limit in zip(self._ranked, limits, strict=True)
        }

    def update(
        self, class_id: int, features: Float[Tensor, "n D"], positions: Int[Tensor, "n"]
    ) -> None:
        """Rank the images of one class by their features and keep the best. `positions` are those
        of the same images in training order.
        """
        if positions.is_floating_point():
            raise ValueError(
                f"ExemplarMemory: positions must be whole numbers, got {positions.dtype}."
            )
        if len(features) != len(positions):
            raise ValueError(
                f"ExemplarMemory: class {class_id} has {len(features)} features and "
                f"{len(positions)} positions."
            )
        if class_id in self._ranked:
            raise ValueError(
                f"ExemplarMemory: class {class_id} is in the memory already. A class is given once."
            )
        limit = self._limit(len(self._ranked) + len(self._reserved | {class_id}), len(self._ranked))
        order = herding_order(
            features, limit, rule=self.rule
        )  # may refuse the features: before anything has changed
        self.reserve([class_id])
        self._ranked[class_id] = positions.detach().to("cpu", torch.int64)[order]
        self._reserved.remove(class_id)

    def positions(self) -> Int[Tensor, "kept"]:
        """All exemplars: classes in order of arrival, best first within a class. int64, on the
        host.
        """
        return torch.cat([torch.empty(0, dtype=torch.int64), *self._ranked.values()])

    def of(self, class_id: int) -> Int[Tensor, "kept"]:
        """The exemplars of one class, best first."""
        if class_id not in self._ranked:
            raise ValueError(
                f"ExemplarMemory: no exemplars of class {class_id}. Classes present: "
                f"{list(self.classes)}."
            )
        return self._ranked[class_id].clone()

    @property
    def classes(self) -> tuple[int, ...]:
        """Classes with exemplars, in order of arrival."""
        return tuple(self._ranked)

    @property
    def per_class_limit(self) -> int:
        """The most exemplars a class may have now, classes announced by `reserve` counted."""
        num_classes = len(self._ranked) + len(self._reserved)
        return self._limit(num_classes, num_classes - 1)

    def __len__(self) -> int:
        return sum(len(ranked) for ranked in self._ranked.values())

    def _limit(self, num_classes: int, place: int) -> int:
        """The most exemplars of the class that arrived as number `place`, counted from 0, of
        `num_classes`.
        """
        whole = self._share_of(num_classes, place)
        return whole - self._held_out(whole, num_classes)

    def held_out(self, num_classes: int) -> int:
        """v: how many images of each class are left free for the hold-out when there are
        `num_classes`.
        """
        return self._held_out(self._share_of(num_classes, 0), num_classes)

    def _held_out(self, whole: int, num_classes: int) -> int:
        if not self.hold_out:
            return 0
        asked = self.hold_out * (whole if self.total is None else self.total / max(num_classes, 1))
        return min(max(math.floor(asked), 1), whole - 1)

    def _share_of(self, num_classes: int, place: int) -> int:
        if self.per_class is not None:
            return self.per_class
        assert self.total is not None
        if self.total < num_classes:
            raise ValueError(
                f"ExemplarMemory: total={self.total} is less than one exemplar for each of "
                f"{num_classes} classes."
            )
        each, remainder = divmod(self.total, max(num_classes, 1))
        return each + (self.share == "exact" and place >= num_classes - remainder)

    def settings(self) -> Options:
        """The arguments that make a memory like this one."""
        return {
            name: getattr(self, name)
            for name in ("total", "per_class", "rule", "share", "hold_out")
        }

    def state_dict(self) -> State:
        """Plain data and tensors. `classes` and `positions` run side by side."""
        return {
            **self.settings(),
            "reserved": sorted(self._reserved),
            "classes": list(self._ranked),
            "positions": [ranked.clone() for ranked in self._ranked.values()],
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` gave. A state of another budget or rule is refused, as is one
        that breaks the budget.
        """
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise ValueError(f"ExemplarMemory: the state lacks {sorted(missing)}.")
        for name, own in self.settings().items():
            if state[name] != own:
                raise ValueError(
                    f"ExemplarMemory: the state has {name}={state[name]!r}, this memory {own!r}."
                )
        classes, positions = state["classes"], state["positions"]
        if len(classes) != len(positions):
            raise ValueError(
                f"ExemplarMemory: the state has {len(classes)} classes and {len(positions)} "
                "lists of positions."
            )
        ranked = {
            int(class_id): kept.to("cpu", torch.int64).clone()
            for class_id, kept in zip(classes, positions, strict=True)
        }
        reserved = {int(class_id) for class_id in state["reserved"]}
        num_classes = len(ranked) + len(reserved)
        for place, kept in enumerate(ranked.values()):
            limit = self._limit(num_classes, place)
            if len(kept) > limit:
                raise ValueError(
                    f"ExemplarMemory: the state holds {len(kept)} exemplars of one class, "
                    f"{limit} are allowed."
                )
        self._ranked, self._reserved = ranked, reserved
