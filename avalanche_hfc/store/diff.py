"""Where two runs differ: the settings that differ, and the first epoch or step whose numbers do. No
torch.
"""

from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from avalanche_hfc.store.run_folder import TIMES, RunFolder, settings


class FirstDifference(NamedTuple):
    """The first rows of a file that differ: where they stand, and the columns with both values. An
    absent row has None.
    """

    file: str
    where: str
    columns: tuple[tuple[str, str | None, str | None], ...]


class RunDiff(NamedTuple):
    """`changed` settings as (name, first, second); `differences` in the order in which a run writes
    them; `rows` compared alike before.
    """

    changed: tuple[tuple[str, str, str], ...]
    differences: tuple[FirstDifference, ...]
    num_alike: int

    @property
    def same(self) -> bool:
        return not self.differences


FILES = {
    "train": ("step", "phase", "epoch"),
    "steps": ("step",),
    "classes": ("step", "class"),
    "confusion": ("step", "class", "predicted"),
}


def diff_runs(first: Path | str, second: Path | str) -> RunDiff:
    """Compare two run folders: time and memory columns apart, equal runs agree in every row."""
    folders = RunFolder(first), RunFolder(second)
    notes = [folder.metadata() for folder in folders]
    for folder, metadata in zip(folders, notes, strict=True):
        if metadata is None:
            raise FileNotFoundError(f"{folder.path} is no run folder: it has no recipe.json.")
    one, other = (
        {**settings(n["recipe"]), "seed": n["seed"], **n["versions"], "machine": n["machine"]}
        for n in notes
        if n is not None
    )
    names = [*one, *(name for name in other if name not in one)]
    changed = tuple(
        (name, str(one.get(name)), str(other.get(name)))
        for name in names
        if one.get(name) != other.get(name)
    )
    differences, num_alike = [], 0
    for file, keys in FILES.items():
        alike, difference = first_difference(file, keys, *(folder.read(file) for folder in folders))
        num_alike += alike
        differences += [difference] if difference is not None else []
    return RunDiff(changed, tuple(differences), num_alike)


def first_difference(
    file: str,
    keys: tuple[str, ...],
    first: list[dict[str, str]],
    second: list[dict[str, str]],
) -> tuple[int, FirstDifference | None]:
    """How many rows agree from the start, and the first that does not."""
    for number, (one, other) in enumerate(zip_longest(first, second)):
        known = one or other or {}
        where = ", ".join(f"{key} {known.get(key)}" for key in keys)
        if one is None or other is None:
            run = "first" if one is None else "second"
            return number, FirstDifference(
                file, where, ((f"the {run} run has no such row", None, None),)
            )
        columns = [
            name
            for name in dict.fromkeys([*one, *other])
            if name not in TIMES and one.get(name) != other.get(name)
        ]
        if columns:
            return number, FirstDifference(
                file, where, tuple((name, one.get(name), other.get(name)) for name in columns)
            )
    return len(first), None
