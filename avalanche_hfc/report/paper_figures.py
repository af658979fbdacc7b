"""The paper's figures from run folders: accuracy per step, FH against accuracy, convergence. As PNG
and SVG.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from avalanche_hfc.recipes import PaperCell, Recipe, TableCell
from avalanche_hfc.recipes.options import UPPER_BOUNDS
from avalanche_hfc.report.figures import Curve, Panel, as_png, draw
from avalanche_hfc.report.numbers import measures, over_epochs
from avalanche_hfc.report.style import FOR_PRINT, PRINT, LineKey, assign_colours
from avalanche_hfc.store.read import RunData, read_runs
from avalanche_hfc.store.rows import replace_file
from avalanche_hfc.tasks.table import TableRun, row_name


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


def lines_of(cells: Iterable[TableCell], runs: Iterable[TableRun]) -> list[Line]:
    """A line per recipe with finished runs, in the order of the table."""
    held: dict[str, tuple[Recipe, list[RunData]]] = {}
    for run in runs:
        held.setdefault(run.recipe.name, (run.recipe, []))[1].extend(read_runs([run.folder])[0])
    drawn: dict[str, PaperCell] = {}
    for cell, name in cells:
        if name in held:
            drawn.setdefault(name, cell)
    colours = assign_colours(map(_line_key, drawn.values()))
    return [
        Line(
            ", ".join(part for part in (row_name(cell), _other_backbone(cell)) if part),
            colours[_line_key(cell)],
            cell,
            *held[name],
        )
        for name, cell in drawn.items()
    ]


def _line_key(cell: PaperCell) -> LineKey:
    return LineKey(cell.row, cell.losses, _other_backbone(cell))


def _other_backbone(cell: PaperCell) -> str:
    """The backbone where it is not the scale's ViT."""
    return "" if cell.backbone in ("vit-base", "vit-small") else cell.backbone


def accuracy_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """Accuracy on the classes seen after each step, a panel per protocol; at scale paper the
    printed steps beside, where there are any.
    """
    panels = []
    for protocol, of_protocol in _by_protocol(lines):
        curves = []
        for line in of_protocol:
            curves.append(
                Curve(line.label, _over_seeds(line.runs, "classes", "accuracy", 100), line.colour)
            )
            curves += _printed_steps(line, paper)
        panels.append(Panel(f"Accuracy, %: {protocol}", curves, "classes seen", limits=(0, 100)))
    return draw(panels, FOR_PRINT)


def fh_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """FH × 1000, the mean over steps, against average accuracy; bars are ± one standard deviation
    over seeds.
    """
    curves, bars = [], []
    for line in lines:
        numbers = pd.DataFrame([measures(run.steps) for run in line.runs])[["fh", "average"]] * [
            1000,
            100,
        ]
        (fh, average), spread = numbers.mean(), numbers.std()
        curves.append(_point(line.label, fh, average, line.colour))
        bars.append((fh, average, *spread.fillna(0), line.colour))
        printed = _printed(line, paper, "fh")
        if {"fh", "average"} <= printed.keys():
            curves.append(
                _point("the paper's", printed["fh"], printed["average"], line.colour, paper=True)
            )
    heights = [float(curve.points["mean"].iloc[0]) for curve in curves]
    limits = (max(min(heights) - 5, 0), min(max(heights) + 5, 100))
    figure = draw(
        [Panel("Average accuracy, %", curves, "FH × 1000", limits=limits)], FOR_PRINT, height=420
    )
    for fh, average, wide, high, colour in bars:
        hue = PRINT.series[colour % len(PRINT.series)]
        figure.axes[0].errorbar(fh, average, yerr=high, xerr=wide, color=hue, linewidth=1, zorder=1)
    return figure


def convergence_figure(lines: Sequence[Line], paper: pd.DataFrame | None = None) -> Figure:
    """Over the epochs of all steps: the accuracy where train.csv has it, else the loss. The paper
    prints no number of this figure.
    """
    trained = [run.train for line in lines for run in line.runs if run.train is not None]
    column = (
        "accuracy" if any(train["accuracy"].notna().any() for train in trained) else "loss_total"
    )
    heading, scale = ("Accuracy, %", 100) if column == "accuracy" else ("Loss", 1)
    panels = []
    for protocol, of_protocol in _by_protocol(lines):
        curves, starts = [], set()
        for line in of_protocol:
            points = over_epochs(line.runs, column)
            starts.add(tuple(points.index[points["step"].diff() > 0] - 0.5))
            curves.append(Curve(line.label, points[["mean", "std"]] * scale, line.colour))
        same = starts.pop() if len(starts) == 1 else ()
        panels.append(
            Panel(f"{heading}: {protocol}", curves, "epoch, counted through all steps", starts=same)
        )
    return draw(panels, FOR_PRINT)


class PaperFigure(NamedTuple):
    """`table` has the cells, of which `has` keeps some; `rows` are those drawn unless the user
    names others.
    """

    table: str
    has: Callable[[PaperCell], bool]
    rows: tuple[str, ...]
    draw: Callable[[Sequence[Line], pd.DataFrame | None], Figure]


FIGURES = {
    "accuracy": PaperFigure(
        "cifar100",
        lambda cell: cell.base_fraction == 0 and cell.num_steps != 50,
        (),
        accuracy_figure,
    ),
    "fh": PaperFigure("fh", lambda cell: True, (), fh_figure),
    "convergence": PaperFigure(
        "imagenet100",
        lambda cell: cell.base_fraction == 0 and cell.num_steps <= 10,
        ("hfc",),
        convergence_figure,
    ),
}


def cells_drawn(figure: PaperFigure, cells: Iterable[TableCell]) -> list[TableCell]:
    """Those of a table that the figure shows. Joint training has one step and is in none."""
    return [
        entry for entry in cells if figure.has(entry.cell) and entry.cell.row not in UPPER_BOUNDS
    ]


def write_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """name.png and name.svg; both can be deleted and made again."""
    text = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    folder.mkdir(parents=True, exist_ok=True)
    contents: Mapping[str, str | bytes] = {"png": as_png(figure), "svg": text.getvalue()}
    paths = [folder / f"{name}.{ending}" for ending in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        replace_file(path, content)
    return paths


def _by_protocol(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    for protocol in dict.fromkeys(line.protocol for line in lines):
        yield protocol, [line for line in lines if line.protocol == protocol]


def _over_seeds(runs: Sequence[RunData], x: str, y: str, scale: float | int) -> pd.DataFrame:
    values = pd.concat([run.steps for run in runs]).groupby(x)[y]
    return pd.DataFrame({"mean": values.mean(), "std": values.std()}) * scale


def _point(label: str, x: float, y: float, colour: int, *, paper: bool = False) -> Curve:
    return Curve(
        label, pd.DataFrame({"mean": [y], "std": [float("nan")]}, index=[x]), colour, paper
    )


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


def _printed_steps(line: Line, paper: pd.DataFrame | None) -> list[Curve]:
    printed = _printed(line, paper, "steps-")
    classes = list(line.runs[0].steps["classes"])
    points = {
        classes[step]: printed[f"step {step + 1}"]
        for step in range(len(classes))
        if f"step {step + 1}" in printed
    }
    return (
        [
            Curve(
                "the paper's",
                pd.DataFrame({"mean": points, "std": float("nan")}),
                line.colour,
                paper=True,
            )
        ]
        if points
        else []
    )
