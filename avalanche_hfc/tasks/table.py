"""A table of the paper as runs: the recipes that fill its cells, those that are finished, and
training the others. No torch at the top.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

from avalanche_hfc._names import lookup
from avalanche_hfc.engine.progress import Progress
from avalanche_hfc.recipes import (
    FURTHER_TABLES,
    SCALES,
    TABLES,
    PaperCell,
    Recipe,
    TableCell,
    override,
    recipe,
)
from avalanche_hfc.store.run_folder import RunFolder


class TableRun(NamedTuple):
    """A recipe and a seed; its folder is `out/<recipe>/<seed>`, the same for all tables that have
    the recipe.
    """

    recipe: Recipe
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f"{self.recipe.name}, seed {self.seed}"


def row_name(cell: PaperCell) -> str:
    """A line of a table as `only` names it: icarl, or icarl+hfc for the same with both losses.
    Whatever the backbone.
    """
    return cell.row + ("+hfc" if cell.losses == "hfc" else "")


def cells_of(table: str, scale: str, only: Iterable[str] = ()) -> list[TableCell]:
    """The cells of a table, or of some of its rows. A name that does not exist is answered with
    those that do.
    """
    lookup(SCALES, scale, "scale")
    scales = lookup({**TABLES, **FURTHER_TABLES}, table, "table")
    if scale not in scales:
        raise ValueError(f"Table {table} exists at scale {', '.join(scales)}, not at {scale}.")
    cells = scales[scale]
    rows = {row_name(entry.cell): row_name(entry.cell) for entry in cells}
    wanted = {lookup(rows, row, f"row of {table}:") for row in only} or set(rows)
    return [entry for entry in cells if row_name(entry.cell) in wanted]


def runs_of(
    cells: Iterable[TableCell], seeds: int, out: Path, overrides: Mapping[str, str] | None = None
) -> list[TableRun]:
    """The runs that fill these cells, seed by seed. A recipe that fills several cells is run
    once.
    """
    recipes = overridden(
        [recipe(name) for name in dict.fromkeys(entry.recipe for entry in cells)], overrides or {}
    )
    return [
        TableRun(own, seed, out / own.name / str(seed)) for seed in range(seeds) for own in recipes
    ]


def overridden(recipes: Sequence[Recipe], given: Mapping[str, str]) -> list[Recipe]:
    """Each recipe with those of the given values that it has. A value that none of them has is an
    error.
    """
    for name in given:
        if not any(has_leaf(own, name) for own in recipes):
            override(recipes[0], {name: given[name]})  # says what is wrong with it
    return [
        override(own, {name: text for name, text in given.items() if has_leaf(own, name)})
        for own in recipes
    ]


def without(recipes: Iterable[Recipe], name: str) -> list[str]:
    """The names of the recipes that have no value of this name."""
    return [own.name for own in recipes if not has_leaf(own, name)]


def has_leaf(own: Recipe, name: str) -> bool:
    asked = name.replace("-", "_")
    return any(asked in (leaf, leaf.split(".", 1)[1]) for leaf in own.leaves())


def finished(runs: Iterable[TableRun]) -> list[TableRun]:
    """Those that are on the disk as a whole. A folder of another recipe is a ValueError."""
    found = []
    for run in runs:
        place = RunFolder(run.folder)
        place.check(run.recipe.as_dict(), run.seed)
        if place.finished:
            found.append(run)
    return found


def train(
    run: TableRun,
    *,
    device: str = "cpu",
    data_root: Path | None = None,
    num_workers: int = 0,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Start or resume a run; the numbers of its last step, as text."""
    from avalanche_hfc.engine.run import run as run_recipe

    run_recipe(
        run.recipe,
        run.seed,
        run.folder,
        device=device,
        data_root=data_root,
        num_workers=num_workers,
        progress=progress,
    )
    return RunFolder(run.folder).read("steps")[-1]


def set_aside(runs: Iterable[TableRun], out: Path) -> Path | None:
    """Move the folders of these runs out of `out`, into `out.old-1` or the next number that is
    free; None where there are none.

    Nothing else in `out` is touched. A run that a process is training is a ValueError, and nothing
    is moved.
    """
    there = [run.folder for run in runs if RunFolder(run.folder).note() is not None]
    if not there:
        return None
    target = next(
        path
        for number in count(1)
        if not (path := out.with_name(f"{out.name}.old-{number}")).exists()
    )
    with ExitStack() as locks:
        for folder in there:
            locks.enter_context(RunFolder(folder).owned())
        for folder in there:
            moved = target / folder.relative_to(out)
            moved.parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder, moved)
            (moved / "lock").unlink(missing_ok=True)
    return target


def check_writable(folder: Path) -> None:
    """An OSError unless files can be put there, now and not after the first run."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a folder", str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "Folder is not writable", str(there))
