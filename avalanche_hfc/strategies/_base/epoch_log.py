"""Loss terms of an epoch: means for the log, and a flag for a value that is not finite. Kept on the
device, read once per epoch.
"""

from collections.abc import Mapping

import torch
from torch import Tensor


class EpochLosses:
    """`means` holds the last epoch's mean of each term by name. `total` is what was minimised.

    A plugin takes part by an attribute `loss_terms`, a dict of scalar tensors. A term is averaged
    over the batches that had it.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._suspect: dict[
            str, Tensor
        ] = {}  # terms of the first batch that is not finite, else of the last batch
        self._failed: Tensor | None = None

    def add(self, total: Tensor, terms: dict[str, Tensor]) -> None:
        values = {
            name: value.detach().reshape(()).float()
            for name, value in {"total": total, **terms}.items()
        }
        failed = (
            self._failed
            if self._failed is not None
            else torch.zeros_like(values["total"], dtype=torch.bool)
        )
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1
            self._suspect[name] = torch.where(failed, self._suspect.get(name, value), value)
        self._failed = failed | ~values["total"].isfinite()

    def finish(self, *, step: int, epoch: int) -> None:
        """Read the epoch. A FloatingPointError if a batch's loss was NaN or infinite."""
        if self._failed is None:
            return
        if self._failed:
            terms = ", ".join(f"{name} {value.item():g}" for name, value in self._suspect.items())
            raise FloatingPointError(
                f"The loss is not finite in step {step}, epoch {epoch} (counted from 0). "
                f"First such batch: {terms}."
            )
        names = list(self._sums)
        means = torch.stack([self._sums[name] / self._counts[name] for name in names]).tolist()
        self.means = dict(zip(names, means, strict=True))


def sum_of(terms: Mapping[str, Tensor]) -> Tensor:
    """The sum of the terms, the first one bitwise where it is the only one."""
    values = list(terms.values())
    return sum(values[1:], start=values[0])
