"""Evaluation that leaves no trace: nothing grows, and model, random state and batch are afterwards
as they were.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from avalanche.models import DynamicModule
from avalanche.training.templates import SupervisedTemplate
from torch.nn import Module

from avalanche_hfc._types import Experience, State
from avalanche_hfc.plugins.steps import classes_of

BATCH = ("mbatch", "mb_output", "loss")
COPIED = (dict, list, set)


class TracelessEvaluation(SupervisedTemplate):
    """A template whose `eval` changes nothing that is trained. Modules follow the experiences of an
    evaluation only where that adds no parameter or buffer.
    """

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.evaluating = False
        self.eval_width = 0  # columns that the labels of the evaluation need
        self._before_adaptation: dict[Module, dict[Module, State]] = {}

    def eval(
        self, exp_list: Experience | Iterable[Experience], **kwargs: object
    ) -> dict[str, object]:
        outer, self.evaluating = self.evaluating, True
        try:
            with forked_random_state(self.device):
                return super().eval(exp_list, **kwargs)
        finally:
            self.evaluating = outer
            for before in reversed(self._before_adaptation.values()):
                restore(before)
            self._before_adaptation = {}

    def model_adaptation(self, model: Module | None = None) -> Module:
        """Parameters grow in training only; in evaluation modules follow the experience without."""
        if self.is_training:
            return super().model_adaptation(model)
        adapted = self.model if model is None else model
        for module in list(adaptive_modules(adapted)):
            before, sizes = attributes_of(module), sizes_of(module)
            module.adaptation(self.experience)
            if sizes_of(module) != sizes:
                restore(before)
            else:
                self._before_adaptation.setdefault(module, before)
        return adapted.to(self.device)

    def _before_eval_exp(self, **kwargs: object) -> None:
        self.eval_width = max(self.eval_width, max(classes_of(self.experience), default=-1) + 1)
        super()._before_eval_exp(**kwargs)

    def _eval_cleanup(self) -> None:
        super()._eval_cleanup()
        self.eval_width = 0

    def _save_train_state(self) -> State:
        return super()._save_train_state() | {name: getattr(self, name) for name in BATCH}

    def _load_train_state(self, prev_state: State) -> None:
        super()._load_train_state(prev_state)
        for name in BATCH:
            setattr(self, name, prev_state[name])


@contextmanager
def forked_random_state(device: torch.device) -> Iterator[None]:
    """A context that restores torch's random state, of the CPU and of this device."""
    on_host = device.type == "cpu"
    kind = "cuda" if on_host else device.type
    with torch.random.fork_rng([] if on_host else [device], device_type=kind):
        yield


def attributes_of(module: Module) -> dict[Module, State]:
    """The attributes of a module and its submodules, to go back to."""
    return {
        part: {
            name: copy.copy(value) if type(value) in COPIED else value
            for name, value in vars(part).items()
        }
        for part in module.modules()
    }


def restore(saved: dict[Module, State]) -> None:
    for part, attributes in saved.items():
        attributes["training"] = part.training
        vars(part).clear()
        vars(part).update(attributes)


def sizes_of(module: Module) -> dict[str, tuple[int, ...]]:
    """They change when a parameter or buffer is added, removed or resized."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name: tuple(tensor.shape) for name, tensor in tensors}


def adaptive_modules(module: Module, *, top: bool = True) -> Iterator[DynamicModule]:
    """The modules that Avalanche adapts to an experience, outer ones first."""
    if isinstance(module, DynamicModule):
        if not (top or module._auto_adapt):
            return
        if type(module).adaptation is not DynamicModule.adaptation:
            yield module
    for child in module.children():
        yield from adaptive_modules(child, top=False)
