"""The folder of one run, `runs/<recipe>/<seed>/`: what is in it and whose it is. No torch: a
mistake is reported before anything is loaded.
"""

import csv
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from avalanche_hfc._types import Json, Record
from avalanche_hfc._version import __version__
from avalanche_hfc.lab.lock import RunLock
from avalanche_hfc.lab.options import is_user_method
from avalanche_hfc.lab.rows import (
    Damaged,
    RowFile,
    check_rows,
    checksum,
    read_note,
    read_rows,
    replace_file,
    whole_lines,
)
from avalanche_hfc.lab.schema import Recipe, is_pretraining, pretrain_command

COLUMNS = {
    "steps": (
        "step",
        "classes",
        "images",
        "accuracy",
        "accuracy_nme",
        "average",
        "forgetting",
        "fh",
        "seconds",
        "images_per_second",
        "peak_memory",
    ),
    "classes": (
        "step",
        "class",
        "name",
        "brought_in",
        "correct",
        "correct_nme",
        "total",
        "gradient_sum",
        "gradient_square_sum",
    ),
    "confusion": ("step", "class", "predicted", "count"),
    "exemplars": ("step", "class", "rank", "position"),
}
TRAIN_START = ("step", "phase", "epoch", "lr")
TRAIN_END = ("weight_spread", "alone_fraction", "accuracy", "images_per_second", "digest")
LOSS = "loss_"  # before the name of a loss term in train.csv
TIMES = frozenset(
    ("seconds", "images_per_second", "peak_memory")
)  # the columns in which two equal runs may differ
RECIPE_PARTS = ("data", "model", "train", "memory", "method", "sources", "overrides", "own")
DATA_PLACE = "own.data"  # may change: the fingerprint of the data tells whether it is the same
NO_SETTINGS = ("sources", "overrides", "base")  # of a recipe: they tell where its values come from
NOTE_TYPES: Mapping[str, type] = {
    "recipe": dict,
    "seed": int,
    "versions": dict,
    "machine": str,
    "finished": str,
    "data": dict,
    **{f"recipe.{name}": dict for name in RECIPE_PARTS},
}  # of the entries of recipe.json that a reader uses, where they are there
OF_A_RUN = ("recipe", "seed", "versions", "machine")  # entries that every run's recipe.json has
OURS = ("recipe.json", *(f"{name}.csv" for name in (*COLUMNS, "train")), "checkpoint")


class RunFolder:
    """What a run leaves on the disk; docs/resuming.md lists the files. Reading it changes nothing.

    steps.csv: `accuracy` is that of the strategy's own classifier on the `images` test images of
    all classes seen; `seconds` is training alone, `images_per_second` training images;
    `peak_memory` in bytes, of the device, or of the process on a CPU. train.csv: a row per epoch of
    every phase; `loss_<term>` is the epoch's mean of a loss term, `loss_total` of what was
    minimised; `weight_spread` is the standard deviation of GFC's weights over the samples of the
    epoch, `alone_fraction` the share of the samples that had no other of their step in the batch,
    whose weight is 1; `digest` is that of the weights trained, after the epoch. An empty field:
    there is no such value.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoint"
        self.log = self.path / "log.txt"
        self._lock: RunLock | None = None

    def csv(self, name: str) -> Path:
        """The file of `steps`, `classes`, `confusion`, `exemplars` or `train`."""
        return self.path / f"{name}.csv"

    def read(self, name: str) -> list[dict[str, str]]:
        """The whole rows of one of these files, as text; none where there is no file.

        Raises:
            ValueError: The file is damaged: it is not CSV, or its rows are not those that the last
                checkpoint was saved after.
        """
        try:
            note = read_note(self.checkpoints / "last")  # before the rows, which only grow
        except Damaged:  # none, or of no use: it says nothing about the rows
            note = {}
        rows = read_rows(self.csv(name))
        if name in note.get("rows_sha256", {}):
            try:
                check_rows(note, name, rows)
            except Damaged as error:
                raise ValueError(
                    f"{self.csv(name)} is damaged: {error}. Restore it, or train the run again."
                ) from None
        return rows

    def metadata(self) -> Json | None:
        """What recipe.json holds: recipe, seed, versions, machine, `finished` once the run is; None
        where there is none.
        """
        return read_recipe_note(self.path, OF_A_RUN)

    @property
    def finished(self) -> bool:
        return "finished" in (self.metadata() or {})

    def check(self, recipe: Record, seed: int) -> None:
        """A ValueError unless the folder is free, or holds a run of this recipe and seed.

        A finished run may have options that are constants of its method today.
        """
        held = self.metadata()
        if held is None:
            strangers = [name for name in OURS if (self.path / name).exists()]
            if strangers:
                raise ValueError(
                    f"{self.path} has {', '.join(strangers)} but no recipe.json to say of "
                    "what. Choose another folder."
                )
            return
        before, now = (placeless_settings(one) for one in (held["recipe"], recipe))
        if "finished" in held:
            before = {leaf: before[leaf] for leaf in before if leaf in now or not is_option(leaf)}
        changed = differing(before | {"seed": held["seed"]}, now | {"seed": seed})
        if changed:
            words = "; ".join(f"{name} {was}, now {value}" for name, was, value in changed)
            raise ValueError(
                f"{self.path} was made by another recipe ({words}). Choose another folder, "
                "or pass the old values."
            )

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Inside, this process owns the folder, which is made if need be. Folders made here that
        stay empty are removed again.

        A folder with links, or other files that are none, is a ValueError: a run writes into its
        own files only.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        for path in self.path.rglob("*"):
            if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
                raise ValueError(f"{path} must be a file or a folder, not a link or a device.")
        try:
            with RunLock(self.path / "lock") as self._lock:
                yield
        finally:
            self._lock = None
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()

    def check_owned(self) -> None:
        """A ValueError inside `owned` if the lock is no longer this process's."""
        if self._lock is not None:
            self._lock.check()

    def begin(
        self, recipe: Record, seed: int, machine: str, data: Record | None = None, **notes: str
    ) -> list[str]:
        """Write recipe.json, with these `notes`, before anything else; `data` identifies data of
        the user's. In a run that resumes: the differences of versions and machine, in words.
        """
        held = self.metadata()
        conditions = {**versions(), "machine": machine}
        if held is None:
            now: Json = {"recipe": dict(recipe), "seed": seed, "versions": versions()}
            self.write({**now, "machine": machine, **notes, **({"data": data} if data else {})})
            return []
        if data:
            self.write({**held, "recipe": dict(recipe), "data": data})  # where it is may change
        before = {**held["versions"], "machine": held["machine"]}
        changed = differing(before, conditions)
        return [f"{name} was {was}, is {value}" for name, was, value in changed]

    def finish(self) -> None:
        """Mark the run as finished, in recipe.json."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.write({**(self.metadata() or {}), "finished": now})

    def write(self, content: Json) -> None:
        """Replace recipe.json, with the checksum of what decides the rows."""
        self.check_owned()
        content = {**content, "sha256": recipe_checksum(content)}
        replace_file(self.path / "recipe.json", as_json(content))


class RunRows:
    """The five CSV files of a run, open for rows."""

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.files: dict[str, RowFile] = {
            name: RowFile(folder.csv(name), columns) for name, columns in COLUMNS.items()
        }
        self.files["train"] = TrainFile(folder.csv("train"))

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each file."""
        return {name: file.count for name, file in self.files.items()}

    def metadata(self) -> Json:
        """What a checkpoint notes of the rows that it is saved after: numbers and checksums."""
        digests = {name: file.digest.hexdigest() for name, file in self.files.items()}
        return {"rows": self.counts, "rows_sha256": digests}

    def add(self, name: str, rows: Iterable[Record]) -> None:
        """Rows that belong together, in one write. What has no value is None or nan, and an empty
        field in the file.
        """
        self.folder.check_owned()
        filled = [{column: blank(value) for column, value in row.items()} for row in rows]
        self.files[name].extend(filled)

    def read(self, name: str) -> list[dict[str, str]]:
        return self.files[name].rows()

    def check(self, note: Record) -> None:
        """Refuse, with Damaged, a checkpoint that was saved after other rows than these."""
        if note.get("rows", {}).keys() != self.files.keys():
            raise Damaged("its note.json does not tell the number of rows of each file")
        for name in self.files:
            check_rows(note, name, self.read(name))

    def keep(self, counts: Mapping[str, int]) -> None:
        """Drop the rows behind the first `counts` of each file; all of a file without a count."""
        for name, file in self.files.items():
            if file.count > counts.get(name, 0):
                file.replace(file.rows()[: counts.get(name, 0)])


class TrainFile(RowFile):
    """train.csv: a column for each loss term met so far, in the order they were met. A new one
    makes the file wider, by a rename.
    """

    def __init__(self, path: Path):
        header = next(csv.reader(whole_lines(path).splitlines()[:1]), [])
        super().__init__(path, self._columns(header))

    @staticmethod
    def _columns(names: Iterable[str]) -> tuple[str, ...]:
        return (
            *TRAIN_START,
            *dict.fromkeys(name for name in names if name.startswith(LOSS)),
            *TRAIN_END,
        )

    def extend(self, rows: Iterable[Record]) -> None:
        rows = list(rows)
        columns = self._columns([*self.columns, *(name for row in rows for name in row)])
        if columns != self.columns:
            held, self.columns = self.rows(), columns
            super().replace(dict.fromkeys(columns, "") | row for row in held)
        super().extend(dict.fromkeys(columns, "") | dict(row) for row in rows)

    def replace(self, rows: Iterable[Record]) -> None:
        """Also drops the columns of terms that none of these rows has."""
        rows = list(rows)
        self.columns = self._columns(
            name for name in self.columns if any(row[name] != "" for row in rows)
        )
        super().replace(rows)


def read_recipe_note(folder: Path, needed: Iterable[str] = ("recipe",)) -> Json | None:
    """What recipe.json of a run folder holds; None without one.

    Args:
        folder: The run folder.
        needed: Entries that it must have.

    Raises:
        ValueError: It is no JSON, or an entry is missing or of another type.
    """
    path = folder / "recipe.json"
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not set(needed) <= content.keys():
        raise ValueError(
            f"{path} is not the recipe of a run. Move it away, or choose another folder."
        )
    parts = {**content["recipe"]} if isinstance(content["recipe"], dict) else {}
    values = {**content, **{f"recipe.{name}": value for name, value in parts.items()}}
    for name, expected in NOTE_TYPES.items():
        if name in values and type(values[name]) is not expected:
            raise ValueError(
                f"{path} is damaged: {name} must be a {expected.__name__}, got {values[name]!r}."
            )
    if content.get("sha256", recipe_checksum(content)) != recipe_checksum(content):
        raise ValueError(
            f"{path} is damaged: recipe and seed are not what was written, by their checksum."
        )
    return content


def recipe_checksum(content: Record) -> str:
    """That of recipe and seed; folders of earlier versions have none."""
    return checksum([content["recipe"], content.get("seed")])


def run_note(folder: Path, needed: Iterable[str] = ("recipe",)) -> Json:
    """What recipe.json of a run holds.

    Args:
        folder: The run folder.
        needed: Entries that it must have.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is damaged, or of `hfc pretrain`; then with the command to go on with.
    """
    held = read_recipe_note(folder, needed)
    if held is None:
        raise FileNotFoundError(f"{folder} is not a run folder: it has no recipe.json.")
    if not is_pretraining(held["recipe"]):
        return held
    again = pretrain_command(held["recipe"], held.get("seed", 0), str(folder))
    state = (
        "is a finished pre-training run: pass its encoder.safetensors to `hfc run` as "
        "--model.weights."
        if "finished" in held
        else f"is a pre-training run, not a training run. To resume it: {again}"
    )
    raise ValueError(f"{folder} {state}")


def recipe_of(run_folder: RunFolder, *, allow_code: bool = False) -> Recipe:
    """The recipe that a run folder holds.

    Args:
        run_folder: The run folder.
        allow_code: Whether to import the class that a recipe with `module:Class` names.

    Raises:
        FileNotFoundError: It has no recipe.json.
        ValueError: It names code that is not allowed, or is damaged.
    """
    held = run_note(run_folder.path, OF_A_RUN)
    method = held["recipe"].get("method", {}).get("name")
    if is_user_method(str(method)) and not allow_code:
        raise ValueError(
            f"{run_folder.path} names code, {method!r}, which would be imported and run. If you "
            "trust "
            "it, pass --allow-code."
        )
    try:
        return Recipe.from_dict(held["recipe"])
    except (TypeError, AttributeError, LookupError) as error:
        raise ValueError(
            f"{run_folder.path / 'recipe.json'} is damaged: {type(error).__name__}: {error}."
        ) from error


def differing(one: Record, other: Record) -> list[tuple[str, Any, Any]]:
    """The names whose values are not equal, with both values; None for one that is not there."""
    cells = ((name, one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other]))
    return [cell for cell in cells if cell[1] != cell[2]]


def as_json(content: Json) -> str:
    return json.dumps(content, indent=2) + "\n"


def blank(value: object) -> object:
    """An empty field for what has no value. `value != value` is nan."""
    return "" if value is None or value != value else value


def settings(recipe: Record) -> Json:
    """The leaves of a recipe by dotted path, as JSON gives them back. Where a value comes from is
    no setting.
    """
    flat: Json = {}
    for name, value in json.loads(json.dumps(recipe)).items():
        if isinstance(value, dict) and name not in NO_SETTINGS:
            flat |= {f"{name}.{leaf}": held for leaf, held in value.items()}
        elif name not in NO_SETTINGS:
            flat[name] = value
    return flat


def is_option(leaf: str) -> bool:
    return leaf.split(".")[0] in ("model", "train", "method")


def placeless_settings(recipe: Record) -> Json:
    """The settings that two processes must share to train the same run, wherever the data is."""
    return {leaf: value for leaf, value in settings(recipe).items() if leaf != DATA_PLACE}


def versions() -> dict[str, str]:
    installed = {
        name: version(name) for name in ("torch", "torchvision", "avalanche-lib", "timm", "numpy")
    }
    return installed | {"avalanche_hfc": __version__, "python": platform.python_version()}
