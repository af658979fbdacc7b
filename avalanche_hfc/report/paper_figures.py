"""The figures that a table has beside it: accuracy per step, FH against accuracy, convergence."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from avalanche_hfc.recipes import PaperCell, Recipe, TableCell
from avalanche_hfc.recipes.options import UPPER_BOUNDS
from avalanche_hfc.report.figures import (
    FOR_PRINT,
    PRINT,
    Curve,
    LineKey,
    Panel,
    as_png,
    assign_colours,
    draw,
)
from avalanche_hfc.report.numbers import measures, over_epochs
from avalanche_hfc.store.read import RunData


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
        kept = (
            f"M = {memory.mem_size}"
            if memory.mem_size
            else f"{memory.per_class} per class"
            if memory.per_class
            else "no memory"
        )
        return f"{data.dataset}, B = {data.base_fraction:.0%}, T = {data.num_steps}, {kept}"


class PaperFigure(NamedTuple):
    """A figure of some cells of a table: those that it `has`, of the rows `rows` if there are any
    and the user has chosen none. Their runs must have the file `file`.
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
        only: The rows that the user has chosen.
    """
    figures = {}
    for name, figure in FIGURES.get(table, {}).items():
        drawn = [run for run in runs if getattr(run, figure.file) is not None]
        lines = lines_of(
            [
                entry
                for entry in cells
                if figure.has(entry.cell)
                and entry.cell.row not in UPPER_BOUNDS  # one step
                and (only or not figure.rows or entry.cell.row in figure.rows)
            ],
            drawn,
            recipes,
        )
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
    keys = {name: _line_key(cell) for name, cell in drawn.items()}
    colours = assign_colours(keys.values())
    return [
        Line(
            ", ".join(filter(None, (drawn[name].row_name, key.variant))),
            colours[key],
            drawn[name],
            recipes[name],
            by_recipe[name],
        )
        for name, key in keys.items()
    ]


def _line_key(cell: PaperCell) -> LineKey:
    """The backbone tells lines apart where it is not the scale's ViT."""
    usual = cell.backbone in ("vit-base", "vit-small")
    return LineKey(cell.row, cell.losses, "" if usual else cell.backbone)


def accuracy_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """Accuracy on the classes seen after each step, a panel per protocol; at scale paper the
    printed steps beside, where there are any.
    """
    panels = []
    for protocol, of_protocol in _by_protocol(lines):
        curves = []
        for line in of_protocol:
            steps = pd.concat([run.steps for run in line.runs]).groupby("classes")["accuracy"]
            points = 100 * pd.DataFrame({"mean": steps.mean(), "std": steps.std()})
            curves.append(Curve(line.label, points, line.colour))
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
        (fh, average), spread = numbers.mean(), numbers.std()
        curves.append(Curve(line.label, _point(fh, average), line.colour))
        bars.append((fh, average, *spread.fillna(0), PRINT.series[line.colour % len(PRINT.series)]))
        printed = _printed(line, paper, "fh")
        if {"fh", "average"} <= printed.keys():
            point = _point(printed["fh"], printed["average"])
            curves.append(Curve("the paper's", point, line.colour, paper=True))
    heights = [float(curve.points["mean"].iloc[0]) for curve in curves]
    limits = (max(min(heights) - 5, 0), min(max(heights) + 5, 100))
    panel = Panel("Average accuracy, %", curves, "FH × 1000", limits=limits)
    figure = draw([panel], FOR_PRINT, height=420)
    for fh, average, wide, high, hue in bars:
        figure.axes[0].errorbar(fh, average, yerr=high, xerr=wide, color=hue, linewidth=1, zorder=1)
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


def _point(x: float, y: float) -> pd.DataFrame:
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
