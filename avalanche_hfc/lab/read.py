"""Run folders as data frames: recipe.json and the CSV files, nothing else. No torch."""

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from avalanche_hfc._types import Record
from avalanche_hfc.lab.rows import whole_lines
from avalanche_hfc.lab.run_folder import (
    OF_A_RUN,
    TIMES,
    RunFolder,
    differing,
    read_recipe_note,
    run_note,
    settings,
)
from avalanche_hfc.lab.schema import is_pretraining

NEEDED = {
    "steps": ("step", "classes", "accuracy"),
    "classes": ("step", "class", "name", "brought_in", "correct", "total"),
    "confusion": ("step", "class", "predicted", "count"),
    "exemplars": ("step", "class", "rank", "position"),
    "train": ("step", "epoch"),
}  # without these columns a file cannot be read; others may be missing


@dataclass(frozen=True)
class RunData:
    """One run folder. A file that is not there, or has no row yet, is None; `steps` always is
    there.
    """

    path: Path
    recipe: Record
    seed: int
    versions: Record
    machine: str
    finished: bool
    steps: pd.DataFrame
    classes: pd.DataFrame | None = None
    confusion: pd.DataFrame | None = None
    exemplars: pd.DataFrame | None = None
    train: pd.DataFrame | None = None
    finished_at: str = ""  # ISO 8601; empty before the end
    data_sha256: str = ""  # of the user's data; empty for data sets with a name

    @property
    def last_step(self) -> int:
        return int(self.steps["step"].max())


@dataclass(frozen=True)
class Group:
    """The runs of one recipe, by seed. `label` tells it from the other groups of a report.
    `parents` are runs whose steps these hold as their first, because they have learned further
    classes: no groups of their own.
    """

    label: str
    runs: Sequence[RunData]
    unfinished: Sequence[RunData] = field(default=())  # shorter than the longest of the group
    parents: Sequence[RunData] = field(default=())

    @property
    def recipe(self) -> Record:
        return self.runs[0].recipe

    @property
    def last_step(self) -> int:
        return self.runs[0].last_step


def read_runs(folders: Iterable[Path | str]) -> tuple[list[RunData], list[Path]]:
    """The runs of these folders, and the folders of runs that have no finished step yet. A folder
    of run folders stands for all runs in it; pre-trainings beside them are no runs.
    """
    paths = [path for folder in folders for path in _run_folders(Path(folder))]
    found = {path: _read(path) for path in paths}
    runs = [run for run in found.values() if run is not None]
    waiting = [path for path, run in found.items() if run is None]
    if not runs:
        raise ValueError(
            f"No finished step in {', '.join(map(str, waiting)) or 'no folder'}: nothing to "
            "report yet."
        )
    return runs, waiting


def group_runs(runs: Iterable[RunData]) -> list[Group]:
    """Runs of equal recipes together, in the order met. A seed that stands twice is refused.

    A run and those that have learned further classes behind it are one chain, which the longest
    stands for: it holds the rows of all. A recipe whose runs all are parts of longer ones is no
    group.
    """
    by_settings: dict[str, dict[int, RunData]] = {}
    for run in runs:
        key = json.dumps(settings(run.recipe), sort_keys=True)
        other = by_settings.setdefault(key, {}).setdefault(run.seed, run)
        if other is not run:
            raise ValueError(
                f"{other.path} and {run.path} are the same recipe and seed {run.seed}. Leave one "
                "out."
            )
    everything = [run for seeds in by_settings.values() for run in seeds.values()]
    parents = {
        run.path: [one for one in everything if is_continued(run, one)] for run in everything
    }
    covered = {one.path for group in parents.values() for one in group}
    groups = [[seeds[seed] for seed in sorted(seeds)] for seeds in by_settings.values()]
    groups = [group for group in groups if any(run.path not in covered for run in group)]
    labels = _labels([group[0].recipe for group in groups])
    return [_group(label, group, parents) for label, group in zip(labels, groups, strict=True)]


def is_continued(run: RunData, earlier: RunData) -> bool:
    """Whether a run is an earlier one that has learned further classes: the same name and seed in
    front, more folders learned, and the rows of the earlier one as its first.
    """
    learned, before = (one.recipe.get("own", {}).get("learn", []) for one in (run, earlier))
    count = len(earlier.steps)
    return (
        len(learned) > len(before)
        and learned[: len(before)] == before
        and str(run.recipe["name"]).startswith(f"{earlier.recipe['name']}+")
        and run.seed == earlier.seed
        and run.steps["accuracy"][:count].tolist() == earlier.steps["accuracy"].tolist()
    )


def _group(label: str, runs: list[RunData], parents: Mapping[Path, Sequence[RunData]]) -> Group:
    last = max(run.last_step for run in runs)
    return Group(
        label,
        [run for run in runs if run.last_step == last],
        [run for run in runs if run.last_step < last],
        [one for run in runs for one in parents[run.path]],
    )


def _labels(recipes: list[Record]) -> list[str]:
    """The recipes' names without what all of them share; where one stands twice, with the values
    that differ.
    """
    shared = shared_name([str(recipe["name"]) for recipe in recipes])
    labels = []
    for recipe in recipes:
        values, name = settings(recipe), str(recipe["name"])
        twins = [settings(other) for other in recipes if other["name"] == recipe["name"]]
        differing = [
            leaf
            for leaf in values
            if any(other.get(leaf) != values[leaf] for other in twins)
            and not leaf.startswith("overrides")
        ]
        short = name[len(shared[0]) : len(name) - len(shared[1])]
        labels.append(
            f"{short} ({', '.join(f'{leaf} {values[leaf]}' for leaf in differing)})"
            if differing
            else short
        )
    return labels


PROTOCOL = re.compile(r"[btm]\d+")  # a word of a recipe's name, behind that of the data


def shared_name(names: Sequence[str]) -> tuple[str, str]:
    """What all of the names say of data and protocol, in whole words with their hyphen, and how
    they end, from the @; two empty texts for less than two names.
    """
    if len(set(names)) < 2:
        return "", ""
    ends = {name[name.rfind("@") :] if "@" in name else "" for name in names}
    end = ends.pop() if len(ends) == 1 else ""
    words = [name.removesuffix(end).split("-") for name in names]
    count = 0
    while (count == 0 or PROTOCOL.fullmatch(words[0][count])) and all(
        len(parts) > count + 1 and parts[: count + 1] == words[0][: count + 1] for parts in words
    ):
        count += 1
    return "".join(f"{word}-" for word in words[0][:count]), end


def _run_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder.")
    if (folder / "recipe.json").is_file():
        return [folder]
    inside = sorted(
        (
            path.parent
            for depth in ("*", "*/*", "*/*/*")
            for path in folder.glob(f"{depth}/recipe.json")
        ),
        key=_by_seed,
    )
    if not inside:
        raise ValueError(
            f"{folder} is not a run folder: neither it nor a folder in it has a recipe.json."
        )
    notes = {path: read_recipe_note(path) or {"recipe": {}} for path in inside}
    return [path for path in inside if not is_pretraining(notes[path]["recipe"])] or inside


def _by_seed(path: Path) -> tuple[str, int, str]:
    """Seed 10 stands after seed 9."""
    return (str(path.parent), int(path.name) if path.name.isdecimal() else -1, path.name)


def _read(path: Path) -> RunData | None:
    """The run of a folder; None without a finished step."""
    held = run_note(path)
    files = {name: _rows(path, name, columns) for name, columns in NEEDED.items()}
    _check_classes(path, files)
    steps = files.pop("steps")
    if steps is None:
        return None
    if "method" in steps:
        raise ValueError(
            f"{path} holds the rows of several runs, not one run: its steps.csv has a column "
            "method."
        )
    return RunData(
        path=path,
        recipe={"name": path.parent.name, **held["recipe"]},
        seed=held.get("seed", 0),
        versions=held.get("versions", {}),
        machine=held.get("machine", ""),
        finished="finished" in held,
        finished_at=held.get("finished", ""),
        data_sha256=held.get("data", {}).get("sha256", ""),
        steps=steps,
        **files,
    )


def _rows(folder: Path, name: str, needed: tuple[str, ...]) -> pd.DataFrame | None:
    """The whole rows of a file: what a kill has cut short is no row."""
    path = folder / f"{name}.csv"
    if not RunFolder(folder).read(name):  # refuses what is damaged
        return None
    rows = pd.read_csv(
        io.StringIO(whole_lines(path), newline=""),
        keep_default_na=False,  # a class may be named NA or None
        na_values=[""],
        dtype={"name": str},
    )
    missing = [column for column in needed if column not in rows]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}. It has: {', '.join(rows)}.")
    for column in needed:
        numbers = pd.to_numeric(rows[column], errors="coerce") if column != "name" else rows[column]
        if numbers.isna().any():
            row = int(numbers.isna().to_numpy().argmax())
            value = rows[column].iloc[row]
            raise ValueError(f"{path} is damaged: row {row + 1} has {value!r} for {column}.")
    return rows


def _check_classes(folder: Path, files: Mapping[str, pd.DataFrame | None]) -> None:
    """A ValueError for a row about a class that classes.csv does not have."""
    classes = files["classes"]
    if classes is None:
        return
    for name, column in (
        ("confusion", "class"),
        ("confusion", "predicted"),
        ("exemplars", "class"),
    ):
        rows = files[name]
        unknown = set() if rows is None else set(rows[column]) - set(classes["class"])
        if unknown:
            raise ValueError(
                f"{folder / name}.csv is damaged: {column} {min(unknown)} is not in classes.csv."
            )


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
    one, other = map(_conditions, folders)
    differences, num_alike = [], 0
    for file, keys in FILES.items():
        alike, difference = first_difference(file, keys, *(folder.read(file) for folder in folders))
        num_alike += alike
        differences += [difference] if difference is not None else []
    changed = tuple((name, str(a), str(b)) for name, a, b in differing(one, other))
    return RunDiff(changed, tuple(differences), num_alike)


def _conditions(folder: RunFolder) -> Record:
    """All settings of a run, and what it ran on."""
    held = run_note(folder.path, OF_A_RUN)
    noted = {"seed": held["seed"], **held["versions"], "machine": held["machine"]}
    return settings(held["recipe"]) | noted


def first_difference(
    file: str,
    keys: tuple[str, ...],
    first: list[dict[str, str]],
    second: list[dict[str, str]],
) -> tuple[int, FirstDifference | None]:
    """How many rows agree from the start, and the first that does not."""
    for number, (one, other) in enumerate(zip_longest(first, second)):
        if one is None or other is None:
            run = "first" if one is None else "second"
            columns = [(f"the {run} run has no such row", None, None)]
        else:
            columns = [cell for cell in differing(one, other) if cell[0] not in TIMES]
        if columns:
            known = one or other or {}
            where = ", ".join(f"{key} {known.get(key)}" for key in keys)
            return number, FirstDifference(file, where, tuple(columns))
    return len(first), None
