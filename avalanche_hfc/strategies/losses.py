"""Loss terms of an epoch: means for the log, and a flag for a value that is not finite. Kept on the device, read once per epoch."""

import torch
from torch import Tensor


class EpochLosses:
    """`means` holds the last epoch's mean of each term by name. `total` is what was minimised."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        self._names: list[str] = []
        self._count = 0

    def add(self, total: Tensor, terms: dict[str, Tensor]) -> None:
        """One batch. The terms of the first batch that is not finite are kept for the message."""
        values = torch.stack([total.reshape(()).float(), *(term.reshape(()).float() for term in terms.values())])
        if not self._count:
            self._names = ["total", *terms]
            self._sums, self._suspect, self._failed = torch.zeros_like(values), values, torch.zeros_like(values[0], dtype=torch.bool)
        self._count += 1
        self._sums = self._sums + values
        self._suspect = torch.where(self._failed, self._suspect, values)
        self._failed = self._failed | ~values[0].isfinite()

    def finish(self, *, step: int, epoch: int) -> None:
        """Read the epoch. A FloatingPointError if a batch's loss was NaN or infinite."""
        if not self._count:
            return
        if self._failed:
            terms = ", ".join(f"{name} {value:g}" for name, value in zip(self._names, self._suspect.tolist(), strict=True))
            raise FloatingPointError(f"The loss is not finite in step {step}, epoch {epoch} (counted from 0). First such batch: {terms}.")
        self.means = dict(zip(self._names, (self._sums / self._count).tolist(), strict=True))
