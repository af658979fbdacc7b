"""Nearest class mean: the mean of each class on frozen features. The accuracy without training."""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.models import ClassMeanHead, GrowingLinear
from avalanche_hfc.strategies._base.frozen import OnePass


class NCM(OnePass):
    """Nearest class mean: predicts the class with the nearest mean of frozen features.

    The prediction is argmin_k ‖f̂ - c_k‖², where f̂ is the unit feature of an image and c_k the unit
    mean of the unit features of all training images of class k. There is no memory and no training:
    each image is seen once. The head of the model becomes a `ClassMeanHead`, so the accuracy of the
    head and that of the nearest class mean are the same number.

    Args:
        model: A model with `embed` and `classify`.
        optimizer: An optimizer over the parameters of the model, as Avalanche requires; not used.
        criterion: The loss that is logged; nothing is trained by it.
        train_epochs: Must be 1.
        drop_last: Must be False: every image counts.
        plugins: Further plugins; the list is not changed.
        **base_kwargs: Arguments of `IncrementalTemplate` and of Avalanche's SupervisedTemplate.

    Raises:
        ValueError: If a value is not allowed.
    """

    head_kind = ClassMeanHead

    def make_head(self, linear: GrowingLinear) -> ClassMeanHead:
        return ClassMeanHead(linear.in_features)

    def learn(self, embedding: Float[Tensor, "b D"], targets: Int[Tensor, "b"]) -> None:
        self.model.head.add(embedding, targets)

    def class_means(self) -> dict[int, Float[Tensor, "D"]] | None:
        return self.model.head.means() or None
