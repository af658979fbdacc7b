"""The comparison's rows as numbers over seeds and as the table of methods."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Json
from avalanche_hfc.recipes import TableCell
from avalanche_hfc.store.rows import METHOD_COLUMNS, replace_file
from avalanche_hfc.store.run_folder import RunFolder, as_json
from avalanche_hfc.strategies import STRATEGIES
from avalanche_hfc.strategies._base.method import LOSSES
from avalanche_hfc.tasks.table import TableRun

RUN = ["method", "losses", "seed"]
HEADINGS = (
    "method",
    "average",
    "last",
    "average, both losses",
    "last, both losses",
    "Δ average",
    "Δ last",
)
NOTHING, NONE = "–", "(none)"  # no number; no difference


def per_run(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per method, losses and seed, in the order of `STRATEGIES`. FH is the mean over steps,
    seconds are their sum.
    """
    for method in rows["method"].unique():
        lookup(STRATEGIES, method, "method")
    ordered = rows.sort_values("step", kind="stable")
    ends, runs = ordered.drop_duplicates(RUN, keep="last").set_index(RUN), ordered.groupby(RUN)
    table = pd.DataFrame(
        {
            "average": ends["average"],
            "last": ends["accuracy"],
            "forgetting": ends["forgetting"],
            "fh": runs["fh"].mean(),
            "seconds": runs["seconds"].sum(),
        }
    ).reset_index()
    places = {"method": list(STRATEGIES), "losses": list(LOSSES)}
    in_order = table.sort_values(
        RUN,
        key=lambda column: (
            column.map(places[column.name].index) if column.name in places else column
        ),
    )
    return in_order.reset_index(drop=True)


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per method and losses: mean over seeds, standard deviation and standard error of
    average and last (none of one seed).

    delta_… is what the losses add to the method as it is, seed by seed: mean and standard error
    over the seeds that both forms have.
    """
    runs = per_run(rows)
    seeds = runs.groupby(["method", "losses"], sort=False)
    columns: dict[str, pd.Series] = {}
    for name in ("average", "last"):
        columns |= {
            name: seeds[name].mean(),
            f"{name}_std": seeds[name].std(),
            f"{name}_se": seeds[name].sem(),
        }
    for name in ("forgetting", "fh"):
        columns[name] = seeds[name].mean()
    summary = pd.DataFrame(
        {**columns, "seconds": seeds["seconds"].mean().round(1), "num_seeds": seeds.size()}
    )
    added = differences(runs).groupby(["method", "losses"], sort=False)
    deltas: dict[str, pd.Series] = {}
    for name in ("average", "last"):
        deltas |= {f"delta_{name}": added[name].mean(), f"delta_{name}_se": added[name].sem()}
    return summary.join(pd.DataFrame({**deltas, "delta_seeds": added.size()})).reset_index()


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """What the losses add to average and last of the same method and seed: a row per run with
    losses whose plain form is there.
    """
    plain = runs[runs["losses"] == "host"].set_index(["method", "seed"])[["average", "last"]]
    others = runs[runs["losses"] != "host"].set_index(["method", "losses", "seed"])[
        ["average", "last"]
    ]
    return (
        others.sub(plain.reindex(others.index.droplevel("losses")).to_numpy())
        .dropna(how="all")
        .reset_index()
    )


def no_difference(mean: float, error: float) -> bool:
    """Whether a difference is too small to be told from none: below two standard errors. Of one
    seed (no error) nothing is said.
    """
    return bool(abs(mean) < 2 * error or mean == 0)


def table(rows: pd.DataFrame) -> str:
    """Markdown: a line per method that has rows, or that cannot run; ours first, in percent, with
    what the numbers are, and why a method cannot run, below.

    Δ is the difference that the losses make on the same seed, mean over the seeds that both forms
    have.
    """
    summary = summarise(rows)
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1))]
    reasons = []
    for method in sorted(STRATEGIES, key=lambda name: name.startswith("avalanche-")):
        own = summary[summary["method"] == method].set_index("losses")
        reason: str | None = STRATEGIES[method].cannot_run  # type: ignore[attr-defined]
        if reason is not None:
            lines.append((f"`{method}`", "cannot run", *[NOTHING] * (len(HEADINGS) - 2)))
            reasons.append(f"`{method}` cannot run. {reason}\n")
        elif len(own):
            lines.append((f"`{method}`", *_cells(own)))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{_note(summary)}\n" + "".join(f"\n{reason}" for reason in reasons)


def _note(summary: pd.DataFrame) -> str:
    number = " or ".join(str(count) for count in sorted(set(summary["num_seeds"])))
    return (
        f"Percent, mean ± standard error over {number} seed{'' if number == '1' else 's'}, one "
        "thread. "
        f"Δ: what the losses add, seed by seed, ± its standard error; {NONE} is a Δ below two "
        "standard errors: no difference. "
        "On another kind of CPU single seeds differ by several points."
    )


def _cells(own: pd.DataFrame) -> list[str]:
    both = own.reindex(["host", "hfc"])
    plain = [
        _cell(row[name], row[f"{name}_se"])
        for _, row in both.iterrows()
        for name in ("average", "last")
    ]
    added = both.loc["hfc"]
    return plain + [
        _cell(added[f"delta_{name}"], added[f"delta_{name}_se"], difference=True)
        for name in ("average", "last")
    ]


def _cell(mean: float, error: float, *, difference: bool = False) -> str:
    if math.isnan(mean):
        return NOTHING
    said = f"{100 * mean:{'+' if difference else ''}.1f}" + (
        "" if math.isnan(error) else f" ± {100 * error:.1f}"
    )
    return f"{said} {NONE}" if difference and no_difference(mean, error) else said


def gathered(cells: Iterable[TableCell], runs: Iterable[TableRun]) -> pd.DataFrame:
    """The rows of steps.csv of all runs, with method, losses and seed. Joint training in one step
    has no average over steps.
    """
    cell_of = {name: cell for cell, name in cells}
    parts = []
    for run in runs:
        cell = cell_of[run.recipe.name]
        rows = pd.read_csv(run.folder / "steps.csv").assign(
            method=cell.row, losses=cell.losses, seed=run.seed
        )
        if run.recipe.data.total_steps == 1:
            rows["average"] = math.nan
        parts.append(rows[list(METHOD_COLUMNS)])
    return pd.concat(parts, ignore_index=True)


def write_methods(
    cells: Iterable[TableCell], runs: Sequence[TableRun], folder: Path
) -> tuple[str, list[Path]]:
    """The table as text, and its files: steps.csv (a row per run and step), summary.csv (over
    seeds), table.md, machine.json.
    """
    rows = gathered(cells, runs)
    text = table(rows)
    contents = {
        "steps.csv": rows.to_csv(index=False),
        "summary.csv": summarise(rows).to_csv(index=False),
        "table.md": text,
        "machine.json": as_json({"trained with": conditions(runs)}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        replace_file(folder / file, content)
    return text, [folder / file for file in contents]


def conditions(runs: Iterable[TableRun]) -> list[Json]:
    """The versions and machines that the runs were trained with, each once."""
    found: list[Json] = []
    for run in runs:
        note = RunFolder(run.folder).note() or {}
        under = {"versions": note.get("versions"), "machine": note.get("machine")}
        if under not in found:
            found.append(under)
    return found
