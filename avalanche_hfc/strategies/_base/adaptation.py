"""Dynamic modules in evaluation: they follow the experience, but nothing grows or stays."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from avalanche.models import DynamicModule
from torch import nn

from avalanche_hfc._types import Experience, State

COPIED = (dict, list, set)


class Attributes:
    """The attributes of a module and its submodules, to go back to."""

    def __init__(self, module: nn.Module):
        self.module = module
        self.saved = [(part, attributes_of(part)) for part in module.modules()]
        self.sizes = sizes_of(module)

    @property
    def grown(self) -> bool:
        """Whether a parameter or buffer was added, removed or resized since."""
        return sizes_of(self.module) != self.sizes

    def restore(self) -> None:
        for part, attributes in self.saved:
            mode = part.training
            vars(part).clear()
            vars(part).update(attributes)
            part.training = mode


def attributes_of(module: nn.Module) -> State:
    return {
        name: copy.copy(value) if type(value) in COPIED else value
        for name, value in vars(module).items()
    }


def sizes_of(module: nn.Module) -> dict[str, tuple[int, ...]]:
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name: tuple(tensor.shape) for name, tensor in tensors}


def adaptive_modules(module: nn.Module, *, top: bool = True) -> Iterator[DynamicModule]:
    """The modules that Avalanche adapts to an experience, outer ones first."""
    if isinstance(module, DynamicModule):
        if not (top or module._auto_adapt):
            return
        if type(module).adaptation is not DynamicModule.adaptation:
            yield module
    for child in module.children():
        yield from adaptive_modules(child, top=False)


class EvalAdaptation:
    """Adapts a model to the experiences of an evaluation. What would grow stays as it is; what was
    changed is restored when the evaluation ends.
    """

    def __init__(self) -> None:
        self._before: dict[DynamicModule, Attributes] = {}

    def adapt(self, model: nn.Module, experience: Experience) -> None:
        for module in list(adaptive_modules(model)):
            before = Attributes(module)
            module.adaptation(experience)
            if before.grown:
                before.restore()
            else:
                self._before.setdefault(module, before)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for before in reversed(self._before.values()):
                before.restore()
            self._before = {}
