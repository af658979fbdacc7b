"""What all runs of a table need, looked for once before the first of them."""

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch

from avalanche_hfc.engine.build import build_model
from avalanche_hfc.engine.data import Root, read_source
from avalanche_hfc.engine.run import checkpoints_size
from avalanche_hfc.strategies._base.precision import check_precision
from avalanche_hfc.tasks.table import TableRun


def check_data(runs: Iterable[TableRun], data_root: Root) -> None:
    """Read each data set of some runs once; what is wrong with it is raised."""
    for recipe in {run.recipe.data.dataset: run.recipe for run in runs}.values():
        read_source(recipe, data_root)


def check_precisions(runs: Iterable[TableRun], device: str) -> None:
    """Raise a ValueError where the device lacks a precision of some runs."""
    settings = {(run.recipe.train.precision, run.recipe.train.tf32): run.recipe for run in runs}
    for (precision, tf32), recipe in settings.items():
        check_precision(recipe.name, precision, torch.device(device), tf32=tf32)


def check_room(runs: Iterable[TableRun], out: Path) -> None:
    """Raise an OSError where the disk has no room for what all runs leave behind."""
    sizes: dict[str, int] = {}
    needed = 0
    for run in runs:
        key = repr((run.recipe.model, run.recipe.data.image_size, run.recipe.train.optimizer))
        if key not in sizes:
            moments = {"adamw": 2, "sgd": int(bool(run.recipe.train.momentum))}
            sizes[key] = checkpoints_size(
                build_model(run.recipe, "meta"), moments[run.recipe.train.optimizer]
            )
        needed += sizes[key]
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        words = (
            f"No space left: checkpoints of all runs need about {needed / 1e9:.1f} GB, "
            f"{free / 1e9:.1f} GB are free"
        )
        raise OSError(errno.ENOSPC, words, str(there))
