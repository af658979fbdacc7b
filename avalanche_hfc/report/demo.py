"""The demonstration's rows as a table and a picture."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from avalanche_hfc.recipes import DEMO_MEMORY, DEMO_METHODS
from avalanche_hfc.report.figures import Curve, Panel, as_png, draw
from avalanche_hfc.report.page import write_report as write_page
from avalanche_hfc.report.style import FOR_PRINT, PRINT
from avalanche_hfc.report.tables import spread
from avalanche_hfc.store.rows import RUN_COLUMNS, replace_file

COLORS = {
    "hfc": "#c0392b",
    "herding-replay": "#2471a3",
    "avalanche-replay": "#7d8b3a",
    "avalanche-naive": "#85888c",
}  # one hue per method
DEFINITIONS = (
    "average: mean over the steps of the accuracy on all classes seen so far\n"
    "last: accuracy on all classes after the last step\n"
    "FH: variance of 1 - p(true class) within a step's classes, mean over the steps, x 1000; "
    "lower is more even forgetting"
)


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per method and seed."""
    runs = rows.sort_values("step", kind="stable").groupby(["method", "seed"], sort=False)
    return pd.DataFrame(
        {
            "average": runs["accuracy"].mean(),
            "last": runs["accuracy"].last(),
            "forgetting": runs["forgetting"].last(),
            "fh": runs["fh"].mean(),
            "seconds": runs["seconds"].sum().round(1),
        }
    ).reset_index()


def table(summary: pd.DataFrame) -> str:
    """Mean over seeds, ± standard deviation where there are several; in percent, FH × 1000."""
    lines = [f"{'':<30}{'average %':>14}{'last %':>14}{'FH x1000':>14}{'seconds':>10}{'seeds':>7}"]
    for method, name in DEMO_METHODS.items():
        own = summary[summary["method"] == method]
        if len(own):
            columns = [own["average"] * 100, own["last"] * 100, own["fh"] * 1000]
            cells = [spread(column.mean(), column.std()) for column in columns]
            lines.append(
                f"{name:<30}"
                + "".join(f"{cell:>14}" for cell in cells)
                + f"{own['seconds'].mean():>10.1f}{len(own):>7}"
            )
    return "\n".join(lines)


def draw_curves(rows: pd.DataFrame, path: Path, title: str = "Split digits") -> None:
    """Accuracy on the classes seen, step by step; the band is ± one standard deviation over
    seeds.
    """
    curves = []
    for place, (method, name) in enumerate(DEMO_METHODS.items()):
        own = rows[rows["method"] == method].groupby("classes")["accuracy"]
        if len(own):
            points = pd.DataFrame({"mean": own.mean() * 100, "std": own.std() * 100})
            curves.append(Curve(f"{name}, average {points['mean'].mean():.1f}", points, place))
    seeds = rows["seed"].nunique()
    heading = f"{title}, {seeds} seed{'s' if seeds > 1 else ''}: accuracy on all classes seen, %"
    ticks = [(int(classes), str(classes)) for classes in sorted(rows["classes"].unique())]
    panel = Panel(heading, curves, "classes seen", ticks, limits=(0, 100))
    look = replace(FOR_PRINT, width=680, palette=replace(PRINT, series=tuple(COLORS.values())))
    replace_file(path, as_png(draw([panel], look, height=360)))


def gathered(folder: Path) -> pd.DataFrame:
    """The rows of all runs below the folder, with method and seed."""
    parts = []
    for method in DEMO_METHODS:
        for path in sorted(
            (folder / "runs" / f"digits-b0-t5-{method}@demo").glob("*/steps.csv"),
            key=lambda path: int(path.parent.name),
        ):
            rows = pd.read_csv(path)
            parts.append(rows.assign(method=method, seed=int(path.parent.name))[list(RUN_COLUMNS)])
    return pd.concat(parts, ignore_index=True)


def write_report(folder: Path) -> pd.DataFrame:
    """steps.csv, summary.csv, curves.png and the page report.html from the runs below; all can be
    deleted and made again.
    """
    rows = gathered(folder)
    summary = summarise(rows)
    replace_file(folder / "steps.csv", rows.to_csv(index=False))
    replace_file(folder / "summary.csv", summary.to_csv(index=False))
    draw_curves(rows, folder / "curves.png", f"Split digits, {DEMO_MEMORY} exemplars")
    write_page([folder / "runs"], folder)
    return summary
