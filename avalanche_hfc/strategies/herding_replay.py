"""Herding replay: fine-tuning with exemplars. What a method with a memory must beat."""

from avalanche_hfc.strategies._base.replay import ReplayMethod


class HerdingReplay(ReplayMethod):
    """Fine-tuning with exemplars: cross-entropy on new data and exemplars in one shuffled pool.

    There is no teacher; every method with a memory should do better. ``losses="hfc"`` gives L_FC +
    L_RD.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        mem_size: Number of exemplars of all classes together. 2000 if `per_class` is not given
            either.
        per_class: Number of exemplars of each class.
        rule: How exemplars are chosen, see `herding_order`. By default the rule of the method.
        own_plugins: Plugins of a subclass, placed after all others.
        **kwargs: Arguments of `FineTune`, such as `losses` and `gradient`,
            and of Avalanche's SupervisedTemplate.
    """
