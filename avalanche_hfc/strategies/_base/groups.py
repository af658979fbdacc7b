"""The groups of the user's optimizer as they were at construction: what later phases, and a rule of
a method's own, are relative to.
"""

from collections.abc import Callable, Iterable

from torch import nn
from torch.optim import Optimizer

from avalanche_hfc._types import Options, Strategy


class FirstGroups:
    """Options of each group at construction. A schedule changes rates, growth changes parameters;
    the number of a group stays.
    """

    def __init__(self, optimizer: Optimizer):
        self.options = [options_of(optimizer, group) for group in optimizer.param_groups]

    def rate(self, optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> float:
        """The rate of these parameters at construction, such as those of a head."""
        return rate_of(self._options(optimizer, group_number(optimizer, parameters)))

    def course(self, optimizer: Optimizer, parameter: nn.Parameter) -> float:
        """What schedules have made of this parameter's rate: the rate now as a part of that at
        construction, at most 1.

        A rate that rises above the first one comes from a schedule that started low: the first one
        was not its full rate.
        """
        number = group_number(optimizer, [parameter])
        first, now = (
            rate_of(self._options(optimizer, number)),
            current_rate(optimizer.param_groups[number]),
        )
        return min(now / first, 1.0) if first else float(now > 0)

    def mirrored(
        self,
        strategy: Strategy,
        module: nn.Module,
        lr: Callable[[float], float],
        **overrides: object,
    ) -> list[Options]:
        """Groups for the parameters of `module` that train, each with the options of the model's
        parameter of the same name.

        `lr` makes the rate of a group of the rate that it had at construction; `overrides` hold for
        all groups.
        """
        optimizer = strategy.optimizer
        owners = {
            id(parameter): number
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        numbers = {
            name: owners.get(id(parameter), len(self.options) - 1)
            for name, parameter in strategy.model.named_parameters()
        }
        members: dict[int, list[nn.Parameter]] = {}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                members.setdefault(numbers[name], []).append(parameter)
        groups = []
        for number, parameters in sorted(members.items()):
            options = self._options(optimizer, number)
            wanted = {**options, "lr": lr(rate_of(options)), **overrides}
            groups.append(
                {
                    "params": parameters,
                    **{name: value for name, value in wanted.items() if name in options},
                }
            )
        return groups

    def _options(self, optimizer: Optimizer, number: int) -> Options:
        """Those at construction; of a group that came later, those it has now."""
        if number < len(self.options):
            return self.options[number]
        return options_of(optimizer, optimizer.param_groups[number])


def options_of(optimizer: Optimizer, group: Options) -> Options:
    """The options of a group that an optimizer of the same kind takes, with the rate that
    schedulers of torch started from.
    """
    options = {name: value for name, value in group.items() if name in optimizer.defaults}
    return {**options, "lr": group["initial_lr"]} if "initial_lr" in group else options


def rate_of(options: Options) -> float:
    """1 where an optimizer knows no rate."""
    return float(options.get("lr", 1.0))


def current_rate(group: Options) -> float:
    return float(group.get("lr", 1.0))


def group_number(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> int:
    """The group that holds one of these parameters; the last one, where the heads usually stand, if
    none does.
    """
    wanted = {id(parameter) for parameter in parameters}
    held = [
        number
        for number, group in enumerate(optimizer.param_groups)
        if any(id(parameter) in wanted for parameter in group["params"])
    ]
    return (held or [len(optimizer.param_groups) - 1])[-1]
