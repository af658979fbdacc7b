"""The comparison's rows as numbers over seeds and as the table of methods."""

import math
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from avalanche_hfc._names import lookup
from avalanche_hfc.recipes import TableCell
from avalanche_hfc.runs.rows import METHOD_COLUMNS, replace_file
from avalanche_hfc.runs.table import TableRun
from avalanche_hfc.strategies import STRATEGIES
from avalanche_hfc.strategies.method import LOSSES

RUN = ["method", "losses", "seed"]
HEADINGS = ("method", "average", "last", "average, both losses", "last, both losses", "Δ average", "Δ last")
NOTHING = "–"


def per_run(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per method, losses and seed, in the order of `STRATEGIES`. FH is the mean over steps, seconds are their sum."""
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
    in_order = table.sort_values(RUN, key=lambda column: column.map(places[column.name].index) if column.name in places else column)
    return in_order.reset_index(drop=True)


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per method and losses: mean over seeds, and the standard deviation of average and last (none of a single seed)."""
    seeds = per_run(rows).groupby(["method", "losses"], sort=False)
    return pd.DataFrame(
        {
            "average": seeds["average"].mean(),
            "average_std": seeds["average"].std(),
            "last": seeds["last"].mean(),
            "last_std": seeds["last"].std(),
            "forgetting": seeds["forgetting"].mean(),
            "fh": seeds["fh"].mean(),
            "seconds": seeds["seconds"].mean().round(1),
            "num_seeds": seeds.size(),
        }
    ).reset_index()


def table(rows: pd.DataFrame) -> str:
    """Markdown: a line per method that has rows, or that cannot run; ours first, in percent, with what the numbers are, and why a
    method cannot run, below.

    Δ is the difference that the losses make on the same seed, mean over the seeds that both forms have.
    """
    runs = per_run(rows)
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1))]
    reasons = []
    for method in sorted(STRATEGIES, key=lambda name: name.startswith("avalanche-")):
        own = runs[runs["method"] == method]
        reason: str | None = STRATEGIES[method].cannot_run  # type: ignore[attr-defined]
        if reason is not None:
            lines.append((f"`{method}`", "cannot run", *[NOTHING] * (len(HEADINGS) - 2)))
            reasons.append(f"`{method}` cannot run. {reason}\n")
        elif len(own):
            lines.append((f"`{method}`", *_cells(own)))
    seeds = runs.groupby(["method", "losses"]).size()
    number = " or ".join(str(count) for count in sorted(set(seeds)))
    note = f"Percent, mean ± standard deviation, {number} seed{'' if number == '1' else 's'}. Δ: what the losses add, seed by seed."
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{note}\n" + "".join(f"\n{reason}" for reason in reasons)


def _cells(own: pd.DataFrame) -> list[str]:
    forms = [own[own["losses"] == losses].set_index("seed")[["average", "last"]] * 100 for losses in ("host", "hfc")]
    plain = [_cell(form[column]) for form in forms for column in form]
    added = (forms[1] - forms[0]).dropna()  # seeds of both
    return plain + [_cell(added[column], sign="+") for column in added]


def _cell(values: pd.Series, sign: str = "") -> str:
    if values.isna().all():
        return NOTHING
    return f"{values.mean():{sign}.1f}" + (f" ± {values.std():.1f}" if len(values) > 1 else "")


def gathered(cells: Iterable[TableCell], runs: Iterable[TableRun]) -> pd.DataFrame:
    """The rows of steps.csv of all runs, with method, losses and seed. Joint training in one step has no average over steps."""
    cell_of = {name: cell for cell, name in cells}
    parts = []
    for run in runs:
        cell = cell_of[run.recipe.name]
        rows = pd.read_csv(run.folder / "steps.csv").assign(method=cell.row, losses=cell.losses, seed=run.seed)
        if run.recipe.data.total_steps == 1:
            rows["average"] = math.nan
        parts.append(rows[list(METHOD_COLUMNS)])
    return pd.concat(parts, ignore_index=True)


def write_methods(cells: Iterable[TableCell], runs: Iterable[TableRun], folder: Path, name: str) -> tuple[str, list[Path]]:
    """The table as text, and its files: name-steps.csv (a row per run and step), name.csv (over seeds) and name.md."""
    rows = gathered(cells, runs)
    text = table(rows)
    contents = {f"{name}-steps.csv": rows.to_csv(index=False), f"{name}.csv": summarise(rows).to_csv(index=False), f"{name}.md": text}
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        replace_file(folder / file, content)
    return text, [folder / file for file in contents]
