"""What train.csv tells of an epoch beside its losses: how GFC weighed the samples, and a digest of the weights."""

import hashlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from avalanche_hfc.plugins.steps import StepTable


class WeightWatch:
    """Looks on as a strategy computes W_i of Eq. 9, batch by batch: nothing is computed again, and nothing read before the epoch is over.

    Looks at the two places where the weights come from, the step table of the plugins and `sample_weights` of a method.
    """

    def __init__(self) -> None:
        self._batch: tuple[Tensor, Tensor] | None = None  # W_i and the step of each sample
        self.start()

    def start(self) -> None:
        """A new epoch."""
        self._sums: Tensor | None = None  # n, Σ W_i, Σ W_i², samples alone in their step

    def attach(self, strategy: Any) -> None:
        table = StepTable.of(strategy)
        of_table = table.weights

        def table_weights(logits: Tensor, targets: Tensor) -> Tensor:
            weights = of_table(logits, targets)
            self._batch = (weights.detach(), table.on(logits)[targets])
            return weights

        table.weights = table_weights  # type: ignore[method-assign]
        of_method = getattr(strategy, "sample_weights", None)
        if of_method is None:
            return

        def sample_weights(logits: Tensor, targets: Tensor, steps: Tensor) -> Tensor:
            weights = of_method(logits, targets, steps)
            self._batch = (weights.detach(), steps[targets])
            return weights

        strategy.sample_weights = sample_weights

    def add_batch(self) -> None:
        """Count the batch that was weighed last, if one was since the last call."""
        if self._batch is None:
            return
        (weights, steps), self._batch = self._batch, None
        weights = weights.double()
        alone = (steps[:, None] == steps[None, :]).sum(1) == 1
        sums = torch.stack([torch.ones_like(weights).sum(), weights.sum(), weights.square().sum(), alone.double().sum()])
        self._sums = sums if self._sums is None else self._sums + sums

    def numbers(self) -> dict[str, float | None]:
        """Standard deviation of the weights and share of samples alone in their step, over the epoch; None where nothing was weighed."""
        if self._sums is None:
            return {"weight_spread": None, "alone_fraction": None}
        n, total, squares, alone = self._sums.tolist()
        return {"weight_spread": math.sqrt(max(squares / n - (total / n) ** 2, 0.0)), "alone_fraction": alone / n}


def digest(module: nn.Module) -> str:
    """16 hexadecimal digits that change if any bit, name or form of the parameters and buffers does."""
    found = hashlib.sha256()
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            found.update(f"{name} {value!r}\n".encode())
    return found.hexdigest()[:16]
