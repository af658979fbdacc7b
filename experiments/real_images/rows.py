"""The rows of finished runs as small files that are committed: what a run was, its steps, its
classes.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from avalanche_hfc._types import Json, Record
from avalanche_hfc.lab import FURTHER_TABLES, recipe
from avalanche_hfc.lab.options import UPPER_BOUNDS
from avalanche_hfc.lab.read import RunData
from avalanche_hfc.lab.rows import RowFile, read_rows, replace_file
from avalanche_hfc.lab.run_folder import COLUMNS as RUN_COLUMNS
from avalanche_hfc.lab.run_folder import (
    DATA_PLACE,
    TIMES,
    RunFolder,
    blank,
    differing,
    read_recipe_note,
    settings,
)
from avalanche_hfc.lab.tables import tables_of
from avalanche_hfc.report.tables import values_of

MEASURES = ("average", "last", "average_nme", "last_nme", "forgetting", "fh", "seconds")
VERSIONS = ("avalanche_hfc", "avalanche-lib", "torch", "torchvision", "timm", "numpy", "python")
CONDITIONS = (*VERSIONS, "machine", "data")
RUN = ("recipe", "seed")
OF_MACHINE = ("images_per_second", "peak_memory")
COLUMNS = {
    "runs": (*RUN, *MEASURES, "weights", *CONDITIONS, "finished"),
    "steps": (*RUN, *(name for name in RUN_COLUMNS["steps"] if name not in OF_MACHINE)),
    "classes": (*RUN, "step", "class", "name", "brought_in", "correct", "correct_nme", "total"),
}
RECIPES = "recipes.json"
MAPPED = {  # row: recipe, of those whose classes are kept and drawn
    entry.cell.row: entry.recipe
    for entry in FURTHER_TABLES["comparison"]["small"]
    if entry.cell.row in ("hfc", "herding-replay")
}
Lines = list[dict[str, str]]


class Rows(NamedTuple):
    """The rows of some runs, as text.

    Attributes:
        files: Lines of runs.csv, steps.csv and classes.csv.
        recipes: The settings of every recipe, by name.
    """

    files: dict[str, Lines]
    recipes: dict[str, Json]


def settings_of(own: Record) -> Json:
    """The settings of a recipe without the place of the data."""
    return {leaf: value for leaf, value in settings(own).items() if leaf != DATA_PLACE}


def changes(before: Json, now: Json) -> str:
    """The settings that differ, with both values; empty where none does."""
    return "; ".join(f"{name} {was}, now {value}" for name, was, value in differing(before, now))


def check_recipe(run: RunData) -> None:
    """A ValueError unless a run was trained with the recipe that its name stands for."""
    name = str(run.recipe["name"])
    if not tables_of(name):
        raise ValueError(f"{run.path}: {name} is no recipe of a table.")
    changed = changes(settings_of(run.recipe), settings_of(recipe(name).as_dict()))
    if changed:
        raise ValueError(f"{run.path} was trained with other values than {name} has: {changed}.")


def rows_of(runs: Iterable[RunData]) -> Rows:
    """The rows of finished runs.

    Raises:
        ValueError: A run has other settings than the recipe of its name.
    """
    found = Rows({name: [] for name in COLUMNS}, {})
    for run in runs:
        check_recipe(run)
        name = str(run.recipe["name"])
        found.recipes[name] = settings_of(run.recipe)
        parts: dict[str, list[Json]] = {
            "runs": [line_of(run)],
            "steps": [*RunFolder(run.path).read("steps")],
            "classes": [*RunFolder(run.path).read("classes")] if name in MAPPED.values() else [],
        }
        for file, lines in parts.items():
            known = ({"recipe": name, "seed": run.seed} | line for line in lines)
            found.files[file] += [
                {column: str(line.get(column, "")) for column in COLUMNS[file]} for line in known
            ]
    return found


def line_of(run: RunData) -> Json:
    """The numbers of a run and the conditions that it was trained under."""
    note = read_recipe_note(run.path) or {}
    values = values_of(run.steps, MEASURES)
    if run.recipe["method"]["name"] in UPPER_BOUNDS:
        values |= dict.fromkeys(("average", "average_nme"), float("nan"))  # one step
    return {
        **{name: blank(value) for name, value in values.items()},
        **{name: run.versions.get(name, "") for name in VERSIONS},
        "weights": note.get("weights", ""),
        "machine": run.machine,
        "data": run.data_sha256,
        "finished": run.finished_at,
    }


def read(folder: Path) -> Rows:
    """The rows of a folder; none where it has no files."""
    path = folder / RECIPES
    recipes = json.loads(path.read_text()) if path.is_file() else {}
    return Rows({name: read_rows(folder / f"{name}.csv") for name in COLUMNS}, recipes)


def merged(before: Rows, new: Rows) -> Rows:
    """The rows of both, sorted. Of a run that both have, the earlier rows are kept; earlier rows of
    a run without a line in runs.csv, which is written last, are dropped.

    Raises:
        ValueError: A recipe or a run is in both, with other values.
    """
    check_same(before.recipes, new.recipes)
    runs = {run_key(line) for line in before.files["runs"]}
    for key in sorted(runs & {run_key(line) for line in new.files["runs"]}):
        different = differences(steps_of(before, key), steps_of(new, key))
        if different:
            raise ValueError(
                f"{key[0]}, seed {key[1]}, has other numbers than before: {different[0]}. Remove "
                "its lines first if they are to be replaced."
            )
    files = {
        name: sorted(
            [
                *(line for line in before.files[name] if run_key(line) in runs),
                *(line for line in new.files[name] if run_key(line) not in runs),
            ],
            key=place,
        )
        for name in COLUMNS
    }
    recipes = new.recipes | before.recipes
    there = sorted({line["recipe"] for line in files["runs"]})
    return Rows(files, {name: recipes[name] for name in there})


def check_same(before: dict[str, Json], now: dict[str, Json]) -> None:
    """A ValueError if a recipe that both have differs in a setting that it had before; one that did
    not exist then is not compared.
    """
    for name in sorted(before.keys() & now.keys()):
        held = {leaf: now[name].get(leaf) for leaf in before[name]}
        changed = changes(before[name], held)
        if changed:
            raise ValueError(f"The rows of {name} are of another recipe: {changed}.")


def write(rows: Rows, folder: Path) -> None:
    """Write the files; those that are there are replaced. runs.csv is the last: a run is there when
    all of its rows are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(own)}" for name, own in rows.recipes.items()
    )
    replace_file(folder / RECIPES, f"{{\n{lines}\n}}\n")
    for name in ("steps", "classes", "runs"):
        RowFile(folder / f"{name}.csv", COLUMNS[name]).replace(rows.files[name])


def run_key(line: Record) -> tuple[str, int]:
    """Recipe and seed."""
    return line["recipe"], int(line["seed"])


def place(line: Record) -> tuple[str, int, int, int]:
    return (*run_key(line), int(line.get("step", 0)), int(line.get("class", 0)))


def steps_of(rows: Rows, run: tuple[str, int]) -> Lines:
    """The steps of a run, in order."""
    return sorted((line for line in rows.files["steps"] if run_key(line) == run), key=place)


def differences(before: Sequence[Record], now: Sequence[Record]) -> list[str]:
    """What differs between the steps of two runs, in words. Times and what was not measured before
    are left out.
    """
    if len(before) != len(now):
        return [f"{len(before)} steps, now {len(now)}"]
    return [
        f"{column} of step {int(line['step']) + 1} was {line[column]}, is {other[column]}"
        for line, other in zip(before, now, strict=True)
        for column in COLUMNS["steps"]
        if column not in TIMES and line[column] not in ("", other[column])
    ]
