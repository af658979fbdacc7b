"""Loaders that read whole batches by position, past Avalanche's layers, with seeded draws."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from avalanche_hfc._types import HostDataset, Options
from avalanche_hfc.benchmarks.positions import PositionDataset, collate, flatten
from avalanche_hfc.strategies._base.evaluation import TracelessEvaluation

LOADER_OPTIONS = ("num_workers", "pin_memory", "persistent_workers")


class PositionLoading(TracelessEvaluation):
    """A template whose loaders read by position. Data that cannot be flattened is loaded sample by
    sample, as Avalanche does.
    """

    drop_last = False
    draw_seed: int | None = None

    def drops_last(self, num_images: int, asked: bool | None = None) -> bool:
        """Whether an epoch leaves out its incomplete last batch.

        Args:
            num_images: Number of images of the epoch.
            asked: The argument `drop_last` of `train`, which takes precedence; None if it was not
                given.

        Returns:
            True if the incomplete last batch is left out.
        """
        return self.drop_last and num_images >= self.train_mb_size if asked is None else asked

    def make_train_dataloader(
        self, shuffle: bool = True, drop_last: bool | None = None, **kwargs: object
    ) -> None:
        drop_last = self.drops_last(len(self.adapted_dataset), drop_last)
        flat = self.flat_data(kwargs)
        if flat is None:
            super().make_train_dataloader(shuffle=shuffle, drop_last=drop_last, **kwargs)
        else:
            self.dataloader: Any = self.loader_of(
                flat, self.train_mb_size, kwargs, shuffle=shuffle, drop_last=drop_last
            )

    def make_eval_dataloader(self, **kwargs: object) -> None:
        flat = self.flat_data(kwargs)
        if flat is None:
            super().make_eval_dataloader(**kwargs)
        else:
            self.dataloader = self.loader_of(flat, self.eval_mb_size, kwargs)

    def flat_data(self, asked: Options) -> PositionDataset | None:
        """The step's data for loading by position; None where its structure is not understood."""
        several_tasks = len(getattr(self.experience, "task_labels", ())) > 1
        return None if several_tasks or "ffcv_args" in asked else flatten(self.adapted_dataset)

    def loader_of(
        self,
        data: HostDataset | PositionDataset,
        batch_size: int | None,
        asked: Options,
        **options: Any,
    ) -> DataLoader:
        """Build a loader that reads whole batches by position.

        Args:
            data: An Avalanche data set, or its flat view. A data set that cannot be flattened is
                loaded sample by sample.
            batch_size: Number of images of a batch; None together with a `batch_sampler`.
            asked: The arguments of `train` or `eval`, of which `num_workers`, `pin_memory` and
                `persistent_workers` are used.
            **options: Further arguments of torch's DataLoader, such as `shuffle`.

        Returns:
            The loader.
        """
        flat = data if isinstance(data, PositionDataset) else flatten(data)
        options |= {name: asked[name] for name in LOADER_OPTIONS if name in asked}
        options = self._obtain_common_dataloader_parameters(batch_size=batch_size, **options)
        if "batch_sampler" in options:
            options.pop("batch_size")
        if flat is not None and flat.in_memory:
            options |= {"num_workers": 0, "persistent_workers": False}
        elif flat is not None and self.draw_seed is not None and options.get("num_workers"):
            options["persistent_workers"] = True  # what is drawn does not depend on the process
        loader: DataLoader = RepeatedLoader(
            data if flat is None else flat,
            collate_fn=data.collate_fn if flat is None else collate,
            **options,
        )
        self.seed_draws(loader.dataset, "pass", 0)
        return loader

    def seed_draws(self, data: object, phase: str, epoch: int) -> None:
        """Seed the random draws of transforms, if the strategy has a `draw_seed`.

        The draws of a sample then depend on (`draw_seed`, step, phase, epoch, position) only. Data
        that is not read by position is not affected.

        Args:
            data: The data that is about to be loaded.
            phase: ``"train"``, the name of a later phase, or ``"pass"`` for a pass over the data
                that is not an epoch.
            epoch: Epoch of the phase, from 0.
        """
        if self.draw_seed is not None and isinstance(data, PositionDataset):
            data.seed_draws(self.draw_seed, self.clock.train_exp_counter, phase, epoch)


class RepeatedLoader(DataLoader):
    """A `DataLoader` that draws as much from its generator in every pass, whether its processes
    start anew or persist: the order of the samples, and with it a training that is resumed, does
    not depend on it.
    """

    def __iter__(self) -> Any:
        if self._iterator is not None:  # a first pass, or new processes, draw a seed for these
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return super().__iter__()
