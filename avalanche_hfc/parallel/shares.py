"""The share of a rank in each global batch: which rows it loads, and how the rows of all ranks come
together again.

`b` rows of the global batch, `k` ranks; rank r has `b_r` consecutive rows. A loss that is computed
from gathered rows has the same value on every rank, and a gradient for the own rows only: the sum
of the ranks' gradients is that of one rank with the whole batch. DistributedDataParallel takes the
mean instead, so the loss is multiplied by k for its backward pass (`Share.scale`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from avalanche_hfc.parallel.ranks import gather_objects, world


class Share(NamedTuple):
    """The rows of a global batch that a rank has.

    Rows are dealt out in order, one more to the first ranks if they cannot be divided evenly. A
    rank without a row has one image nevertheless, which counts for nothing: nobody has to wait.

    Args:
        rank: The rank.
        ranks: Number of ranks.
        size: Number of rows of the global batch.

    Example:
        >>> from avalanche_hfc.parallel import Share
        >>> [Share(rank, 3, 5).counts[rank] for rank in range(3)], Share(1, 3, 5).start
        ([2, 2, 1], 2)
    """

    rank: int
    ranks: int
    size: int

    @property
    def counts(self) -> list[int]:
        """Number of rows of each rank."""
        each, more = divmod(self.size, self.ranks)
        return [each + (rank < more) for rank in range(self.ranks)]

    @property
    def own(self) -> int:
        """Number of rows of this rank; 0 if its one image does not count."""
        return self.counts[self.rank]

    @property
    def loaded(self) -> int:
        """Number of images that this rank has loaded, at least one."""
        return max(self.own, 1)

    @property
    def start(self) -> int:
        """Where the rows of this rank begin in the global batch."""
        return sum(self.counts[: self.rank])

    @property
    def scale(self) -> int:
        """The factor of a loss that undoes the mean of DistributedDataParallel."""
        return self.ranks

    def of(self, rows: Any) -> Any:
        """What this rank loads of the rows of a global batch.

        Args:
            rows: A list or tensor with one entry for each row.

        Returns:
            Its own rows; the first row of the batch if it has none.
        """
        return rows[self.start : self.start + self.own] if self.own else rows[:1]

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of the whole batch; every rank must call it.

        Args:
            rows: What this rank computed for its images, shape ``(b_r, ...)``.

        Returns:
            Shape ``(b, ...)``, with gradients for the own rows.
        """
        return gather_rows(rows[: self.own], self.counts)

    def average(self, mean: Tensor) -> Tensor:
        """The mean over the whole batch of a mean over the own rows; every rank must call it.

        Only a scalar is sent: feature maps stay where they are.

        Args:
            mean: The mean over the images of this rank, a scalar.

        Returns:
            A scalar, with gradients for the own rows.
        """
        own = mean * (self.own / self.size)
        total = own.detach().clone()
        dist.all_reduce(total)
        return total + (own - own.detach())

    def once(self, value: Tensor) -> Tensor:
        """A tensor that all ranks compute alike, such as a parameter that a loss reads directly.

        Args:
            value: The tensor.

        Returns:
            The same value; the gradients of all ranks together are that of one.
        """
        return value.detach() + (value - value.detach()) / self.ranks


def gather_rows(own: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all ranks in their order, with gradients for the own ones.

    Args:
        own: The rows of this rank, shape ``(counts[rank], ...)``.
        counts: Number of rows of each rank.

    Returns:
        Shape ``(sum(counts), ...)``.
    """
    room = (0, 0) * (own.ndim - 1) + (0, max(counts) - len(own))
    sent = F.pad(own.detach(), room).contiguous()
    parts = [torch.empty_like(sent) for _ in counts]
    dist.all_gather(parts, sent)
    parts = [part[:count] for part, count in zip(parts, counts, strict=True)]
    parts[world().rank] = own
    return torch.cat(parts)


def in_blocks(loader: DataLoader, compute: Callable[[Any], Tensor]) -> Tensor:
    """Rows of a data set, computed batch by batch, a block of batches on each rank.

    The batches are those of one rank, and so are the rows, bit for bit. Fewer batches than ranks
    are computed on every rank.

    Args:
        loader: A loader without random order, the same on all ranks.
        compute: Maps a batch to rows.

    Returns:
        The rows of all batches, on every rank.
    """
    batches: list = list(loader.batch_sampler or ())
    rank, ranks = world()
    if ranks == 1 or len(batches) < ranks:
        return torch.cat([compute(batch) for batch in loader])
    first, last = (len(batches) * place // ranks for place in (rank, rank + 1))
    own = torch.cat([compute(batch) for batch in with_batches(loader, batches[first:last])])
    return gather_rows(own, gather_objects(len(own)))


def with_batches(loader: DataLoader, batches: Any) -> DataLoader:
    """The loader with another batch sampler."""
    return type(loader)(
        loader.dataset,
        batch_sampler=batches,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        generator=loader.generator,
    )


class ShareBatches(Sampler[list[int]]):
    """The share of this rank in each batch of a sampler that is the same on all ranks.

    `sizes` holds the sizes of the global batches that were drawn and not taken yet.
    """

    def __init__(self, batches: Any):
        self.batches = batches
        self.sizes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes.clear()
        for positions in self.batches:
            self.sizes.append(len(positions))
            yield Share(*world(), len(positions)).of(positions)


class ShareLoader:
    """The share of this rank in each batch of a loader. `share` belongs to the batch taken last.

    Args:
        loader: A loader of global batches, whose order is the same on all ranks.
    """

    share: Share

    def __init__(self, loader: DataLoader):
        self._batches = ShareBatches(loader.batch_sampler)
        self._loader = with_batches(loader, self._batches)
        self.dataset = loader.dataset

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self.share = Share(*world(), self._batches.sizes.popleft())
            yield batch
