"""Exemplars as ranked positions in the training data, within a budget."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Options, State
from avalanche_hfc.memory.herding import RULES, herding_order

SHARES = {
    "floor": "⌊total / classes⌋ of each class",
    "exact": "the remainder goes to the newest classes, one each",
}


class ExemplarMemory:
    """Exemplars of each class as positions in the training data, within a fixed budget.

    The exemplars of a class are ranked once, when the class arrives; later they only lose the end
    of their list. Old classes shrink before a new one enters, so the sum never exceeds `total`.
    Call `reserve` with all classes of a step, then `update` for each of them; without `reserve`,
    each `update` makes room for one class.

    Args:
        total: Number of exemplars of all classes together, divided equally.
        per_class: Number of exemplars of each class. Give either `total` or `per_class`.
        rule: How images are chosen, see `herding_order`.
        share: How `total` is divided: ``"floor"`` gives each class ⌊total / classes⌋; ``"exact"``
            also gives the remainder to the newest classes, one each.
        hold_out: Fraction of the share of a class, in [0, 1), that stays free for images held out
            elsewhere: at least one image, unless it would be the only one of the class.

    Raises:
        ValueError: If both or neither of `total` and `per_class` are given, or if a value is not
            allowed.

    Example:
        >>> import torch
        >>> from avalanche_hfc.memory import ExemplarMemory
        >>> memory = ExemplarMemory(total=3)
        >>> memory.update(0, torch.eye(4), positions=torch.arange(4))
        >>> memory.update(1, torch.eye(4), positions=torch.arange(4, 8))
        >>> memory.positions()
        tensor([0, 4])
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
        budget = per_class if total is None else total
        if None not in (total, per_class) or not isinstance(budget, int) or budget < 1:
            raise ValueError(
                "ExemplarMemory: give exactly one of total and per_class, a whole number of 1 or "
                f"more, got total={total!r}, per_class={per_class!r}."
            )
        lookup(RULES, rule, "herding rule")
        lookup(SHARES, share, "share")
        if not 0 <= hold_out < 1:
            raise ValueError(f"ExemplarMemory: hold_out must be in [0, 1), got {hold_out}.")
        self.total = total
        self.per_class = per_class
        self.rule = rule
        self.share = share
        self.hold_out = hold_out
        # class id -> positions, best first; in order of arrival
        self._ranked: dict[int, Tensor] = {}
        self._reserved: set[int] = set()  # announced by `reserve`, not yet updated

    def reserve(self, class_ids: Iterable[int]) -> None:
        """Make room for new classes: the exemplars of existing classes shrink to the new limit.

        Args:
            class_ids: Class ids that `update` will add.

        Raises:
            ValueError: If a class is in the memory already, or if `total` is smaller than the
                number of classes. The memory is then unchanged.
        """
        announced = self._reserved | {int(class_id) for class_id in class_ids}
        again = sorted(announced & self._ranked.keys())
        if again:
            raise ValueError(
                f"ExemplarMemory: classes {again} are in the memory already. A class is given once."
            )
        num_classes = len(self._ranked) + len(announced)
        limits = [self._limit(num_classes, rank) for rank in range(len(self._ranked))]
        self._limit(num_classes, num_classes - 1)  # may refuse: before anything has changed
        self._reserved = announced
        self._ranked = {
            class_id: self._ranked[class_id][:limit].clone()
            for class_id, limit in zip(self._ranked, limits, strict=True)
        }

    def update(
        self, class_id: int, features: Float[Tensor, "n D"], positions: Int[Tensor, "n"]
    ) -> None:
        """Rank the images of a new class by their features and keep the best.

        Args:
            class_id: The class.
            features: Features of all images of the class, shape ``(n, D)``.
            positions: Positions of the same images in the training data, shape ``(n,)``.

        Raises:
            ValueError: If the class is in the memory already, or there is no room. The memory is
                then unchanged.
        """
        announced = class_id in self._reserved
        num_classes = len(self._ranked) + len(self._reserved) + (not announced)
        limit = self._limit(num_classes, len(self._ranked))
        # may refuse the features: before anything has changed
        order = herding_order(features, limit, rule=self.rule)
        if not announced:  # else the others have made room for it
            self.reserve([class_id])
        self._ranked[class_id] = positions.detach().to("cpu", torch.int64)[order]
        self._reserved.remove(class_id)

    def choose_again(
        self, class_id: int, features: Float[Tensor, "n D"], positions: Int[Tensor, "n"]
    ) -> None:
        """Rank the images of a class in the memory anew, and keep as many as before.

        Args:
            class_id: The class.
            features: Features of all images of the class, shape ``(n, D)``.
            positions: Positions of the same images in the training data, shape ``(n,)``.

        Raises:
            ValueError: If the memory has no exemplars of the class.
        """
        order = herding_order(features, len(self.of(class_id)), rule=self.rule)
        self._ranked[class_id] = positions.detach().to("cpu", torch.int64)[order]

    def positions(self) -> Int[Tensor, "kept"]:
        """The positions of all exemplars.

        Returns:
            An int64 tensor on the CPU: classes in order of arrival, best first within a class.
        """
        return torch.cat([torch.empty(0, dtype=torch.int64), *self._ranked.values()])

    def of(self, class_id: int) -> Int[Tensor, "kept"]:
        """The exemplars of one class.

        Args:
            class_id: The class.

        Returns:
            Their positions, best first.

        Raises:
            ValueError: If the memory has no exemplars of the class.
        """
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
        """The largest number of exemplars a class may have now, reserved classes included."""
        num_classes = len(self._ranked) + len(self._reserved)
        return self._limit(num_classes, num_classes - 1)

    def __len__(self) -> int:
        return sum(len(ranked) for ranked in self._ranked.values())

    def _limit(self, num_classes: int, rank: int) -> int:
        """The largest number of exemplars of the class that arrived as number `rank`, from 0."""
        whole = self._share_of(num_classes, rank)
        return whole - self._held_out(whole, num_classes)

    def held_out(self, num_classes: int) -> int:
        """Number of images of each class for which room is left by `hold_out`.

        Args:
            num_classes: Number of classes that share the memory.

        Returns:
            The number of images; 0 without `hold_out`.

        Raises:
            ValueError: If `total` is smaller than `num_classes`.
        """
        return self._held_out(self._share_of(num_classes, 0), num_classes)

    def _held_out(self, whole: int, num_classes: int) -> int:
        if not self.hold_out:
            return 0
        asked = self.hold_out * (whole if self.total is None else self.total / max(num_classes, 1))
        return min(max(math.floor(asked), 1), whole - 1)

    def _share_of(self, num_classes: int, rank: int) -> int:
        if self.per_class is not None:
            return self.per_class
        assert self.total is not None
        if self.total < num_classes:
            raise ValueError(
                f"ExemplarMemory: total={self.total} is less than one exemplar for each of "
                f"{num_classes} classes."
            )
        each, remainder = divmod(self.total, max(num_classes, 1))
        return each + (self.share == "exact" and rank >= num_classes - remainder)

    def settings(self) -> Options:
        """The constructor's arguments.

        Returns:
            A dictionary; ``ExemplarMemory(**memory.settings())`` is an empty memory with the same
            budget.
        """
        return {
            name: getattr(self, name)
            for name in ("total", "per_class", "rule", "share", "hold_out")
        }

    def state_dict(self) -> State:
        """The settings and the exemplars, for `load_state_dict`.

        Returns:
            Plain values and tensors. `classes` and `positions` have one entry per class.
        """
        return {
            **self.settings(),
            "reserved": sorted(self._reserved),
            "classes": list(self._ranked),
            "positions": [ranked.clone() for ranked in self._ranked.values()],
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the exemplars of a memory with the same settings.

        Args:
            state: A dictionary from `state_dict`.

        Raises:
            ValueError: If the settings differ. The memory is then unchanged.
        """
        for name, setting in self.settings().items():
            if state[name] != setting:
                raise ValueError(
                    f"ExemplarMemory: the state has {name}={state[name]!r}, this memory "
                    f"{setting!r}."
                )
        self._ranked = {
            int(class_id): kept.to("cpu", torch.int64).clone()
            for class_id, kept in zip(state["classes"], state["positions"], strict=True)
        }
        self._reserved = {int(class_id) for class_id in state["reserved"]}
