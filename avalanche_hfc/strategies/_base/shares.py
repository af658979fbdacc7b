"""What a strategy does on several ranks: it loads its share of each batch, and its loss sees the
whole. On one rank nothing here does anything.
"""

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader

from avalanche_hfc._types import State
from avalanche_hfc.benchmarks.positions import PositionDataset
from avalanche_hfc.ranks import GradientMean, Share, ShareLoader, world
from avalanche_hfc.strategies._base.loading import PositionLoading


class SharedBatches(PositionLoading):
    """A template that trains on several ranks as on one, up to rounding."""

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.share: Share | None = None  # of the batch being trained; None on one rank
        self.gradient_mean = GradientMean()

    def shared(self, loader: DataLoader) -> DataLoader | ShareLoader:
        """A loader of the share that this rank has in each batch.

        Args:
            loader: A loader of whole batches, the same on all ranks.

        Returns:
            The loader itself on one rank.

        Raises:
            ValueError: If the data set cannot be read by position, so that the random draws of
                its transforms would differ from rank to rank.
        """
        if not world().several:
            return loader
        if not isinstance(getattr(loader, "dataset", None), PositionDataset):
            raise ValueError(
                f"{type(self).__name__}: on {world().size} ranks the data must be an Avalanche "
                "data set that is read by position, with one task and the default collate_fn."
            )
        if self.draw_seed is None:  # ranks read different images: none may draw for the others
            self.draw_seed = torch.initial_seed()
        return ShareLoader(loader)

    def _unpack_minibatch(self) -> None:
        super()._unpack_minibatch()
        if self.is_training and isinstance(self.dataloader, ShareLoader):
            self.share = self.dataloader.share
            self.mbatch[1:] = [self.share.gather(column) for column in self.mbatch[1:]]

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of the whole batch, from those of the images of this rank.

        For what a loss compares across samples. Gradients flow to the rows of this rank.

        Args:
            rows: One row for each image in `mb_x`, shape ``(b_r, ...)``.

        Returns:
            One row for each sample in `mb_y`, shape ``(b, ...)``; on one rank `rows` itself.
        """
        return rows if self.share is None else self.share.gather(rows)

    def averaged(self, mean: Tensor) -> Tensor:
        """The mean over the whole batch, from that over the images of this rank.

        For loss terms that are plain means over samples: only a number is sent.

        Args:
            mean: A scalar.

        Returns:
            A scalar; on one rank `mean` itself.
        """
        return mean if self.share is None else self.share.average(mean)

    def backpropagate(self, loss: Tensor, module: Module) -> None:
        """Compute the gradients of a loss of the whole batch in the parameters of a module."""
        if self.share is None:
            loss.backward()
        else:
            self.gradient_mean.backward(loss * self.share.ranks, module)

    def _save_train_state(self) -> State:
        share, self.share = self.share, None  # an evaluation has all images on every rank
        return super()._save_train_state() | {"share": share}

    def _load_train_state(self, prev_state: State) -> None:
        super()._load_train_state(prev_state)
        self.share = prev_state["share"]
