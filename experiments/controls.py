"""HFC with one thing taken out of L_RD, to see which of them helps. None is a method to use:
`experiments/variants.py` trains them on held-out images, with HFC's network.

`b` samples, `C` columns; a column is a class id. `steps` holds the step that introduced each class.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.losses import cross_entropy
from avalanche_hfc.losses._common import ClassGroups, log_probabilities, one_hot, seen_columns
from avalanche_hfc.losses.relation import prototype_terms, relation_average
from avalanche_hfc.strategies import Baseline


def class_shares(targets: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    """n_k K/b for the class k of each sample, where K classes are in the batch: times this, a mean
    over classes is one over samples; divided by it, a mean over samples is one over classes.
    """
    sizes = (targets[:, None] == targets).sum(1).float()
    return sizes * (1 / sizes).sum() / len(targets)


class Reweighted(Baseline):
    """L_RD with its terms weighted by the class and step of a sample, besides by gradients."""

    def factors(self, targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Tensor:
        """The factor of each sample, shape ``(b,)``."""
        raise NotImplementedError

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        return super().relation(logits, targets, steps, weights * self.factors(targets, steps))


class SampleMean(Reweighted):
    """L_RD as a mean over samples: a class counts as often as it is in the batch."""

    def factors(self, targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Tensor:
        return class_shares(targets)


class OldClasses(Reweighted):
    """L_RD without the terms of new classes."""

    def factors(self, targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Tensor:
        return steps[targets] < steps.amax()


class NewClasses(Reweighted):
    """L_RD without the terms of old classes."""

    def factors(self, targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> Tensor:
        return steps[targets] == steps.amax()


class Labels(Baseline):
    """L_RD towards the labels: its prototypes, weights and mean over classes, but no teacher."""

    def relation(
        self,
        logits: Float[Tensor, "b C"],
        targets: Int[Tensor, "b"],
        steps: Int[Tensor, "C"],
        weights: Float[Tensor, "b"],
    ) -> Float[Tensor, ""]:
        predictions = log_probabilities(seen_columns(steps), logits)
        classes = ClassGroups.of(targets, predictions)
        terms = prototype_terms(predictions, one_hot(targets, predictions), classes)
        return relation_average(terms.sum(1), weights, classes, steps, "present")


class ClassMean(Baseline):
    """The baseline with its cross-entropy as a mean over classes from the second step on: the
    balance of L_RD without its targets.
    """

    def classification(
        self, logits: Float[Tensor, "b C"], targets: Int[Tensor, "b"], steps: Int[Tensor, "C"]
    ) -> Float[Tensor, "b"]:
        losses = cross_entropy(logits, targets, steps)
        return losses / class_shares(targets) if self.num_old else losses
