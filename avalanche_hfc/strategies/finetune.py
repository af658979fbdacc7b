"""Fine-tuning: cross-entropy over the classes seen, on the new data alone. What every method must
beat.
"""

from avalanche_hfc.strategies._base.method import Method


class FineTune(Method):
    """Fine-tuning: cross-entropy over the classes seen, on the data of the step alone.

    Without a memory, old classes are forgotten; every method should do better. With HFC's losses
    all samples of a batch are new: the weights act within the new step, and L_RD is added.

    Args:
        model: The model to train.
        optimizer: An optimizer over the parameters of the model.
        criterion: Loss used in evaluation only.
        losses: Losses of HFC, from the second step on: ``"host"`` for none, ``"gfc"`` to weight the
            classification loss as L_FC does, ``"grd"`` to replace the distillation of logits by
            L_RD (or add L_RD if there is none), ``"hfc"`` for both.
        gradient: Source of the weights of L_FC: ``"host"`` for the gradient of the method's loss,
            ``"softmax"`` for that of the softmax over all classes seen.
        plugins: Further plugins; the list is not changed.
        memory: A replay plugin.
        own_plugins: Plugins of a subclass, placed after all others.
        **base_kwargs: Arguments of `IncrementalTemplate` and of Avalanche's SupervisedTemplate.
    """

    takes_herding_replay = False
