"""One training on several processes, called ranks: exact shares of each batch, gathered rows, the
model under torch's DistributedDataParallel. Everything else of the package works the same on one
rank.
"""

from avalanche_hfc.parallel.ranks import (
    World,
    agree,
    backend_for,
    broadcast,
    gather_objects,
    on_first,
    together,
    world,
)
from avalanche_hfc.parallel.shares import Share, ShareLoader

__all__ = [
    "World",
    "world",
    "backend_for",
    "agree",
    "together",
    "on_first",
    "broadcast",
    "gather_objects",
    "Share",
    "ShareLoader",
]
