"""Herding replay with a hold-out: a few images of each class that are never trained on (BiC)."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from avalanche_hfc._types import HostDataset, State, Strategy
from avalanche_hfc.plugins.herding import HerdingReplayPlugin, indices_by_class
from avalanche_hfc.plugins.steps import StepTable, classes_of


class HoldOutReplayPlugin(HerdingReplayPlugin):
    """Herding replay that holds out a tenth of each class's share of the memory.

    The images held out are the first of the class, at most a tenth of them. They are never trained
    on; as the share falls, the first ones stay. A class with a share of one exemplar, or with a
    single image, has none held out.
    """

    hold_out = 0.1

    def __init__(self, **budget: Any):
        super().__init__(**budget)
        self._held: dict[int, Tensor] = {}  # class id -> positions, of the classes in the memory
        # class id -> indices in the data of the step being trained
        self._arriving: dict[int, Tensor] = {}

    def after_train_dataset_adaptation(self, strategy: Strategy, **kwargs: object) -> None:
        table = StepTable.of(strategy)
        table.learn(strategy.experience, strategy.clock.train_exp_counter)
        targets = torch.as_tensor(list(strategy.experience.dataset.targets))
        num_held = self.memory.held_out(table.num_old or table.num_seen)
        indices_of = indices_by_class(targets, classes_of(strategy.experience))
        self._arriving = {
            class_id: indices[: min(num_held, most_held(len(indices)))]
            for class_id, indices in indices_of.items()
        }
        trained = torch.ones(len(targets), dtype=torch.bool)
        for indices in self._arriving.values():
            trained[indices] = False
        strategy.adapted_dataset = strategy.adapted_dataset.subset(trained.nonzero()[:, 0].tolist())
        super().after_train_dataset_adaptation(strategy, **kwargs)

    def held_out_data(self, strategy: Strategy) -> tuple[list[HostDataset], list[HostDataset]]:
        """(old, new): data sets of the images held out in earlier steps and in this one."""
        positions = torch.cat([torch.empty(0, dtype=torch.int64), *self._held.values()])
        indices = torch.cat([torch.empty(0, dtype=torch.int64), *self._arriving.values()])
        return self.subsets(positions), [
            strategy.experience.dataset.subset(indices.tolist())
        ] if len(indices) else []

    def candidates(self, class_id: int, indices: Int[Tensor, "n"]) -> Int[Tensor, "own"]:
        return indices[~torch.isin(indices, self._arriving[class_id])]

    def update(
        self, strategy: Strategy, num_workers: int = 0, model: nn.Module | None = None
    ) -> None:
        offset, known = sum(self._lengths), set(self.memory.classes)
        super().update(strategy, num_workers, model)
        num_held = self.memory.held_out(len(self.memory.classes))
        arrived = {
            class_id: indices + offset
            for class_id, indices in self._arriving.items()
            if class_id not in known
        }
        self._held = {
            class_id: positions[:num_held] for class_id, positions in (self._held | arrived).items()
        }

    @property
    def num_held(self) -> int:
        """Number of images held out."""
        return sum(len(positions) for positions in self._held.values())

    def state_dict(self) -> State:
        held = {
            "held_classes": list(self._held),
            "held": [positions.clone() for positions in self._held.values()],
        }
        return super().state_dict() | held

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._held = {
            class_id: positions.clone()
            for class_id, positions in zip(state["held_classes"], state["held"], strict=True)
        }


def most_held(num_images: int) -> int:
    """A tenth of a class's images, at least one, unless it is the only one."""
    return min(max(num_images // 10, 1), num_images - 1)
