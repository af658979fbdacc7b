"""Joint training: all data of all steps so far, from the first weights at each step. The upper
bound.
"""

import copy
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

from avalanche.models.utils import avalanche_model_adaptation
from torch import Tensor

from avalanche_hfc._types import State
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies._base.method import Method
from avalanche_hfc.strategies._base.state import load_model


class JointTraining(Method):
    """Joint training on the data of all steps so far, an upper bound for incremental methods.

    Each step minimises the cross-entropy over the classes seen, from the weights that the model has
    at construction and with a fresh optimizer. There is no `mem_size`, because
    every image is kept, and no `losses`, because no class is old.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        **kwargs: Arguments of `IncrementalTemplate` and of Avalanche's SupervisedTemplate.

    Raises:
        TypeError: If `losses` or `gradient` is given.
    """

    refused_options: ClassVar[tuple[str, ...]] = ("losses", "gradient")
    upper_bound = True
    trains_on_all_seen = True

    def __init__(self, *, model: Any, **kwargs: Any):
        unusable = [name for name in self.refused_options if name in kwargs]
        if unusable:
            raise TypeError(
                f"JointTraining: unexpected argument {', '.join(unusable)}: with all data at "
                "hand no class is old."
            )
        memory = HerdingReplayPlugin(per_class=sys.maxsize, rule="first")
        super().__init__(model=model, memory=memory, **kwargs)
        self._initial = copy.deepcopy(dict(model.state_dict()))

    @property
    def num_old(self) -> int:
        return 0  # every class counts as new

    def exemplars(self) -> dict[int, Tensor]:
        return {}  # every image is kept, none is chosen

    def begin_step(self, **kwargs: object) -> None:
        if StepTable.of(self).current > 0:
            model: Any = self.model
            load_model(model, copy.deepcopy(self._initial))
            avalanche_model_adaptation(
                model,
                SimpleNamespace(classes_in_this_experience=sorted(StepTable.of(self).step_of)),
            )
            model.to(self.device)
            self.make_optimizer()
            self.clear_moments()
        super().begin_step(**kwargs)

    def method_state(self) -> State:
        return {"initial": self._initial}

    def load_method_state(self, state: State) -> None:
        self._initial = state["initial"]
