"""The numbers of a table from the folders of its runs, beside those of the paper, and in its units:
percent, FH × 1000.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from avalanche_hfc._types import Json, Options, Record
from avalanche_hfc.lab import SCALES, TABLES, PaperCell, Recipe, TableCell, recipe
from avalanche_hfc.lab.options import CANNOT_RUN, UPPER_BOUNDS, method_class
from avalanche_hfc.lab.read import RunData
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.run_folder import as_json
from avalanche_hfc.lab.tables import ALL_TABLES
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
from avalanche_hfc.report.numbers import UNITS, measures, over_epochs
from avalanche_hfc.report.tables import (
    KEYS,
    Grid,
    compare,
    comparison_grid,
    latex,
    markdown,
    measures_grid,
    paper_grid,
)


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


def hfc(row: Record) -> Record:
    """HFC under the same protocol."""
    return {"row": "hfc", "losses": "host"}


def both_losses(row: Record) -> Record:
    """The same method with both losses inside."""
    return {"losses": "hfc"}


def paper_leader(row: Record) -> Record:
    """What the paper compares with: HFC, on other backbones both losses inside."""
    shared = ("vit-base", DEMO_BACKBONES["vit-base"])
    return hfc(row) if row["backbone"] in shared else both_losses(row)


def all_parts(row: Record) -> Record:
    """The baseline with all parts of HFC and the baseline's own values."""
    return {"row": "baseline+tsa", "losses": "hfc"}


def pretrained(row: Record) -> Record:
    """The same from the weights of the scale."""
    return {"backbone": "vit-small"}


class TableForm(NamedTuple):
    """What a table shows.

    `columns` are `measures` of a run, "average_nme", the mean over steps by the nearest mean, or
    "steps", its accuracy after each step. `over_steps`: also the mean over all T. `leads`: columns
    that are compared with what `leader` changes of a row, seed by seed, and how the difference is
    called. `files`: where CSV, markdown and LaTeX go; with `rows_in`, there the rows
    of its runs and what they were trained with, too. `titled`: the markdown has the title.
    `unable`: methods without a number, whose class says why.
    """

    title: str
    columns: tuple[str, ...] = ("average",)
    over_steps: bool = False
    leads: Mapping[str, str] = {}
    leader: Callable[[Record], Record] = paper_leader
    grid: Callable[[pd.DataFrame], Grid] = paper_grid
    files: tuple[str, str, str] = ("{}.csv", "{}.md", "{}.tex")
    rows_in: str = ""
    titled: bool = True
    unable: tuple[str, ...] = ()


# From the scales small and medium: every measure, with the difference from a leader
MEASURED: Options = {
    "columns": ("average", "last", "average_nme", "last_nme", "forgetting", "fh", "seconds"),
    "leads": {"average": "Δ average", "last": "Δ last"},
    "leader": hfc,
    "grid": measures_grid,
    "files": ("{}/summary.csv", "{}/table.md", "{}/table.tex"),
    "rows_in": "{}",
}
MEAN_LED: Options = {"over_steps": True, "leads": {"mean": "improvement"}}
STEPS: Options = {"columns": ("steps", "average"), "leads": {"average": "improvement"}}
FORMS = {
    "cifar100": TableForm("CIFAR-100 with ViT-Base and 2000 exemplars", **MEAN_LED),
    "imagenet100": TableForm("ImageNet-100 with ViT-Base and 2000 exemplars", **MEAN_LED),
    "imagenet1000": TableForm("ImageNet-1000 with ViT-Base and 20000 exemplars", **MEAN_LED),
    "plug-and-play": TableForm(
        "L_FC and L_RD inside other methods on CIFAR-100 and ImageNet-100", over_steps=True
    ),
    "ablation": TableForm("Parts of HFC on CIFAR-100 and ImageNet-100"),
    "per-class-20": TableForm("CIFAR-100 with 20 exemplars per class", **MEAN_LED),
    "fh": TableForm(
        "Forgetting heterogeneity beside average accuracy on CIFAR-100 in 5 steps",
        ("fh", "average"),
    ),
    "steps-imagenet100": TableForm("Accuracy after each of 10 steps on ImageNet-100", **STEPS),
    "steps-imagenet1000": TableForm("Accuracy after each of 10 steps on ImageNet-1000", **STEPS),
    "steps-plug-and-play": TableForm(
        "L_FC and L_RD inside other methods on CIFAR-100 after each of 10 steps", **STEPS
    ),
    "avalanche": TableForm(
        "Avalanche's own strategies on the paper's protocols", ("average", "last")
    ),
    "hfc-forms": TableForm("HFC as default, as printed and as released", ("average", "last")),
    "methods": TableForm(
        "Every method on split digits, as it is and with both losses",
        ("average", "last", "forgetting", "fh", "seconds"),
        leads={"average": "Δ average", "last": "Δ last"},
        leader=both_losses,
        grid=comparison_grid,
        files=("{}/summary.csv", "{}/table.md", "{}/table.tex"),
        rows_in="{}",
        titled=False,
        unable=CANNOT_RUN,
    ),
    "demo": TableForm("Four methods on split digits", ("average", "last", "fh", "seconds")),
    "practical": TableForm("What a practitioner would try first", ("average", "last")),
    "comparison": TableForm("Methods compared", **MEASURED),
    "protocols": TableForm("Other protocols", **MEASURED),
    "memory": TableForm("Number of exemplars", **MEASURED),
    "initialisation": TableForm(
        "Initial weights",
        **MEASURED
        | {
            "leader": pretrained,
            "grid": partial(
                measures_grid,
                leader="the same method from `small-mae`",
                names={
                    "vit-small": "`small-mae`",
                    "vit-small, random weights": "random weights",
                },
            ),
        },
    ),
    "order": TableForm("Class orders, another one for each seed", **MEASURED),
}
FORMS_OF_SMALL = {  # of tables that the paper has, too
    "cifar100": TableForm("Methods under four protocols", **MEASURED),
    "ablation": TableForm(
        "Parts of HFC",
        **MEASURED
        | {
            "leader": all_parts,
            "grid": partial(measures_grid, leader="`baseline+tsa+hfc`, which has all parts,"),
        },
    ),
    "plug-and-play": TableForm(
        "L_FC and L_RD inside other methods",
        **MEASURED
        | {
            "leader": both_losses,
            "grid": partial(measures_grid, leader="the same method with both losses"),
        },
    ),
    "fh": TableForm("Forgetting heterogeneity beside accuracy", **MEASURED),
    "avalanche": TableForm("Avalanche's own strategies", **MEASURED),
    "hfc-forms": TableForm("HFC as default, as printed and as released", **MEASURED),
    "practical": TableForm("What a practitioner would try first", **MEASURED),
}
METHOD_COLUMNS = (
    "method",
    "losses",
    "seed",
    "step",
    "classes",
    "images",
    "accuracy",
    "accuracy_nme",
    "average",
    "forgetting",
    "fh",
    "seconds",
)
ONE_STEP = {"average": "last", "steps": "last", "average_nme": "last_nme"}
DEMO_BACKBONES = {"vit-base": "tiny-vit", "vit-tiny": "tiny-convit", "resnet-18": "resnet-32"}
PROTOCOL = ("dataset", "base_fraction", "num_steps", "mem_size", "per_class")
BESIDE = Path(__file__).parents[2] / "experiments" / "paper.csv"
Row = Json


def form_of(table: str, scale: str) -> TableForm:
    """What a table shows at a scale."""
    forms = FORMS_OF_SMALL if scale in ("small", "medium") else {}
    return forms.get(table, FORMS[table])


def table_of(
    table: str,
    scale: str,
    cells: Sequence[TableCell],
    rows: pd.DataFrame,
    paper: pd.DataFrame | None = None,
    recipes: Mapping[str, Recipe] | None = None,
) -> pd.DataFrame:
    """The numbers of a table over seeds, beside those of the paper.

    The mean over T and the lead over another row are those of the seeds that have all that they
    are made of, seed by seed. `parameters_millions` is the paper's alone.

    Args:
        table: its name, a key of `FORMS`.
        scale: one of `SCALES`. At demo each recipe stands once, as what it is: on digits, and
            without the paper's numbers.
        cells: the cells to fill.
        rows: `steps_of` the runs that fill them.
        paper: the paper's numbers; None: ours alone.
        recipes: the recipes that were run, by name; None: those that the names stand for.

    Returns:
        What `compare` gives, with `scale` and `recipe`.

    Raises:
        ValueError: no run fills a cell.
    """
    form = form_of(table, scale)
    if scale == "demo":
        cells, paper = own_cells(cells, recipes), None
    ours = [*measured(table, form.columns, cells, rows)]
    if not ours:
        raise ValueError(f"No finished run of table {table} at scale {scale}: nothing to show.")
    if scale != "demo" and form.over_steps:  # demo has one T of several
        ours += [*means(cells, ours)]
    ours += [*improvements(form, ours)]
    beside = unable(table, form, cells)
    if paper is not None and not len(beside):
        beside = printed_of(table, cells, paper)
    both = compare(pd.DataFrame(ours), beside)
    names = {_key(cell._asdict()): name for cell, name in cells}
    return both.assign(scale=scale, recipe=[names.get(_key(row), "") for _, row in both.iterrows()])


def own_cells(
    cells: Iterable[TableCell], recipes: Mapping[str, Recipe] | None = None
) -> list[TableCell]:
    """The recipes behind some cells, each once, with their own data set, backbone, steps and memory
    in place of those of the paper's cell. `recipes` are those that were run, by name; None: those
    that the names stand for.
    """
    by_recipe = {name: cell for cell, name in reversed([*cells])}
    found = []
    for name, cell in reversed(by_recipe.items()):
        if recipes is not None and name not in recipes:
            continue  # not finished
        chosen = recipe(name) if recipes is None else recipes[name]
        data, memory = chosen.data, chosen.memory
        own = cell._replace(
            backbone=DEMO_BACKBONES.get(cell.backbone, cell.backbone),
            dataset=data.dataset,
            base_fraction=data.base_fraction,
            num_steps=data.num_steps,
            mem_size=memory.mem_size,
            per_class=memory.per_class,
        )
        found.append(TableCell(own, name))
    return found


def steps_of(runs: Iterable[RunData]) -> pd.DataFrame:
    """The rows of steps.csv of all runs, with `recipe` and `seed`."""
    parts = [run.steps.assign(recipe=run.recipe["name"], seed=run.seed) for run in runs]
    return (
        pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["recipe", "seed"])
    )


def record(cells: Iterable[TableCell], runs: Sequence[RunData]) -> dict[str, str]:
    """The runs behind a table, as files: steps.csv with their rows, and with the recipe where a
    method has several; machine.json with the versions and machines that they were trained with,
    each once.
    """
    cell_of = {name: cell for cell, name in cells}
    rows = steps_of(runs)
    of_run = [cell_of[name] for name in rows["recipe"]]
    rows = rows.assign(
        method=[cell.row for cell in of_run], losses=[cell.losses for cell in of_run]
    )
    rows.loc[rows["method"].isin(UPPER_BOUNDS), "average"] = (
        math.nan
    )  # one step: no average over steps
    conditions: list[Json] = []
    for run in runs:
        condition = {"versions": run.versions, "machine": run.machine}
        if condition not in conditions:
            conditions.append(condition)
    several = rows.groupby(["method", "losses"])["recipe"].nunique().max() > 1
    columns = [*(["recipe"] if several else []), *METHOD_COLUMNS]
    return {
        "steps.csv": rows[columns].to_csv(index=False),
        "machine.json": as_json({"trained with": conditions}),
    }


def measured(
    table: str, all_columns: tuple[str, ...], cells: Iterable[TableCell], rows: pd.DataFrame
) -> Iterator[Row]:
    """A row per cell, column and seed. Joint training has one step, whose accuracy the paper prints
    under averages.
    """
    by_recipe: dict[str, list[tuple[int, pd.DataFrame]]] = {}
    for (name, seed), steps in rows.groupby(["recipe", "seed"], sort=False):
        by_recipe.setdefault(name, []).append((seed, steps))
    for cell, name in cells:
        columns = all_columns
        if cell.row in UPPER_BOUNDS:
            columns = tuple(dict.fromkeys(ONE_STEP.get(column, column) for column in all_columns))
        for seed, steps in by_recipe.get(name, []):
            for column, value in values_of(steps, columns).items():
                if not math.isnan(value):
                    yield {
                        "table": table,
                        **cell._asdict(),
                        "column": column,
                        "seed": seed,
                        "value": value,
                    }


def values_of(steps: pd.DataFrame, columns: Iterable[str]) -> dict[str, float]:
    """The numbers of a run that a table has, in the paper's units."""
    numbers = measures(steps)
    values: dict[str, float] = {}
    for column in columns:
        if column == "steps":
            accuracies = zip(steps["step"], steps["accuracy"], strict=True)
            values |= {f"step {step + 1}": 100 * float(accuracy) for step, accuracy in accuracies}
        elif column == "average_nme":
            values[column] = 100 * steps.get("accuracy_nme", pd.Series(dtype=float)).mean()
        else:
            values[column] = UNITS[column] * numbers[column]
    return values


def means(cells: Sequence[TableCell], ours: Sequence[Row]) -> Iterator[Row]:
    """Of a line over all T of the table with the same share of base classes."""
    needed: dict[PaperCell, set[int]] = {}
    for cell, _ in cells:
        needed.setdefault(cell._replace(num_steps=0), set()).add(cell.num_steps)
    lines: dict[tuple, dict[int, Row]] = {}
    for row in ours:
        line = PaperCell(*(row[key] for key in KEYS[:-1]))._replace(num_steps=0)
        lines.setdefault((line, row["seed"]), {})[row["num_steps"]] = row
    for (line, _), rows in lines.items():
        if set(rows) == needed[line]:
            value = sum(row["value"] for row in rows.values()) / len(rows)
            yield {**next(iter(rows.values())), "num_steps": None, "column": "mean", "value": value}


def improvements(form: TableForm, ours: Sequence[Row]) -> Iterator[Row]:
    """By how much its leader leads a row, on the same seed."""
    for column, name in form.leads.items():
        held = {_line(row): row for row in ours if row["column"] == column}
        for row in held.values():
            leader = held.get(_line({**row, **form.leader(row)}))
            if leader is not None and leader is not row and row["row"] not in UPPER_BOUNDS:
                yield {**row, "column": name, "value": leader["value"] - row["value"]}


def _line(row: Record) -> tuple:
    return (*(row[key] for key in KEYS[:-1]), row["seed"])


def unable(table: str, form: TableForm, cells: Sequence[TableCell]) -> pd.DataFrame:
    """Rows without a number for the methods that cannot run; their mark says why."""
    cell = cells[0].cell._asdict() | {"losses": "host", "column": "average", "value": math.nan}
    rows = [
        {"table": table, **cell, "row": name, "mark": method_class(name).cannot_run}
        for name in form.unable
    ]
    return pd.DataFrame(rows, columns=["table", *KEYS, "value", "mark"])


def printed_of(table: str, cells: Iterable[TableCell], paper: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows for these cells, with what their lines have for no single T."""
    printed = paper[paper["table"] == table]
    wanted = {_key(cell._asdict()) for cell, _ in cells}
    lines = {key[:4] for key in wanted}
    keys = [_key(row) for _, row in printed.iterrows()]
    kept = [key in wanted or (pd.isna(key[5]) and key[:4] in lines) for key in keys]
    return printed[pd.Series(kept, index=printed.index, dtype=bool)]


def _key(row: Row | pd.Series) -> tuple:
    """Row, losses, backbone, data set, then numbers; an absent one is None."""
    return tuple(None if pd.isna(row[key]) else row[key] for key in KEYS[:-1])


def read_paper(path: Path) -> pd.DataFrame:
    """The paper's numbers. A file with other columns is refused."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file. The paper's numbers are in experiments/paper.csv of the "
            "repository."
        )
    rows = pd.read_csv(path)
    missing = [column for column in ("table", *KEYS, "value", "mark") if column not in rows]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}: not the paper's numbers. They are "
            "in experiments/paper.csv."
        )
    return rows


def paper_of(path: Path | None = None) -> pd.DataFrame | None:
    """The numbers of this file; without one, of experiments/paper.csv beside the package, which
    only its repository has.
    """
    if path is None and not BESIDE.is_file():
        return None
    return read_paper(path or BESIDE)


def title_of(
    table: str, scale: str, overrides: Mapping[str, object], paper: pd.DataFrame | None
) -> str:
    """What the table is, and what a reader must know before comparing."""
    parts = [form_of(table, scale).title]
    if scale == "demo" and table in TABLES:
        parts = [f"Scale demo ({SCALES[scale]}): the rows of the paper's table {parts[0]!r}"]
    elif scale in ("small", "medium"):
        parts.append(f"Scale {scale}: {SCALES[scale]}")
    elif scale != "paper" and "paper" in ALL_TABLES[table]:
        parts.append(
            f"Scale {scale} ({SCALES[scale]}): each recipe stands for a cell of the paper, whose "
            "numbers are of other data and "
            "networks; the gap is no measure of a reproduction"
        )
    if overrides:
        parts.append(
            "Changed: " + ", ".join(f"{leaf} {value}" for leaf, value in overrides.items())
        )
    if paper is None and table in TABLES and scale == "paper":
        parts.append("The paper's numbers are not available")
    return ". ".join(parts)


def write_table(
    table: str,
    numbers: pd.DataFrame,
    folder: Path,
    name: str,
    title: str = "",
    *,
    cells: Iterable[TableCell] = (),
    runs: Sequence[RunData] = (),
) -> list[Path]:
    """Write a table as CSV, markdown and LaTeX; all can be deleted and made again.

    Args:
        table: its name, a key of `FORMS`.
        numbers: what `table_of` gives.
        folder: where the files go.
        name: how they are called.
        title: what stands above.
        cells: its cells; for a table that keeps the rows of its runs.
        runs: the runs behind it; likewise.

    Returns:
        The paths: CSV, markdown and LaTeX first.
    """
    form = form_of(table, numbers["scale"].iloc[0])
    grid = form.grid(numbers)
    texts = (
        numbers.to_csv(index=False),
        markdown(grid, title if form.titled else ""),
        latex(grid, title),
    )
    contents = dict(zip(form.files, texts, strict=True))
    if form.rows_in:
        contents |= {f"{form.rows_in}/{file}": text for file, text in record(cells, runs).items()}
    paths = [folder / file.format(name) for file in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    return paths
