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
from avalanche_hfc._types import Options
from avalanche_hfc.lab import (
    FURTHER_TABLES,
    SCALES,
    TABLES,
    Recipe,
    TableCell,
    override,
    recipe,
)
from avalanche_hfc.lab.options import UPPER_BOUNDS, is_user_method, without_memory
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.tables import spec_of


class TableRun(NamedTuple):
    """A recipe and a seed; its folder is `out/<recipe>/<seed>`, the same for all tables that have
    the recipe.
    """

    recipe: Recipe
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f"{self.recipe.name}, seed {self.seed}"


def cells_of(
    table: str, scale: str, only: Iterable[str] = (), add: Iterable[str] = ()
) -> list[TableCell]:
    """The cells of a table, or of some of its rows, and those of methods that you wrote.

    Args:
        table: The name of the table.
        scale: paper, small or demo.
        only: Names of rows, as `PaperCell.row_name` gives them; all if there are none.
        add: Methods as `module:Class`, or `module:Class+hfc` with both losses: each on every
            protocol of the cells.

    Raises:
        ValueError: A name does not exist; with those that do.
    """
    lookup(SCALES, scale, "scale")
    scales = lookup({**TABLES, **FURTHER_TABLES}, table, "table")
    if scale not in scales:
        raise ValueError(f"Table {table} exists at scale {', '.join(scales)}, not at {scale}.")
    cells = scales[scale]
    rows = {entry.cell.row_name: entry.cell.row_name for entry in cells}
    try:
        wanted = {lookup(rows, row, f"row of {table}:") for row in only} or set(rows)
    except ValueError as error:
        raise ValueError(f"{error} A method that you wrote: --add module:Class.") from None
    cells = [entry for entry in cells if entry.cell.row_name in wanted]
    return cells + [entry for row in add for entry in added_cells(row, cells, scale)]


def added_cells(row: str, cells: Iterable[TableCell], scale: str) -> list[TableCell]:
    """A method that you wrote on the protocols and backbones of these cells, but for joint training
    and DyTox's encoder.
    """
    method, losses = row.removesuffix("+hfc"), "hfc" if row.endswith("+hfc") else "host"
    if not is_user_method(method):
        raise ValueError(
            f"--add takes a method that you wrote, module:Class or module:Class+hfc, got {row!r}."
        )
    changed: Options = {"per_class": None} if without_memory(method) else {}
    protocols = dict.fromkeys(
        cell._replace(row=method, losses=losses)
        for cell, _ in cells
        if cell.row not in UPPER_BOUNDS and cell.backbone != "vit-tiny"
    )
    names = {cell: spec_of(cell, scale)._replace(**changed).name for cell in protocols}
    return [TableCell(cell, recipe(name).name) for cell, name in names.items()]


def named_as_run(cells: Sequence[TableCell], given: Mapping[str, str]) -> list[TableCell]:
    """The cells with the names that their recipes have under these values."""
    before = list(dict.fromkeys(entry.recipe for entry in cells))
    after = overridden([recipe(name) for name in before], given)
    names = {name: renamed.name for name, renamed in zip(before, after, strict=True)}
    return [entry._replace(recipe=names[entry.recipe]) for entry in cells]


def runs_of(
    cells: Iterable[TableCell], seeds: int, out: Path, overrides: Mapping[str, str] | None = None
) -> list[TableRun]:
    """The runs that fill these cells, seed by seed. A recipe that fills several cells is run
    once.
    """
    recipes = overridden(
        [recipe(name) for name in dict.fromkeys(entry.recipe for entry in cells)], overrides or {}
    )
    by_name = {chosen.name: chosen for chosen in recipes}
    return [
        TableRun(chosen, seed, out / name / str(seed))
        for seed in range(seeds)
        for name, chosen in by_name.items()
    ]


def overridden(recipes: Sequence[Recipe], given: Mapping[str, str]) -> list[Recipe]:
    """Each recipe with those of the given values that it has. A value that none of them has is an
    error.
    """
    for name in given:
        if not any(has_leaf(each, name) for each in recipes):
            override(recipes[0], {name: given[name]})  # says what is wrong with it
    return [
        override(each, {name: text for name, text in given.items() if has_leaf(each, name)})
        for each in recipes
    ]


def without(recipes: Iterable[Recipe], name: str) -> list[str]:
    """The names of the recipes that have no value of this name."""
    return [each.name for each in recipes if not has_leaf(each, name)]


def has_leaf(chosen: Recipe, name: str) -> bool:
    asked = name.replace("-", "_")
    return any(asked in (leaf, leaf.split(".", 1)[1]) for leaf in chosen.leaves())


def finished(runs: Iterable[TableRun]) -> list[TableRun]:
    """Those that are on the disk as a whole. A folder of another recipe is a ValueError."""
    runs = list(runs)
    for run in runs:
        RunFolder(run.folder).check(run.recipe.as_dict(), run.seed)
    return [run for run in runs if RunFolder(run.folder).finished]


def train(
    run: TableRun,
    *,
    device: str = "cpu",
    data_root: Path | None = None,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Start or resume a run; the numbers of its last step, as text."""
    from avalanche_hfc.lab.run import run as run_recipe

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

    Nothing else in `out` is touched. A run that a process is training is a ValueError, and so is a
    folder that has files of a run but is none; nothing is moved then.
    """
    runs = list(runs)
    there = [run.folder for run in runs if RunFolder(run.folder).metadata() is not None]
    for run in runs:
        if run.folder not in there:
            RunFolder(run.folder).check(run.recipe.as_dict(), run.seed)
    if not there:
        return None
    beside = out if out.name not in ("", "..") else out.resolve()
    target = next(
        path
        for number in count(1)
        if not (path := beside.with_name(f"{beside.name}.old-{number}")).exists()
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
