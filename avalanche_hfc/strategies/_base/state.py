"""A strategy's state as tensors and plain data: one process saves it, another loads it and resumes
the training bit for bit.
"""

import copy
from dataclasses import dataclass

from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EarlyStoppingPlugin, EvaluationPlugin, LRSchedulerPlugin
from avalanche.training.plugins.clock import Clock
from avalanche.training.templates.base_sgd import PeriodicEval
from torch import Tensor, nn

from avalanche_hfc._types import Experience, State, Strategy
from avalanche_hfc.plugins.herding import HerdingReplayPlugin
from avalanche_hfc.plugins.losses import HostedPlugin
from avalanche_hfc.plugins.steps import StepTable, classes_of
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies._base.randomness import random_state, set_random_state
from avalanche_hfc.strategies._base.resume import StepProgress

FORMAT = 1
CLOCK = (
    "train_iterations",
    "train_exp_counter",
    "train_exp_epochs",
    "train_exp_iterations",
    "train_epoch_iterations",
    "total_iterations",
)
SCHEDULE_FLAGS = ("_was_training", "_just_validated", "_executed_train_iteration")
WITHOUT_STATE = (EvaluationPlugin, PeriodicEval, Clock)
KEYS = frozenset(
    (
        "turn phase settings method stop_training model teacher teacher_step optimizer "
        "optimizer_names optimizer_kind registered steps "
        "clock plugins losses metrics random"
    ).split()
)


@dataclass(frozen=True)
class SavedStep:
    """What is left to restore when the interrupted step is trained again: its start resets
    counters, may reset the optimizer, draws.
    """

    state: State

    def check(self, experience: Experience, table: StepTable) -> None:
        expected, given = table.classes_of_step(table.current), set(classes_of(experience))
        if expected != given:
            raise ValueError(
                f"The state was saved inside step {table.current}, with classes "
                f"{sorted(expected)}: train that experience next. "
                f"Got one with classes {sorted(given)}."
            )

    def restore(self, strategy: Strategy) -> None:
        state = copy.deepcopy(self.state)
        load_model(strategy.model, state["model"])
        strategy.optimizer.load_state_dict(state["optimizer"])
        load_rest(strategy, state)
        strategy._stop_training = state["stop_training"]


def save_state(strategy: Strategy) -> State:
    turn = strategy.progress.saving_turn()
    check_clock(strategy, turn)
    if strategy.progress.resume is not None:
        return copy.deepcopy(strategy.progress.resume.state)
    teacher = FrozenTeacher.of(strategy)
    return copy.deepcopy(
        {
            "format": FORMAT,
            "strategy": type(strategy).__name__,
            "turn": turn,
            "phase": None
            if strategy.phase_running is None
            else strategy.phase_running.state_dict(strategy),
            "settings": strategy.chosen(),
            "training": training_settings(strategy),
            "method": strategy.method_state(),
            "stop_training": strategy._stop_training,
            "model": dict(strategy.model.state_dict()),
            "teacher": None if teacher.model is None else dict(teacher.model.state_dict()),
            "teacher_step": teacher.taken_after,
            "optimizer": strategy.optimizer.state_dict(),
            "optimizer_names": optimizer_names(strategy),
            "optimizer_kind": type(strategy.optimizer).__name__,
            "registered": strategy.optimized_param_id is not None,
            "steps": StepTable.of(strategy).state_dict(),
            "clock": {name: getattr(strategy.clock, name) for name in CLOCK},
            "plugins": plugin_states(strategy),
            "losses": strategy.losses.means,
            "metrics": {
                name: value
                for name, value in strategy.evaluator.last_metric_results.items()
                if isinstance(value, int | float)
            },
            "random": random_state(strategy.device),
            "gradient_scale": strategy.precision.state_dict(),
        }
    )


def check_clock(strategy: Strategy, turn: list | None) -> None:
    """A plugin appended behind Avalanche's clock sees counters of the epoch or step to come."""
    clock = next(
        index for index, plugin in enumerate(strategy.plugins) if isinstance(plugin, Clock)
    )
    if turn is not None and turn[1] - 1 > clock:
        raise RuntimeError(
            "state_dict: not in a plugin behind Avalanche's Clock. Pass the plugin to the "
            "strategy, or insert it in front."
        )


def load_state(strategy: Strategy, state: State) -> None:
    if state.get("format") != FORMAT or state.get("strategy") != type(strategy).__name__:
        raise ValueError(
            f"load_state_dict: a state of {type(strategy).__name__} in format {FORMAT} is needed, "
            f"got {state.get('strategy')!r} in format {state.get('format')!r}."
        )
    missing = sorted(KEYS - state.keys())
    if missing:
        raise ValueError(f"load_state_dict: the state lacks {', '.join(missing)}.")
    optimizer_name = type(strategy.optimizer).__name__
    if state["optimizer_kind"] != optimizer_name:
        raise ValueError(
            f"load_state_dict: the state is of {state['optimizer_kind']}, the strategy's "
            f"optimizer is {optimizer_name}."
        )
    check_settings(strategy, state)
    check_training(strategy, state)
    check_plugins(strategy, state)
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
    load_teacher(strategy, state)
    load_rest(strategy, state)
    strategy.progress = StepProgress()
    strategy.progress.resume = SavedStep(state) if state["turn"] else None


def optimizer_names(strategy: Strategy) -> list[list[str | None]]:
    """The names of the parameters of each group: an optimizer's own state knows them by their place
    only. None: not the model's.
    """
    names = {id(parameter): name for name, parameter in strategy.model.named_parameters()}
    return [
        [names.get(id(parameter)) for parameter in group["params"]]
        for group in strategy.optimizer.param_groups
    ]


def order_parameters(strategy: Strategy, names: list[list[str | None]]) -> None:
    """The parameters that the optimizer of the state had, in the order in which it met them: one
    that grew step by step has another than a fresh one.
    """
    parameters = dict(strategy.model.named_parameters())
    for group, group_names in zip(strategy.optimizer.param_groups, names, strict=True):
        if None not in group_names:
            group["params"] = [parameters[str(name)] for name in group_names]


def load_rest(strategy: Strategy, state: State) -> None:
    """Everything but parameters: clock, plugins, what plugins read from evaluator and losses,
    random state.
    """
    vars(strategy.clock).update(state["clock"])
    load_plugins(strategy, state["plugins"])
    strategy.load_method_state(state["method"])
    strategy.losses.means = dict(state["losses"])
    strategy.evaluator.last_metric_results = dict(state["metrics"])
    set_random_state(state["random"], strategy.device)
    strategy.precision.load_state_dict(state.get("gradient_scale", {}))


def load_teacher(strategy: Strategy, state: State) -> None:
    strategy.frozen_teacher = FrozenTeacher()
    if state["teacher"] is not None:
        model = copy.deepcopy(strategy.model)
        load_model(model, state["teacher"])
        strategy.frozen_teacher.hold(model, state["teacher_step"])


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
        return {name: getattr(plugin, name) for name in ("best_state", "best_val", "best_step")}
    if hasattr(plugin, "state_dict"):
        return plugin.state_dict()
    if type(plugin).__module__.startswith("avalanche.") and not isinstance(plugin, WITHOUT_STATE):
        name = type(plugin).__name__
        raise ValueError(
            f"state_dict: {name} gives no state. Subclass it with state_dict and "
            "load_state_dict, or leave it out."
        )
    return None


def check_settings(strategy: Strategy, state: State) -> None:
    """Raise for a state with other options: to resume it would be another training."""
    now = strategy.chosen()
    before = state["settings"]
    unknown = [name for name in now if name not in before]
    if unknown:
        raise ValueError(
            f"load_state_dict: the state does not say what {', '.join(unknown)} was: an earlier "
            "version saved it, which trained otherwise. "
            "Train again, or resume with that version."
        )
    changed = [
        f"{name} {before.get(name)!r}, now {value!r}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"load_state_dict: the state was trained with other options ({'; '.join(changed)})."
        )


def training_settings(strategy: Strategy) -> State:
    """What the strategy was given for its training beside the options of the method."""
    return {
        "learning rate": strategy.optimizer.defaults.get("lr"),
        "train_mb_size": strategy.train_mb_size,
        "train_epochs": strategy.given_epochs,
    }


def check_training(strategy: Strategy, state: State) -> None:
    """Raise for a state of another learning rate or batch size, and inside a step of another number
    of epochs: between steps that may change.
    """
    before = state.get("training", {})  # an earlier version did not keep it
    changed = [
        f"{name} {before[name]!r}, now {value!r}"
        for name, value in training_settings(strategy).items()
        if name in before
        and before[name] != value
        and (name != "train_epochs" or state["turn"] is not None)
    ]
    if changed:
        raise ValueError(
            f"load_state_dict: the state was trained otherwise ({'; '.join(changed)}). Build the "
            "strategy as it was."
        )


def check_plugins(strategy: Strategy, state: State) -> None:
    """Raise unless the plugins are those of the state: the ones with a state, and inside a step,
    where each has its turn, all.
    """
    entries = zip(("saved", "present"), (state["plugins"], plugin_states(strategy)), strict=True)
    names = {
        which: [e["plugin"] for e in plugins if state["turn"] or e["state"] is not None]
        for which, plugins in entries
    }
    if names["saved"] != names["present"]:
        raise ValueError(
            f"load_state_dict: the state has plugins {names['saved']}, the strategy "
            f"{names['present']}. Build the strategy as it was."
        )
    saved = {entry["plugin"]: entry["state"] for entry in state["plugins"]}
    for plugin in strategy.plugins:
        if isinstance(plugin, HostedPlugin | HerdingReplayPlugin):
            plugin.check_state(saved[type(plugin).__name__])


def load_plugins(strategy: Strategy, states: list[State]) -> None:
    with_state = [plugin for plugin in strategy.plugins if plugin_state(plugin) is not None]
    for plugin, saved in zip(
        with_state, [entry["state"] for entry in states if entry["state"] is not None], strict=True
    ):
        if isinstance(plugin, LRSchedulerPlugin):
            plugin.scheduler.load_state_dict(saved["scheduler"])
            vars(plugin.rolling_metric).update(saved["metric"])
            vars(plugin).update(saved["flags"])
        elif isinstance(plugin, EarlyStoppingPlugin):
            vars(plugin).update(saved)
        else:
            plugin.load_state_dict(saved)
