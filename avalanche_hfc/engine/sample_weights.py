"""What train.csv tells of an epoch beside its losses: how GFC weighed the samples, and a digest of
the weights.
"""

import hashlib
import math

import torch
from torch import Tensor, nn

from avalanche_hfc.plugins.steps import SampleWeights


class WeightSpread:
    """How W_i of Eq. 9 spread over the samples of an epoch. Sums are kept on the device and read
    once, when the epoch is over.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new epoch."""
        self._sums: Tensor | None = None  # n, Σ W_i, Σ W_i², samples alone in their step

    def add(self, batch: SampleWeights | None) -> None:
        """Count a batch; None: it was not weighed."""
        if batch is None:
            return
        weights = batch.weights.double()
        alone = (batch.steps[:, None] == batch.steps[None, :]).sum(1) == 1
        sums = torch.stack(
            [
                torch.ones_like(weights).sum(),
                weights.sum(),
                weights.square().sum(),
                alone.double().sum(),
            ]
        )
        self._sums = sums if self._sums is None else self._sums + sums

    def numbers(self) -> dict[str, float | None]:
        """Standard deviation of the weights and share of samples alone in their step, over the
        epoch; None where nothing was weighed.
        """
        if self._sums is None:
            return {"weight_spread": None, "alone_fraction": None}
        n, total, squares, alone = self._sums.tolist()
        return {
            "weight_spread": math.sqrt(max(squares / n - (total / n) ** 2, 0.0)),
            "alone_fraction": alone / n,
        }


def digest(module: nn.Module) -> str:
    """16 hexadecimal digits that change if any bit, name or form of the parameters and buffers
    does.
    """
    sha256 = hashlib.sha256()
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            sha256.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            sha256.update(
                value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            )
        else:
            sha256.update(f"{name} {value!r}\n".encode())
    return sha256.hexdigest()[:16]
