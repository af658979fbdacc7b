"""A strategy's state as tensors and plain data: one process saves it, another loads it and resumes
the training bit for bit. It lies between steps, or between epochs of a step.
"""

import copy
import random
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EarlyStoppingPlugin, EvaluationPlugin, LRSchedulerPlugin
from avalanche.training.plugins.clock import Clock
from avalanche.training.templates.base_sgd import PeriodicEval
from torch import Tensor, nn

from avalanche_hfc._types import Experience, Options, State, Strategy
from avalanche_hfc.plugins.steps import StepTable, classes_of
from avalanche_hfc.plugins.teacher import FrozenTeacher

FORMAT = 1
SCHEDULE_FLAGS = ("_was_training", "_just_validated", "_executed_train_iteration")
STOPPING = ("best_state", "best_val", "best_step")
WITHOUT_STATE = (EvaluationPlugin, PeriodicEval, Clock)


class Progress:
    """Where a training stands. A state that is saved in an event lies behind it: the plugins that
    have not had their turn have it first.
    """

    def __init__(self) -> None:
        self.in_step = False
        self.event: str | None = None  # in which a state may be saved, while it runs
        self.loaded: State | None = None  # of an interrupted step that has not been resumed
        self._turns: deque[Callable[[], object]] = deque()

    def call(self, strategy: Strategy, event: str, **kwargs: object) -> None:
        """Call an event of every plugin."""
        plugins = (plugin for plugin in strategy.plugins if hasattr(plugin, event))
        self.event = event
        self._turns = deque(partial(getattr(p, event), strategy, **kwargs) for p in plugins)
        try:
            self.finish()
        finally:
            self.event = None

    def finish(self) -> None:
        """Let the plugins that are left have their turn."""
        while self._turns:
            self._turns.popleft()()

    def check_experience(self, experience: Experience, table: StepTable) -> None:
        """Raise a ValueError for another experience than that of the step to resume."""
        expected, given = table.classes_of_step(table.current), set(classes_of(experience))
        if self.loaded is not None and expected != given:
            raise ValueError(
                f"The state was saved inside step {table.current}, with classes "
                f"{sorted(expected)}: train that experience next. "
                f"Got one with classes {sorted(given)}."
            )

    def resume(self, strategy: Strategy) -> State:
        """Restore what the start of the step has reset, once. The state; empty in a step that is
        not resumed.
        """
        state, self.loaded = copy.deepcopy(self.loaded or {}), None
        if state:
            load_model(strategy.model, state["model"])
            strategy.optimizer.load_state_dict(state["optimizer"])
            load_rest(strategy, state)
            strategy._stop_training = state["stop_training"]
        return state


# Saving


def save_state(strategy: Strategy) -> State:
    progress = strategy.progress
    if strategy.evaluating or (progress.in_step and progress.event is None):
        where = (
            "an evaluation" if strategy.evaluating else "an epoch, or in a step that an error ended"
        )
        raise RuntimeError(
            f"state_dict: not inside {where}. Call it between steps, or in "
            "before_training_epoch, after_training_epoch, before_phase_epoch, after_phase_epoch "
            "or after_training_exp of a plugin."
        )
    progress.finish()
    if progress.loaded is not None:
        return copy.deepcopy(progress.loaded)
    teacher = FrozenTeacher.of(strategy)
    state = {
        "format": FORMAT,
        "strategy": type(strategy).__name__,
        "turn": progress.event if progress.event != "after_training_exp" else None,
        "phase": strategy.phase_state(),
        "settings": strategy.chosen(),
        "training": training_settings(strategy),
        "method": strategy.method_state(),
        "stop_training": strategy._stop_training,
        "model": dict(strategy.model.state_dict()),
        "teacher": None if teacher.model is None else dict(teacher.model.state_dict()),
        "teacher_step": teacher.taken_after,
        "optimizer": strategy.optimizer.state_dict(),
        "optimizer_names": optimizer_names(strategy),
        "registered": strategy.optimized_param_id is not None,
        "steps": StepTable.of(strategy).state_dict(),
        "clock": {n: count for n, count in vars(strategy.clock).items() if isinstance(count, int)},
        "plugins": plugin_states(strategy),
        "losses": strategy.losses.means,
        "metrics": {
            name: value
            for name, value in strategy.evaluator.last_metric_results.items()
            if isinstance(value, int | float)
        },
        "random": random_state(strategy.device),
        "gradient_scale": strategy.hardware.precision.state_dict(),
    }
    return copy.deepcopy(state)


def training_settings(strategy: Strategy) -> Options:
    """What the strategy was given for its training beside the options of the method."""
    return {
        "optimizer": type(strategy.optimizer).__name__,
        "learning rate": strategy.optimizer.defaults.get("lr"),
        "train_mb_size": strategy.train_mb_size,
        "train_epochs": strategy.given_epochs,
    }


def optimizer_names(strategy: Strategy) -> list[list[str | None]]:
    """The names of the parameters of each group: an optimizer's own state knows them by their place
    only. None: not the model's.
    """
    names = {id(parameter): name for name, parameter in strategy.model.named_parameters()}
    return [
        [names.get(id(parameter)) for parameter in group["params"]]
        for group in strategy.optimizer.param_groups
    ]


def plugin_states(strategy: Strategy) -> list[State]:
    """One entry for each plugin, in list order; None for one without a state."""
    return [
        {"plugin": type(plugin).__name__, "state": plugin_state(plugin)}
        for plugin in strategy.plugins
    ]


def plugin_state(plugin: object) -> State | None:
    if isinstance(plugin, LRSchedulerPlugin):
        return {
            "scheduler": plugin.scheduler.state_dict(),
            "metric": vars(plugin.rolling_metric),
            "flags": {name: getattr(plugin, name) for name in SCHEDULE_FLAGS},
        }
    if isinstance(plugin, EarlyStoppingPlugin):
        return {name: getattr(plugin, name) for name in STOPPING}
    if hasattr(plugin, "state_dict"):
        return plugin.state_dict()
    if type(plugin).__module__.startswith("avalanche.") and not isinstance(plugin, WITHOUT_STATE):
        name = type(plugin).__name__
        raise ValueError(
            f"state_dict: {name} gives no state. Subclass it with state_dict and "
            "load_state_dict, or leave it out."
        )
    return None


def random_state(device: torch.device) -> State:
    """The state of every generator that a training draws from."""
    version, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  # the global generator is what transforms and users draw from
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "python": [version, list(internal), gauss],
        "numpy": [name, torch.tensor(np.asarray(keys, dtype=np.int64)), *rest],
    }


# Loading


def load_state(strategy: Strategy, state: State) -> None:
    check_state(strategy, state)
    state = copy.deepcopy(state)
    strategy.model.to(strategy.device)
    if state["registered"] and strategy.optimized_param_id is None:
        strategy.make_optimizer(reset_optimizer_state=True)
    load_model(strategy.model, state["model"])
    if strategy.optimized_param_id is not None:
        strategy.make_optimizer()  # the head's parameters are new ones
        order_parameters(strategy, state["optimizer_names"])
    strategy.optimizer.load_state_dict(state["optimizer"])
    StepTable.of(strategy).load_state_dict(state["steps"])
    teacher = FrozenTeacher.of(strategy)
    teacher.release()
    if state["teacher"] is not None:
        model = copy.deepcopy(strategy.model)
        load_model(model, state["teacher"])
        teacher.hold(model, state["teacher_step"])
    load_rest(strategy, state)
    strategy.progress = Progress()
    strategy.progress.loaded = state if state["turn"] else None


def check_state(strategy: Strategy, state: State) -> None:
    """Raise a ValueError for a state of another strategy, or of one with other options or plugins:
    to resume it would be another training.
    """
    name = type(strategy).__name__
    if state.get("format") != FORMAT or state.get("strategy") != name:
        raise ValueError(
            f"load_state_dict: a state of {name} in format {FORMAT} is needed, "
            f"got {state.get('strategy')!r} in format {state.get('format')!r}."
        )
    if isinstance(state["turn"], list):
        raise ValueError(
            "load_state_dict: an earlier version saved this state inside a step. Train again, or "
            "resume with that version."
        )
    before = state["settings"] | state.get("training", {})
    now = strategy.chosen() | training_settings(strategy)
    if state["turn"] is None:
        now.pop("train_epochs")  # between steps it may change
    changed = [
        f"{option} {before[option]!r}, now {value!r}"
        for option, value in now.items()
        if option in before and before[option] != value
    ]
    if changed:
        raise ValueError(
            f"load_state_dict: the state was trained with other options ({'; '.join(changed)}). "
            "Build the strategy as it was."
        )
    saved, present = (
        [entry["plugin"] for entry in entries if entry["state"] is not None]
        for entries in (state["plugins"], plugin_states(strategy))
    )
    if saved != present:
        raise ValueError(
            f"load_state_dict: the state has plugins {saved}, the strategy {present}. Build the "
            "strategy as it was."
        )
    states = {entry["plugin"]: entry["state"] for entry in state["plugins"]}
    for plugin in strategy.plugins:
        if hasattr(plugin, "check_state"):
            plugin.check_state(states[type(plugin).__name__])


def order_parameters(strategy: Strategy, names: list[list[str | None]]) -> None:
    """The parameters that the optimizer of the state had, in the order in which it met them: one
    that grew step by step has another than a fresh one.
    """
    parameters = dict(strategy.model.named_parameters())
    for group, group_names in zip(strategy.optimizer.param_groups, names, strict=True):
        if None not in group_names:
            group["params"] = [parameters[str(name)] for name in group_names]


def load_model(model: nn.Module, state: dict[str, Tensor]) -> None:
    """`load_state_dict` into a model whose head has another number of rows. Ours resizes itself,
    Avalanche's does not.
    """
    for name, module in model.named_modules():
        if isinstance(module, IncrementalClassifier):
            rows = state[f"{name}.classifier.weight" if name else "classifier.weight"].shape[0]
            old = module.classifier
            if rows != old.out_features:
                module.classifier = nn.Linear(
                    old.in_features, rows, device=old.weight.device, dtype=old.weight.dtype
                )
                if module.masking:
                    module.active_units = module.active_units.new_zeros(rows)
    model.load_state_dict(state)


def load_rest(strategy: Strategy, state: State) -> None:
    """Everything but parameters: clock, plugins, what plugins read from evaluator and losses,
    random state.
    """
    vars(strategy.clock).update(state["clock"])
    saved = [entry["state"] for entry in state["plugins"] if entry["state"] is not None]
    plugins = [plugin for plugin in strategy.plugins if plugin_state(plugin) is not None]
    for plugin, plugins_state in zip(plugins, saved, strict=True):
        load_plugin(plugin, plugins_state)
    strategy.load_method_state(state["method"])
    strategy.losses.means = dict(state["losses"])
    strategy.evaluator.last_metric_results = dict(state["metrics"])
    set_random_state(state["random"], strategy.device)
    strategy.hardware.precision.load_state_dict(state.get("gradient_scale", {}))


def load_plugin(plugin: object, state: State) -> None:
    if isinstance(plugin, LRSchedulerPlugin):
        plugin.scheduler.load_state_dict(state["scheduler"])
        vars(plugin.rolling_metric).update(state["metric"])
        vars(plugin).update(state["flags"])
    elif isinstance(plugin, EarlyStoppingPlugin):
        vars(plugin).update(state)
    else:
        plugin.load_state_dict(state)  # type: ignore[attr-defined]


def set_random_state(state: State, device: torch.device) -> None:
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
