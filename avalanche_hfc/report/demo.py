"""The demonstration's rows as a table and a picture."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from avalanche_hfc.lab import DEMO_MEMORY, DEMO_METHODS, FURTHER_TABLES
from avalanche_hfc.lab.read import RunData, read_runs
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.report.figures import (
    FOR_PRINT,
    Curve,
    LineKey,
    Panel,
    as_png,
    assign_colours,
    draw,
)
from avalanche_hfc.report.numbers import UNITS, per_run
from avalanche_hfc.report.page import write_report as write_page
from avalanche_hfc.report.paper_table import steps_of
from avalanche_hfc.report.tables import spread

COLUMNS = "method seed step classes images accuracy average forgetting fh seconds".split()
DEFINITIONS = (
    "average: mean over the steps of the accuracy on all classes seen so far\n"
    "last: accuracy on all classes after the last step\n"
    "FH: variance of 1 - p(true class) within a step's classes, mean over the steps, x 1000; "
    "lower is more even forgetting"
)


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The measures of every method and seed."""
    runs = per_run(rows, ("method", "seed")).drop(columns="last_nme")
    return runs.round({"seconds": 1})


def table(summary: pd.DataFrame) -> str:
    """Mean over seeds, ± standard deviation where there are several; in percent, FH × 1000."""
    lines = [f"{'':<30}{'average %':>14}{'last %':>14}{'FH x1000':>14}{'seconds':>10}{'seeds':>7}"]
    for method, name in DEMO_METHODS.items():
        runs = summary[summary["method"] == method]
        if len(runs):
            columns = [runs[name] * UNITS[name] for name in ("average", "last", "fh")]
            cells = [spread(column.mean(), column.std()) for column in columns]
            lines.append(
                f"{name:<30}"
                + "".join(f"{cell:>14}" for cell in cells)
                + f"{runs['seconds'].mean():>10.1f}{len(runs):>7}"
            )
    return "\n".join(lines)


def draw_curves(rows: pd.DataFrame, path: Path, title: str = "Split digits") -> None:
    """Accuracy on the classes seen, step by step; the band is ± one standard deviation over
    seeds.
    """
    curves = []
    colours = assign_colours(LineKey(method) for method in DEMO_METHODS)
    for method, name in DEMO_METHODS.items():
        seeds = rows[rows["method"] == method].groupby("classes")["accuracy"]
        if len(seeds):
            points = pd.DataFrame({"mean": seeds.mean() * 100, "std": seeds.std() * 100})
            label = f"{name}, average {points['mean'].mean():.1f}"
            curves.append(Curve(label, points, colours[LineKey(method)]))
    count = rows["seed"].nunique()
    heading = f"{title}, {count} seed{'s' if count > 1 else ''}: accuracy on all classes seen, %"
    ticks = [(int(classes), str(classes)) for classes in sorted(rows["classes"].unique())]
    panel = Panel(heading, curves, "classes seen", ticks, limits=(0, 100))
    replace_file(path, as_png(draw([panel], replace(FOR_PRINT, width=680), height=360)))


def rows_of(runs: Iterable[RunData]) -> pd.DataFrame:
    """The rows of the demonstration's runs, with method and seed; of other recipes, none."""
    methods = {entry.recipe: entry.cell.row for entry in FURTHER_TABLES["demo"]["demo"]}
    rows = steps_of(runs)
    rows = rows.assign(method=rows["recipe"].map(methods))
    in_order = rows.sort_values(
        "method", kind="stable", key=lambda column: column.map(list(DEMO_METHODS).index)
    )
    return in_order[COLUMNS]


def write_report(folder: Path) -> pd.DataFrame:
    """Write steps.csv, summary.csv, curves.png and the page report.html from the runs below.

    All can be deleted and made again.

    Args:
        folder: the demonstration's; its run folders are in `runs`.

    Returns:
        What summary.csv holds.
    """
    rows = rows_of(read_runs([folder / "runs"])[0])
    summary = summary_of(rows)
    replace_file(folder / "steps.csv", rows.to_csv(index=False))
    replace_file(folder / "summary.csv", summary.to_csv(index=False))
    draw_curves(rows, folder / "curves.png", f"Split digits, {DEMO_MEMORY} exemplars")
    write_page([folder / "runs"], folder)
    return summary
