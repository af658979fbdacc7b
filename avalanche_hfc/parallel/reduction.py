"""Gradients of all ranks averaged by torch's DistributedDataParallel, for whichever parameters a
loss depends on.
"""

import warnings
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Trained(nn.Module):
    """Parameters that are trained, and nothing else: the forward pass has been computed."""

    def __init__(self, parameters: list[nn.Parameter]):
        super().__init__()
        self.own = nn.ParameterList(parameters)

    def forward(self) -> None:
        """Do nothing."""


class GradientMean:
    """Averages the gradients of a loss over the ranks while its backward pass runs.

    Methods compute their loss in many ways through several modules, so it is the graph of the loss
    that tells which parameters have a gradient. They are wrapped again whenever they change: a
    head that has grown, a phase that freezes the backbone.
    """

    def __init__(self) -> None:
        self._wrapped: DistributedDataParallel | None = None
        self._used: list[nn.Parameter] = []

    def backward(self, loss: Tensor, model: nn.Module) -> None:
        """Differentiate a loss; every rank must call it with one of the same parameters.

        Args:
            loss: A scalar. The `grad` of each parameter becomes the mean over the ranks.
            model: The model that is trained.

        Raises:
            ValueError: If the loss depends on a parameter that is not the model's.
        """
        met = leaves(loss)
        used = [parameter for parameter in model.parameters() if id(parameter) in met]
        if len(used) != len(met):
            raise ValueError(
                f"On several ranks all that is trained must be in the model; the loss depends on "
                f"{len(met) - len(used)} tensors outside {type(model).__name__}."
            )
        if len(used) != len(self._used) or any(
            a is not b for a, b in zip(used, self._used, strict=True)
        ):
            # a token that is broadcast over the batch has such a gradient; it is copied
            warnings.filterwarnings("ignore", message="Grad strides do not match bucket view")
            self._wrapped = None  # its hooks go before new ones come
            self._wrapped = DistributedDataParallel(Trained(used), init_sync=False)
            self._used = used
        assert self._wrapped is not None
        self._wrapped()  # expects a gradient of each parameter from now on
        loss.backward()


def leaves(loss: Tensor) -> set[int]:
    """The ids of the tensors that get a gradient from a loss."""
    met: set[Any] = set()
    found = set()
    left: list[Any] = [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        left.extend(below for below, _ in node.next_functions)
    return found
