"""A strategy's state as tensors and plain data: written by one process, read by another, the training goes on bit for bit."""

import copy
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EarlyStoppingPlugin, LRSchedulerPlugin
from torch import Tensor, nn

from avalanche_hfc.plugins.steps import StepTable, classes_of
from avalanche_hfc.plugins.teacher import FrozenTeacher

FORMAT = 1
CLOCK = ("train_iterations", "train_exp_counter", "train_exp_epochs", "train_exp_iterations", "train_epoch_iterations", "total_iterations")


@dataclass(frozen=True)
class Resume:
    """What is left to restore when the interrupted step is trained again: callbacks at its start reset counters and draw numbers."""

    state: dict[str, Any]

    @property
    def finished_plugins(self) -> int | None:
        """How many plugins had ended the epoch when one of them saved the state; None between epochs."""
        return self.state["finished_plugins"]

    def check(self, experience: Any, table: StepTable) -> None:
        expected, given = table.classes_of_step(table.current), set(classes_of(experience))
        if expected != given:
            raise ValueError(
                f"The state was saved inside step {table.current}, with classes {sorted(expected)}: train that experience next. "
                f"Got one with classes {sorted(given)}."
            )

    def restore(self, strategy: Any) -> None:
        vars(strategy.clock).update(self.state["clock"])
        load_plugins(strategy, self.state["plugins"])
        set_random_state(self.state["random"], strategy.device)


def save_state(strategy: Any) -> dict[str, Any]:
    if strategy.in_epoch:
        raise RuntimeError("state_dict: not inside an epoch. Call it between steps, or in before_training_epoch or after_training_epoch.")
    teacher = FrozenTeacher.of(strategy)
    index = strategy._epoch_end_index
    return copy.deepcopy(
        {
            "format": FORMAT,
            "strategy": type(strategy).__name__,
            "in_step": strategy.experience is not None and strategy.is_training,
            "finished_plugins": None if index is None else index + 1,
            "model": dict(strategy.model.state_dict()),
            "teacher": None if teacher.model is None else dict(teacher.model.state_dict()),
            "teacher_step": teacher.taken_after,
            "optimizer": strategy.optimizer.state_dict(),
            "registered": strategy.optimized_param_id is not None,
            "steps": StepTable.of(strategy).state_dict(),
            "clock": {name: getattr(strategy.clock, name) for name in CLOCK},
            "plugins": plugin_states(strategy),
            "random": random_state(strategy.device),
        }
    )


def load_state(strategy: Any, state: dict[str, Any]) -> None:
    if state.get("format") != FORMAT or state.get("strategy") != type(strategy).__name__:
        raise ValueError(
            f"load_state_dict: a state of {type(strategy).__name__} in format {FORMAT} is needed, "
            f"got {state.get('strategy')!r} in format {state.get('format')!r}."
        )
    state = copy.deepcopy(state)
    strategy.model.to(strategy.device)
    if state["registered"] and strategy.optimized_param_id is None:
        strategy.make_optimizer(reset_optimizer_state=True)
    load_model(strategy.model, state["model"])
    if state["registered"]:
        strategy.make_optimizer()  # the head's parameters are new ones
    strategy.optimizer.load_state_dict(state["optimizer"])
    StepTable.of(strategy).load_state_dict(state["steps"])
    vars(strategy.clock).update(state["clock"])
    if state["teacher"] is not None:
        model = copy.deepcopy(strategy.model)
        load_model(model, state["teacher"])
        FrozenTeacher.of(strategy).hold(model, state["teacher_step"])
    load_plugins(strategy, state["plugins"])
    set_random_state(state["random"], strategy.device)
    strategy._resume = Resume(state) if state["in_step"] else None


def load_model(model: nn.Module, state: dict[str, Tensor]) -> None:
    """`load_state_dict` into a model whose head has another number of rows. Ours resizes itself, Avalanche's does not."""
    for name, module in model.named_modules():
        if isinstance(module, IncrementalClassifier):
            rows = state[f"{name}.classifier.weight" if name else "classifier.weight"].shape[0]
            old = module.classifier
            if rows != old.out_features:
                module.classifier = nn.Linear(old.in_features, rows, device=old.weight.device, dtype=old.weight.dtype)
                if module.masking:
                    module.active_units = module.active_units.new_zeros(rows)
    model.load_state_dict(state)


def plugin_states(strategy: Any) -> list[dict[str, Any]]:
    """One entry for each plugin that has a state, in list order."""
    states: list[dict[str, Any]] = []
    for plugin in strategy.plugins:
        if isinstance(plugin, LRSchedulerPlugin):
            own: Any = plugin.scheduler.state_dict()
        elif isinstance(plugin, EarlyStoppingPlugin):
            own = {name: getattr(plugin, name) for name in ("best_state", "best_val", "best_step")}
        elif hasattr(plugin, "state_dict"):
            own = plugin.state_dict()
        else:
            continue
        states.append({"plugin": type(plugin).__name__, "state": own})
    return states


def load_plugins(strategy: Any, states: list[dict[str, Any]]) -> None:
    stateful = [p for p in strategy.plugins if isinstance(p, LRSchedulerPlugin | EarlyStoppingPlugin) or hasattr(p, "state_dict")]
    saved, present = [entry["plugin"] for entry in states], [type(plugin).__name__ for plugin in stateful]
    if saved != present:
        raise ValueError(f"load_state_dict: the state has plugins {saved}, the strategy {present}. Build the strategy as it was.")
    for plugin, entry in zip(stateful, states, strict=True):
        if isinstance(plugin, LRSchedulerPlugin):
            plugin.scheduler.load_state_dict(entry["state"])
        elif isinstance(plugin, EarlyStoppingPlugin):
            vars(plugin).update(entry["state"])
        else:
            plugin.load_state_dict(entry["state"])


def random_state(device: torch.device) -> dict[str, Any]:
    version, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  # the global generator is what transforms and users draw from
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "python": [version, list(internal), gauss],
        "numpy": [name, torch.tensor(np.asarray(keys, dtype=np.int64)), *rest],
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
