"""The demonstration's rows as a table and a picture."""

import json
from io import BytesIO
from pathlib import Path

import pandas as pd

from avalanche_hfc.recipes import DEMO_METHODS
from avalanche_hfc.runs.rows import replace_file

COLORS = {"hfc": "#c0392b", "herding-replay": "#2471a3", "avalanche-replay": "#7d8b3a", "avalanche-naive": "#85888c"}  # one hue per method
DEFINITIONS = (
    "average: mean over the steps of the accuracy on all classes seen so far\n"
    "last: accuracy on all classes after the last step\n"
    "FH: variance of 1 - p(true class) within a step's classes, mean over the steps, x 1000; lower is more even forgetting"
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
            cells = [_cell(own["average"] * 100), _cell(own["last"] * 100), _cell(own["fh"] * 1000)]
            lines.append(f"{name:<30}" + "".join(f"{cell:>14}" for cell in cells) + f"{own['seconds'].mean():>10.1f}{len(own):>7}")
    return "\n".join(lines)


def _cell(values: pd.Series) -> str:
    return f"{values.mean():.1f}" + (f" ± {values.std():.1f}" if len(values) > 1 else "")


def draw_curves(rows: pd.DataFrame, path: Path, title: str = "Split digits") -> None:
    """Accuracy on the classes seen, step by step; the band is ± one standard deviation over seeds."""
    from matplotlib.figure import Figure  # no pyplot: no window system, no global state

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for method, name in DEMO_METHODS.items():
        own = rows[rows["method"] == method].groupby("classes")["accuracy"]
        if len(own):
            mean, spread = own.mean() * 100, own.std().fillna(0) * 100
            axes.plot(mean.index, mean, marker="o", markersize=4, color=COLORS[method], label=f"{name}, average {mean.mean():.1f}")
            axes.fill_between(mean.index, mean - spread, mean + spread, color=COLORS[method], alpha=0.15, linewidth=0)
    seeds = rows["seed"].nunique()
    axes.set(xlabel="classes seen", ylabel="accuracy on all of them, %", ylim=(0, 102), xticks=sorted(rows["classes"].unique()))
    axes.set_title(f"{title}, {seeds} seed{'s' if seeds > 1 else ''}", loc="left", fontsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    replace_file(path, picture.getvalue())


def write_report(folder: Path) -> pd.DataFrame:
    """summary.csv and curves.png from steps.csv; both can be deleted and made again."""
    rows = pd.read_csv(folder / "steps.csv")
    summary = summarise(rows)
    replace_file(folder / "summary.csv", summary.to_csv(index=False))
    mem_size = json.loads((folder / "recipe.json").read_text())["recipe"]["mem_size"]
    draw_curves(rows, folder / "curves.png", f"Split digits, {mem_size} exemplars")
    return summary
