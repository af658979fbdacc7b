"""A loader whose processes may outlive a pass."""

from typing import Any

import torch
from torch.utils.data import DataLoader


class RepeatedLoader(DataLoader):
    """A `DataLoader` that draws as much from its generator in every pass, whether its processes
    start anew or persist: the order of the samples, and with it a training that is resumed, does
    not depend on it.
    """

    def __iter__(self) -> Any:
        if self._iterator is not None:  # a first pass, or new processes, draw a seed for these
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return super().__iter__()
