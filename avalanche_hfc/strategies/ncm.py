"""Nearest class mean: the features of the model as it was given, and the mean of each class. What
doing nothing costs.
"""

from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc.models import ClassMeanHead, GrowingLinear
from avalanche_hfc.strategies._base.frozen import OnePass


class NCM(OnePass):
    """Predicts argmin_k ‖f̂ - c_k‖²: f̂ is the unit feature of an image, c_k the unit mean of the
    unit features of all training images of class k.

    No memory and no training: each image is seen once. The model's head becomes a ClassMeanHead,
    so that its accuracy and that of the nearest class mean are one number.
    """

    head_kind = ClassMeanHead

    def make_head(self, linear: GrowingLinear) -> ClassMeanHead:
        return ClassMeanHead(linear.in_features)

    def learn(self, embedding: Float[Tensor, "b D"], targets: Int[Tensor, "b"]) -> None:
        self.model.head.add(embedding, targets)

    def class_means(self) -> dict[int, Float[Tensor, "D"]] | None:
        return self.model.head.means() or None
