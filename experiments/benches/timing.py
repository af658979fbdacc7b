"""Measure two ways of doing a thing side by side."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Work = Callable[[], object]


class Row(NamedTuple):
    """One line of the table. `ratio` is ours / reference, or reference / ours where the target says
    "faster".
    """

    name: str
    compared_with: str
    ours: float
    reference: float
    unit: str
    target: str
    limit: float
    faster: bool = False
    lower: float = 0.0  # a ratio below it is a miss, too

    @property
    def ratio(self) -> float:
        return self.reference / self.ours if self.faster else self.ours / self.reference

    @property
    def met(self) -> bool:
        return self.ratio >= self.limit if self.faster else self.lower <= self.ratio <= self.limit


def side_by_side(
    works: dict[str, Work], *, repeats: int = 7, warm_up: int = 1, inner: int = 1
) -> dict[str, float]:
    """Median seconds of CPU time of each, measured in turns: what disturbs one disturbs all."""
    for work in works.values():
        for _ in range(warm_up):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, work in works.items():
                start = time.process_time()
                for _ in range(inner):
                    work()
                times[name].append((time.process_time() - start) / inner)
    finally:
        gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}
