"""The comparison of all methods on split digits: what a run is, how it is trained, which are in a folder already."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from avalanche_hfc._names import lookup
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.demo import run_method
from avalanche_hfc.runs.folder import as_json, changes, keep_recipe, note_command
from avalanche_hfc.runs.rows import METHOD_COLUMNS, RowFile, replace_file
from avalanche_hfc.strategies import STRATEGIES, JointTraining
from avalanche_hfc.strategies.method import Method

Options = Mapping[str, Mapping[str, Any]]  # of each method that needs some
Row = dict[str, Any]


class Run(NamedTuple):
    """`losses` "host" is the method as it is, "hfc" with both losses put in."""

    method: str
    losses: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method}{' with the losses' if self.losses == 'hfc' else ''}, seed {self.seed}"


def forms(method: str) -> tuple[str, ...]:
    """The values of `losses` that a method is run with."""
    kind = lookup(STRATEGIES, method, "method")
    takes_losses = issubclass(kind, Method) and not issubclass(kind, JointTraining)  # which has no old class to compensate
    return ("host", "hfc") if takes_losses else ("host",)


def all_runs(methods: Iterable[str], seeds: Iterable[int]) -> list[Run]:
    """Seed by seed. A method that cannot run has none."""
    able = [method for method in methods if lookup(STRATEGIES, method, "method").cannot_run is None]  # type: ignore[attr-defined]
    return [Run(method, losses, seed) for seed in seeds for method in able for losses in forms(method)]


def train_run(run: Run, recipe: DemoRecipe, options: Options) -> list[Row]:
    """A row per step; one row of a strategy that trains on the whole stream at once."""
    chosen = dict(options.get(run.method, {}))
    if len(forms(run.method)) > 1:
        chosen["losses"] = run.losses
    rows = run_method(recipe, run.method, run.seed, lambda: None, **chosen)
    return [{"losses": run.losses, **row} for row in rows]


class MethodsFolder:
    """recipe.json and the rows of whole runs; a run that has some of its rows only is dropped, and named in `dropped`.

    A folder made with another recipe is refused, and so is one with rows of a method made with other options.
    """

    def __init__(self, path: Path, recipe: DemoRecipe, options: Options):
        self.path, self.recipe = path, recipe
        path.mkdir(parents=True, exist_ok=True)
        held = keep_recipe(path, recipe, way_out="Choose another --out, or delete the folder.")
        self.file = RowFile(path / "steps.csv", METHOD_COLUMNS)
        self._check_options(held, options)
        self.done, self.dropped = self._whole_runs()

    def _rows_by_run(self) -> dict[Run, list[dict[str, str]]]:
        found: dict[Run, list[dict[str, str]]] = {}
        for row in self.file.rows():
            found.setdefault(Run(row["method"], row["losses"], int(row["seed"])), []).append(row)
        return found

    def _check_options(self, held: dict[str, Any], options: Options) -> None:
        """Options of a method that has no rows yet may change; recipe.json follows."""
        before: dict[str, Any] = held.get("options", {})
        now = {method: dict(values) for method, values in options.items()}
        for method in sorted({run.method for run in self._rows_by_run()}):
            changed = changes(before.get(method, {}), now.get(method, {}))
            if changed:
                raise ValueError(
                    f"{self.path} has rows of {method} with other options ({changed}). "
                    f"Delete its rows in {self.file.path}, or choose another --out."
                )
        if now != before:
            replace_file(self.path / "recipe.json", as_json({**held, "options": now}))

    def _whole_runs(self) -> tuple[set[Run], list[Run]]:
        found = self._rows_by_run()
        whole = {run: rows for run, rows in found.items() if [int(row["step"]) for row in rows] == self._steps(run)}
        dropped = [run for run in found if run not in whole]
        if dropped:
            self.file.replace(row for rows in whole.values() for row in rows)
        return set(whole), dropped

    def _steps(self, run: Run) -> list[int]:
        """The steps that a whole run has rows of."""
        steps = list(range(self.recipe.num_steps))
        kind: Any = lookup(STRATEGIES, run.method, f"method in {self.file.path}:")
        return steps[-1:] if kind.trains_on_stream else steps

    def begin(self, command: str, processes: int) -> str:
        """Note who trains from here on; in words, how versions and machine differ from the call before."""
        return note_command(self.path, command, processes)

    def add(self, rows: list[Row]) -> None:
        """The rows of a finished run, in one write."""
        self.file.extend(rows)
