"""The training loop of HFC's released code: loss, learning rates, and the optimizer's defects."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from avalanche_hfc._types import Options, Strategy
from avalanche_hfc.losses import official_hfc
from avalanche_hfc.plugins.hosts import Criterion, check_criterion
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.rates import cosine, warm_up
from avalanche_hfc.plugins.steps import StepTable, check_ranks
from avalanche_hfc.plugins.teacher import TeacherPlugin, teacher_logits


class OfficialLossPlugin(TeacherPlugin):
    """`official_hfc` as the criterion in training; `eval_criterion` in evaluation.

    Criterion and plugin in one, as in Avalanche's ICaRL: pass it to a strategy as `criterion`.
    """

    def __init__(self, *, eval_criterion: Criterion):
        super().__init__()
        self.eval_criterion = eval_criterion
        self._strategy: Any = None

    def before_training(self, strategy: Strategy, **kwargs: object) -> None:
        check_ranks(type(self).__name__, strategy)
        self._strategy = strategy
        try:
            check_criterion(self.eval_criterion)
        except ValueError as error:
            raise ValueError(
                f"Form 'official' cannot act in {type(strategy).__name__}: {error}."
            ) from None

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self._strategy is None or not self._strategy.is_training:
            return self.eval_criterion(logits, targets)
        table = StepTable.of(self._strategy)
        teacher = teacher_logits(self._strategy, self._strategy.mb_x) if table.num_old else None
        return official_hfc(logits, targets, teacher, table.on(logits))


class WarmUpCosinePlugin(RankedPlugin):
    """Learning rate of each epoch, the same in every step: `warm_up` epochs, then a cosine.

    The rate of a parameter group is `lr` times its entry `scale` (1 without one). Epoch e of the
    warm-up has the fraction (e+1)/(warm_up+1) of the rate. The cosine runs over all epochs of the
    step, from `lr` to `lowest_lr`.
    """

    def __init__(self, *, lr: float, lowest_lr: float, warm_up: int):
        super().__init__()
        self.lr, self.lowest_lr, self.warm_up = lr, lowest_lr, warm_up

    def rate(self, epoch: int, num_epochs: int) -> float:
        """The learning rate of an epoch, counted from 0 within the step."""
        if epoch < self.warm_up:
            return warm_up(self.lr, epoch, self.warm_up)
        return cosine(self.lr, self.lowest_lr, epoch, num_epochs)

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        rate = self.rate(strategy.clock.train_exp_epochs, strategy.train_epochs)
        for group in strategy.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)


class OptimizerQuirksPlugin(RankedPlugin):
    """Two defects of the released code: a new optimizer every epoch, and an empty parameter group.

    The group of TSA, token and head is empty in two epochs out of three. Its gradients are removed
    in these epochs, so that the optimizer changes nothing and no schedule is disturbed. With a
    single parameter group only the moments start anew.
    """

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        strategy.optimizer.state.clear()

    def before_update(self, strategy: Strategy, **kwargs: object) -> None:
        if strategy.clock.train_exp_epochs % 3:
            for group in further_groups(strategy.optimizer):
                for parameter in group["params"]:
                    parameter.grad = None


def further_groups(optimizer: Optimizer) -> list[Options]:
    """The groups after the first; with a `scale`, those whose scale differs from the first's."""
    first, *others = optimizer.param_groups
    return [
        group for group in others if "scale" not in first or group.get("scale") != first["scale"]
    ]
