"""The learning rate, weight decay and number of epochs of a step, as functions of step and epoch:
nothing to save, nothing to reset.
"""

from avalanche_hfc._types import Strategy
from avalanche_hfc.lab import TrainRecipe
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.rates import cosine, warm_up


class SchedulePlugin(RankedPlugin):
    """Sets what `TrainRecipe` says of epochs, rate and decay. A group's rate is multiplied by its
    entry `scale` (1 without one).
    """

    def __init__(self, train: TrainRecipe, *, total_steps: int):
        super().__init__()
        self.recipe = train
        self.total_steps = total_steps

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        step = strategy.clock.train_exp_counter
        strategy.train_epochs = epochs_of(self.recipe, step)
        if self.recipe.decay_by_step:
            for group in strategy.optimizer.param_groups:
                if group.get("decays", True):
                    group["weight_decay"] = self.recipe.weight_decay * self.total_steps / (step + 1)

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        rate = lr_of(self.recipe, strategy.clock.train_exp_epochs, strategy.train_epochs)
        for group in strategy.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)


def epochs_of(train: TrainRecipe, step: int) -> int:
    """Epochs of a step, counted from 0."""
    return train.first_epochs if step == 0 and train.first_epochs is not None else train.epochs


def lr_of(train: TrainRecipe, epoch: int, num_epochs: int) -> float:
    """The rate of an epoch, counted from 0, of a step of `num_epochs`."""
    epoch = max(epoch - train.schedule_delay, 0)
    if epoch < train.warm_up_epochs:
        return warm_up(train.lr, epoch, train.warm_up_epochs, train.warm_up_lr)
    if train.schedule == "cosine":
        assert train.lowest_lr is not None
        return cosine(train.lr, train.lowest_lr, epoch, num_epochs)
    if train.schedule == "drops":
        assert train.drop_factor is not None
        return train.lr * train.drop_factor ** sum(
            epoch >= round(fraction * num_epochs) for fraction in train.drops_at
        )
    return train.lr
