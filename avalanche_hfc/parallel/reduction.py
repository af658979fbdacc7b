"""Gradients of all ranks averaged by torch's DistributedDataParallel, for whichever parameters a
loss depends on.
"""

from collections.abc import Iterator
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

    def backward(self, loss: Tensor) -> None:
        """Differentiate a loss; every rank must call it with a graph of the same form.

        Args:
            loss: A scalar. The `grad` of each parameter becomes the mean over the ranks.
        """
        used = list(leaves(loss))
        if len(used) != len(self._used) or any(
            a is not b for a, b in zip(used, self._used, strict=True)
        ):
            self._wrapped = None  # its hooks go before new ones come
            self._wrapped = DistributedDataParallel(Trained(used), init_sync=False)
            self._used = used
        assert self._wrapped is not None
        self._wrapped()  # expects a gradient of each parameter from now on
        loss.backward()


def leaves(loss: Tensor) -> Iterator[nn.Parameter]:
    """The tensors that get a gradient from a loss, each once, in an order that its graph gives."""
    met: set[Any] = set()
    left: list[Any] = [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        left.extend(below for below, _ in node.next_functions)
