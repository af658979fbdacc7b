"""The figures of the tables, and what `hfc demo` writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from avalanche_hfc.lab import DEMO_MEMORY, DEMO_METHODS, PaperCell, Recipe, TableCell
from avalanche_hfc.lab.options import UPPER_BOUNDS
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
from avalanche_hfc.report.numbers import measures, over_epochs
from avalanche_hfc.report.sections import write_report
from avalanche_hfc.report.tables import demo_rows, demo_summary, steps_of

DEMO_LOOK = replace(FOR_PRINT, width=680)


class Line(NamedTuple):
    """The runs of a recipe that fills cells of a table. Its row has one `colour` in all panels."""

    label: str
    colour: int
    cell: PaperCell
    recipe: Recipe
    runs: list[RunData]

    @property
    def protocol(self) -> str:
        data, memory = self.recipe.data, self.recipe.memory
        kept = f"M = {memory.mem_size}" if memory.mem_size else "no memory"
        kept = f"{memory.per_class} per class" if memory.per_class else kept
        return f"{data.dataset}, B = {data.base_fraction:.0%}, T = {data.num_steps}, {kept}"


class PaperFigure(NamedTuple):
    """A figure of some cells of a table: those that it `has`, of the rows `rows` if there are any
    and the user has named none. Their runs must have the file `file`.
    """

    draw: Callable[[Sequence[Line], pd.DataFrame | None], Figure]
    has: Callable[[PaperCell], bool]
    rows: tuple[str, ...] = ()
    file: str = "steps"


def figures_of(
    table: str,
    cells: Sequence[TableCell],
    runs: Sequence[RunData],
    recipes: Mapping[str, Recipe],
    paper: pd.DataFrame | None = None,
    *,
    only: Sequence[str] = (),
) -> dict[str, bytes]:
    """The figures of a table, as PNG by name; those that its finished runs are enough for.

    Args:
        table: The name of the table.
        cells: Its cells.
        runs: Their finished runs.
        recipes: The recipes that were run, by name.
        paper: The paper's numbers, which are drawn beside ours.
        only: The rows that the user has named.
    """
    figures = {}
    for name, figure in FIGURES.get(table, {}).items():
        rows = {} if only else figure.rows
        drawn = [
            entry
            for entry in cells
            if figure.has(entry.cell)
            and entry.cell.row not in UPPER_BOUNDS  # one step
            and (not rows or entry.cell.row in rows)
        ]
        with_file = [run for run in runs if getattr(run, figure.file) is not None]
        lines = lines_of(drawn, with_file, recipes)
        if lines:
            figures[name] = as_png(figure.draw(lines, paper))
    return figures


def lines_of(
    cells: Sequence[TableCell], runs: Sequence[RunData], recipes: Mapping[str, Recipe]
) -> list[Line]:
    """A line per recipe with finished runs, in the order of the table."""
    by_recipe: dict[str, list[RunData]] = {}
    for run in runs:
        by_recipe.setdefault(str(run.recipe["name"]), []).append(run)
    drawn: dict[str, PaperCell] = {}
    for cell, name in cells:
        if name in by_recipe:
            drawn.setdefault(name, cell)
    keys = {
        name: LineKey(cell.row, cell.losses, _variant(cell.backbone))
        for name, cell in drawn.items()
    }
    colours = assign_colours(keys.values())
    return [
        Line(
            ", ".join(filter(None, (cell.row_name, _variant(cell.backbone)))),
            colours[keys[name]],
            cell,
            recipes[name],
            by_recipe[name],
        )
        for name, cell in drawn.items()
    ]


def _variant(backbone: str) -> str:
    """The backbone tells lines apart where it is not the scale's ViT."""
    return "" if backbone in ("vit-base", "vit-small") else backbone


def accuracy_points(steps: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over runs of the accuracy in percent, by the number of classes seen."""
    return 100 * steps.groupby("classes")["accuracy"].agg(["mean", "std"])


def accuracy_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """Accuracy on the classes seen after each step, a panel per protocol; at scale paper the
    printed steps beside, where there are any.
    """
    panels = []
    for protocol, of_protocol in _by_protocol(lines):
        curves = []
        for line in of_protocol:
            curves.append(Curve(line.label, accuracy_points(steps_of(line.runs)), line.colour))
            printed = _printed(line, paper, "steps-")
            at_step = enumerate(line.runs[0].steps["classes"], 1)
            means = {n: printed[f"step {k}"] for k, n in at_step if f"step {k}" in printed}
            if means:
                points = pd.DataFrame({"mean": means, "std": float("nan")})
                curves.append(Curve("the paper's", points, line.colour, paper=True))
        panels.append(Panel(f"Accuracy, %: {protocol}", curves, "classes seen", limits=(0, 100)))
    return draw(panels, FOR_PRINT)


def fh_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """FH × 1000, the mean over steps, against average accuracy; bars are ± one standard deviation
    over seeds.
    """
    curves, bars = [], []
    for line in lines:
        numbers = pd.DataFrame([measures(run.steps) for run in line.runs])
        numbers = numbers[["fh", "average"]] * [1000, 100]
        (fh, average), spread = numbers.mean(), numbers.std().fillna(0)
        curves.append(Curve(line.label, point(fh, average), line.colour))
        bars.append((fh, average, spread, FOR_PRINT.series[line.colour % len(FOR_PRINT.series)]))
        printed = _printed(line, paper, "fh")
        if {"fh", "average"} <= printed.keys():
            papers = point(printed["fh"], printed["average"])
            curves.append(Curve("the paper's", papers, line.colour, paper=True))
    heights = [float(curve.points["mean"].iloc[0]) for curve in curves]
    limits = (max(min(heights) - 5, 0), min(max(heights) + 5, 100))
    panel = Panel("Average accuracy, %", curves, "FH × 1000", limits=limits)
    figure = draw([panel], FOR_PRINT, height=420)
    for fh, average, spread, hue in bars:
        figure.axes[0].errorbar(
            fh, average, spread["average"], spread["fh"], color=hue, linewidth=1, zorder=1
        )
    return figure


def convergence_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """The loss over the epochs of all steps. The paper prints no number of this figure."""
    panels = []
    for protocol, of_protocol in _by_protocol(lines):
        curves, starts = [], set()
        for line in of_protocol:
            points = over_epochs(line.runs, "loss_total")
            starts.add(tuple(points.index[points["step"].diff() > 0] - 0.5))
            curves.append(Curve(line.label, points[["mean", "std"]], line.colour))
        same = starts.pop() if len(starts) == 1 else ()
        x = "epoch, counted through all steps"
        panels.append(Panel(f"Loss: {protocol}", curves, x, starts=same))
    return draw(panels, FOR_PRINT)


FIGURES: dict[str, dict[str, PaperFigure]] = {
    "cifar100": {
        "accuracy": PaperFigure(
            accuracy_figure, lambda cell: cell.base_fraction == 0 and cell.num_steps != 50
        )
    },
    "imagenet100": {
        "accuracy": PaperFigure(accuracy_figure, lambda cell: cell.base_fraction == 0),
        "convergence": PaperFigure(
            convergence_figure,
            lambda cell: cell.base_fraction == 0 and cell.num_steps <= 10,
            rows=("hfc",),
            file="train",
        ),
    },
    "fh": {"fh": PaperFigure(fh_figure, lambda cell: True)},
    **{
        f"steps-{table}": {"accuracy": PaperFigure(accuracy_figure, lambda cell: True)}
        for table in ("imagenet100", "imagenet1000", "plug-and-play")
    },
}


def _by_protocol(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    for protocol in dict.fromkeys(line.protocol for line in lines):
        yield protocol, [line for line in lines if line.protocol == protocol]


def point(x: float, y: float) -> pd.DataFrame:
    """A curve of one point."""
    return pd.DataFrame({"mean": [y], "std": [float("nan")]}, index=[x])


def _printed(line: Line, paper: pd.DataFrame | None, tables: str) -> dict[str, float]:
    """column -> the paper's number for this cell, from tables whose name begins so; none at other
    scales, whose data are others.
    """
    if paper is None or line.recipe.scale != "paper":
        return {}
    rows = paper[paper["table"].str.startswith(tables)]
    for key, value in line.cell._asdict().items():
        rows = rows[rows[key].isna() if value is None else rows[key] == value]
    return dict(zip(rows["column"], rows["value"], strict=True))


# The demonstration


def write_demo(folder: Path) -> pd.DataFrame:
    """Write steps.csv, summary.csv, curves.png and the page report.html from the runs below.

    All can be deleted and made again.

    Args:
        folder: The folder of the demonstration; its run folders are in `runs`.

    Returns:
        The rows of summary.csv.
    """
    rows = demo_rows(read_runs([folder / "runs"])[0])
    summary = demo_summary(rows)
    replace_file(folder / "steps.csv", rows.to_csv(index=False))
    replace_file(folder / "summary.csv", summary.to_csv(index=False))
    replace_file(folder / "curves.png", as_png(demo_curves(rows)))
    write_report([folder / "runs"], folder)
    return summary


def demo_curves(rows: pd.DataFrame) -> Figure:
    """Accuracy on the classes seen, step by step; the band is ± one standard deviation over
    seeds.
    """
    colours, curves = assign_colours(map(LineKey, DEMO_METHODS)), []
    for method, seeds in rows.groupby("method", sort=False):
        points = accuracy_points(seeds)
        label = f"{DEMO_METHODS[method]}, average {points['mean'].mean():.1f}"
        curves.append(Curve(label, points, colours[LineKey(method)]))
    count = rows["seed"].nunique()
    title = f"Split digits, {DEMO_MEMORY} exemplars, {count} seed{'s' if count > 1 else ''}"
    ticks = [(int(classes), str(classes)) for classes in sorted(rows["classes"].unique())]
    title += ": accuracy on all classes seen, %"
    panel = Panel(title, curves, "classes seen", ticks, limits=(0, 100))
    return draw([panel], DEMO_LOOK, height=360)
