"""The phases of a step after the main epochs, such as balanced tuning and compression, each with
its data, optimizer and loss.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_
from torch.optim import Optimizer

from avalanche_hfc._types import HostDataset, Options, State, Strategy
from avalanche_hfc.plugins.rates import cosine
from avalanche_hfc.ranks import begin_epoch
from avalanche_hfc.strategies._base.epoch_log import sum_of
from avalanche_hfc.strategies._base.groups import FirstGroups
from avalanche_hfc.strategies._base.state import random_state, set_random_state

COUNTED = (
    "train_iterations",
    "train_exp_iterations",
    "total_iterations",
)  # of Avalanche's clock: a batch of a phase is an iteration


def do_nothing() -> None:
    pass


@dataclass(eq=False)
class Phase:
    """Epochs after the main ones, with another loss, on other data.

    The parameters of `module` that require gradients are trained, by an optimizer of the same class
    as the strategy's, with a fresh state and the parameter groups that the strategy's had at
    construction.

    Args:
        name: Name of the phase, as in ``strategy.phase``.
        num_epochs: Number of epochs.
        first_groups: The parameter groups of the strategy's optimizer at construction.
        lr: Maps the learning rate of a group in `first_groups` to that in the phase.
        module: Returns the module to train; called when the phase begins.
        data: Returns the data of the phase.
        loss: Maps images and targets to loss terms by name; their sum is minimised. On several
            ranks the images are the share of this one, the targets those of the whole batch.
        entered: Returns a context manager that holds for all epochs. It is entered again when an
            interrupted phase is resumed.
        start: Called once, before the first epoch; not when the phase is resumed.
        finish: Called once, after the last epoch.
        schedule: ``"constant"``, or ``"cosine"`` for rates that fall to 0 along a cosine.
        overrides: Options of the optimizer for all groups, such as `weight_decay`.
        limit: Gradient entries are clipped to ±limit; None for no clipping.
        in_order: Read the data in its order, without shuffling, and leave out an incomplete last
            batch.
    """

    name: str
    num_epochs: int
    first_groups: FirstGroups
    lr: Callable[[float], float]
    module: Callable[[], nn.Module]
    data: Callable[[], HostDataset]
    loss: Callable[[Tensor, Tensor], Mapping[str, Tensor]]
    entered: Callable[[], AbstractContextManager[None]]
    start: Callable[[], None] = do_nothing
    finish: Callable[[], None] = do_nothing
    schedule: Literal["constant", "cosine"] = "constant"
    overrides: Mapping[str, object] = field(default_factory=dict)
    limit: float | None = None
    in_order: bool = False
    epoch: int = field(default=0, init=False)
    optimizer: Optimizer = field(init=False)
    rates: list[float] = field(init=False)
    batch: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    def run(self, strategy: Strategy, saved: State | None, **kwargs: object) -> None:
        """Train all epochs, or the remaining ones of an interrupted phase.

        Args:
            strategy: The strategy that is training.
            saved: A return value of `state_dict`; None to begin the phase.
            **kwargs: The arguments that `train` was given.
        """
        if saved is None:
            self.start()
        before = random_state(strategy.device)
        with self.entered():
            groups = self.first_groups.mirrored(strategy, self.module(), self.lr, **self.overrides)
            self.optimizer = optimizer_like(strategy.optimizer, groups)
            self.rates = [group.get("lr", 1.0) for group in groups]
            if saved is not None:
                self.load_state_dict(saved)
                # what is drawn on entering was drawn before the state was saved
                set_random_state(before, strategy.device)
            strategy.phase_running = self
            try:
                self._epochs(strategy, begun=saved is not None and saved["begun"], **kwargs)
            finally:
                strategy.phase_running = None
        self.finish()

    def _epochs(self, strategy: Strategy, *, begun: bool, **kwargs: object) -> None:
        data = self.data()
        if self.in_order:
            order = {"drop_last": len(data) >= strategy.train_mb_size}
        else:
            drop_last = strategy.drops_last(len(data), kwargs.get("drop_last"))
            order = {"shuffle": True, "drop_last": drop_last}
        loader = strategy.shared(strategy.loader_of(data, strategy.train_mb_size, kwargs, **order))
        while self.epoch < self.num_epochs:
            strategy.seed_draws(loader.dataset, self.name, self.epoch)
            if not begun:
                strategy.progress.call(strategy, "before_phase_epoch", **kwargs)
            begun = False
            strategy.losses.start()
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * lr_factor(self.schedule, self.epoch, self.num_epochs)
            begin_epoch(strategy)
            with strategy.hardware.epoch():
                for batch in loader:
                    strategy.share = getattr(loader, "share", None)
                    x, targets = (
                        column.to(strategy.device, non_blocking=True) for column in batch[:2]
                    )
                    self._iteration(
                        strategy, strategy.hardware.arrange(x), strategy.gathered(targets)
                    )
            strategy.share = None
            strategy.losses.finish(step=strategy.clock.train_exp_counter, epoch=self.epoch)
            strategy.progress.call(strategy, "after_phase_epoch", **kwargs)
            self.epoch += 1

    def _iteration(self, strategy: Strategy, x: Tensor, targets: Tensor) -> None:
        torch.clear_autocast_cache()
        self.batch = (x, targets)
        tell_plugins(strategy, "before_phase_iteration")
        self.optimizer.zero_grad()
        with strategy.hardware.precision.autocast():
            terms = self.loss(x, targets)
            total = sum_of(terms)
        strategy.differentiate(total, self.module(), self.optimizer)
        if self.limit is not None:
            clip_grad_value_(
                [
                    parameter
                    for group in self.optimizer.param_groups
                    for parameter in group["params"]
                ],
                self.limit,
            )
        self.optimizer.step()
        strategy.loss_terms = {name: term.detach() for name, term in terms.items()}
        strategy.losses.add(total.detach(), strategy.loss_terms)
        for count in COUNTED:
            setattr(strategy.clock, count, getattr(strategy.clock, count) + 1)
        tell_plugins(strategy, "after_phase_iteration")
        self.batch, strategy.loss_terms = None, {}

    def state_dict(self, strategy: Strategy) -> State:
        """The state of a running phase, to resume it from.

        Args:
            strategy: The strategy that is training.

        Returns:
            Tensors and plain data only.
        """
        module, begun = self.module(), strategy.progress.event == "before_phase_epoch"
        return {
            "name": self.name,
            "epoch": self.epoch if begun else self.epoch + 1,
            "begun": begun,
            "optimizer": self.optimizer.state_dict(),
            "module": None if module is strategy.model else dict(module.state_dict()),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned.

        Args:
            state: A return value of `state_dict`.
        """
        self.epoch = state["epoch"]
        self.optimizer.load_state_dict(state["optimizer"])
        if state["module"] is not None:
            self.module().load_state_dict(state["module"])


class Phased:
    """Mix-in for a strategy whose steps have phases after the main epochs."""

    phase_running: Phase | None = None

    def phases(self) -> Sequence[Phase]:
        """Hook: the phases that follow the main epochs of the current step.

        Returns:
            The phases in the order in which they run. By default there are none.
        """
        return ()

    def later_epochs(self: Any, saved: State | None, **kwargs: object) -> None:
        for phase in self.phases():
            if saved is None or phase.name == saved["name"]:
                phase.run(self, saved, **kwargs)
                saved = None

    def phase_state(self: Any) -> State | None:
        return None if self.phase_running is None else self.phase_running.state_dict(self)


def tell_plugins(strategy: Strategy, event: str) -> None:
    for plugin in strategy.plugins:
        if hasattr(plugin, event):
            getattr(plugin, event)(strategy)


def lr_factor(schedule: str, epoch: int, num_epochs: int) -> float:
    return 1.0 if schedule == "constant" else cosine(1.0, 0.0, epoch, num_epochs)


def optimizer_like(
    optimizer: Optimizer,
    parameters: Iterable[nn.Parameter] | Iterable[Options],
    **overrides: object,
) -> Optimizer:
    """An optimizer of the same class and options for other parameters, with a fresh state."""
    accepted = inspect.signature(type(optimizer).__init__).parameters
    takes_all = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values()
    )
    options = {
        **optimizer.defaults,
        **{name: value for name, value in overrides.items() if name in optimizer.defaults},
    }
    return type(optimizer)(
        parameters,
        **{name: value for name, value in options.items() if takes_all or name in accepted},
    )


@contextmanager
def trained_only(model: nn.Module, *parts: nn.Module, eval_mode: bool = False) -> Iterator[None]:
    """A context in which only these parts of the model are trained.

    The rest is in eval mode if `eval_mode` is True. Flags and modes are restored at the end.
    """
    flags = {parameter: parameter.requires_grad for parameter in model.parameters()}
    modes = {module: module.training for module in model.modules()}
    try:
        model.requires_grad_(False)
        if eval_mode:
            model.eval()
        for part in parts:
            part.requires_grad_()
            part.train()
        yield
    finally:
        for parameter, flag in flags.items():
            parameter.requires_grad_(flag)
        for module, training in modes.items():
            module.training = training
