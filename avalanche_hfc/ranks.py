"""One training on several processes, called ranks: exact shares of each batch, gathered rows, and
gradients averaged by torch's DistributedDataParallel. On one rank nothing here does anything.

`b` rows of the global batch, `k` ranks; rank r has `b_r` consecutive rows. A loss that is computed
from gathered rows has the same value on every rank, and a gradient for the rank's own rows only:
the sum of the ranks' gradients is that of one rank with the whole batch. DistributedDataParallel
takes the mean instead, so the loss is multiplied by k for its backward pass.
"""

import hashlib
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler

from avalanche_hfc._types import Strategy

__all__ = ["World", "world", "gather_objects", "agree", "Share", "ShareLoader"]

# Who trains


class World(NamedTuple):
    """The place of this process among those that train together.

    Args:
        rank: The rank of this process, from 0.
        size: Number of ranks.

    Example:
        >>> from avalanche_hfc.ranks import World
        >>> World(rank=1, size=2).first
        False
    """

    rank: int
    size: int

    @property
    def several(self) -> bool:
        """Whether there is more than one rank."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone writes and prints."""
        return self.rank == 0


def world() -> World:
    """The rank of this process and the number of ranks.

    Returns:
        Rank 0 of 1 unless torch.distributed is initialised.

    Example:
        >>> from avalanche_hfc.ranks import world
        >>> world()
        World(rank=0, size=1)
    """
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World(0, 1)


def gather_objects(value: Any) -> list[Any]:
    """The values of all ranks, in their order; every rank must call it.

    Args:
        value: What this rank contributes; it is pickled.

    Returns:
        One value for each rank.

    Example:
        >>> from avalanche_hfc.ranks import gather_objects
        >>> gather_objects("one rank")
        ['one rank']
    """
    if not world().several:
        return [value]
    found: list[Any] = [None] * world().size
    dist.all_gather_object(found, value)
    return found


def agree(name: str, value: bytes | str) -> None:
    """Check that all ranks have the same value; every rank must call it.

    Args:
        name: What is compared, for the message.
        value: Compared by its SHA-256.

    Raises:
        ValueError: On every rank, with the ranks that differ from most of the others.

    Example:
        >>> from avalanche_hfc.ranks import agree
        >>> agree("recipe", "batch_size=64")
    """
    if not world().several:
        return
    data = value.encode() if isinstance(value, str) else value
    digests = gather_objects(hashlib.sha256(data).hexdigest()[:16])
    usual = Counter(digests).most_common(1)[0][0]
    others = [rank for rank, digest in enumerate(digests) if digest != usual]
    if others:
        found = ", ".join(f"rank {rank} {digest}" for rank, digest in enumerate(digests))
        raise ValueError(
            f"The ranks differ in {name}: {' and '.join(f'rank {rank}' for rank in others)} "
            f"{'has' if len(others) == 1 else 'have'} another than the rest (checksums: {found})."
        )


# The share of a rank in each batch


class Share(NamedTuple):
    """The rows of a global batch that a rank has.

    Rows are dealt out in order, one more to the first ranks if they cannot be divided evenly. A
    rank without a row has one image nevertheless, which counts for nothing: nobody has to wait.

    Args:
        rank: The rank.
        ranks: Number of ranks.
        size: Number of rows of the global batch.

    Example:
        >>> from avalanche_hfc.ranks import Share
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
    def start(self) -> int:
        """Where the rows of this rank begin in the global batch."""
        return sum(self.counts[: self.rank])

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


# Gradients


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


# Layers that depend on the batch


def arrange_layers(owner: str, model: nn.Module, device: torch.device) -> None:
    """Let the layers of a model train on the shares of several ranks, or refuse one by name.

    On CUDA, batch norm becomes torch's SyncBatchNorm, with the same parameters, and layers that
    draw have other draws on each rank. gloo carries neither.

    Args:
        owner: The strategy, for the message.
        model: The model, changed in place.
        device: Where it is trained.

    Raises:
        ValueError: If a layer normalises over the batch, or draws, and the device is not CUDA.
    """
    if not world().several:
        return
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) or draws(module):
            raise ValueError(
                f"{owner}: {name or 'the model'} ({type(module).__name__}) depends on the whole "
                f"batch or draws at random, which is not exact on {world().size} ranks of a CPU. "
                "Train on one rank, on GPUs, or with a model without such layers."
            )


def draws(module: nn.Module) -> bool:
    """Whether a layer draws random numbers in training."""
    if isinstance(module, nn.RReLU):
        return module.lower < module.upper
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return float(module.dropout) > 0
    if "Drop" in type(module).__name__ or type(module).__name__ == "StochasticDepth":
        return any(float(getattr(module, name, 0.0)) > 0 for name in ("p", "drop_prob"))
    return isinstance(module, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d)


# What the ranks must have in common


def check_ranks(strategy: Strategy) -> None:
    """Raise a ValueError before a step if the ranks cannot train together."""
    if not world().several:
        return
    check_batch(strategy.train_mb_size)
    data = strategy.experience.dataset
    agree("the training data", torch.as_tensor(list(data.targets)).numpy().tobytes())
    agree("the weights of the model", weights_digest(strategy.model))
    agree(
        "the state of torch's random generator: seed all ranks alike",
        generator_state(),
    )


def begin_epoch(strategy: Strategy) -> None:
    """Raise a ValueError before an epoch if a rank has drawn more than the others: each draws the
    order of all images by itself. On CUDA, the draws of layers begin anew, others on each rank.
    """
    if not world().several:
        return
    phase = strategy.phase_running
    epoch = strategy.clock.train_exp_epochs if phase is None else phase.epoch
    if strategy.device.type == "cuda":
        place = (strategy.draw_seed, strategy.clock.train_exp_counter, strategy.phase, epoch)
        digest = hashlib.sha256(repr((*place, world().rank)).encode()).digest()
        torch.cuda.manual_seed(int.from_bytes(digest[:6], "little"))
    agree(
        f"the state of torch's random generator before epoch {epoch} of step "
        f"{strategy.clock.train_exp_counter} ({strategy.phase}), which a plugin must move on all "
        "ranks alike",
        generator_state(),
    )


def check_batch(size: int) -> None:
    """Raise a ValueError if a global batch has fewer images than there are ranks."""
    if size < world().size:
        raise ValueError(
            f"A global batch of {size} images cannot be divided among {world().size} ranks. Use "
            f"at most {size} ranks, or a larger batch."
        )


def check_agreement(strategy: Strategy) -> None:
    """Raise a ValueError after a step if the ranks have trained apart."""
    if not world().several:
        return
    agree("the weights of the model", weights_digest(strategy.model))
    kept = {class_id: positions.tolist() for class_id, positions in strategy.exemplars().items()}
    agree("the exemplars in memory", repr(sorted(kept.items())))


def weights_digest(model: nn.Module) -> bytes:
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        if isinstance(value, torch.Tensor):
            found.update(name.encode())
            found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()


def generator_state() -> bytes:
    """The state of the CPU's generator, from which every rank draws the order of the images."""
    return torch.get_rng_state().numpy().tobytes()
