"""The tables of `hfc table` and `hfc demo`: the numbers of runs over seeds, beside those of the
paper, as CSV, markdown and LaTeX.

A number is identified by `KEYS`, the columns of the paper's transcription. Values have the paper's
units: percent, FH × 1000.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from avalanche_hfc._types import Json, Options, Record
from avalanche_hfc.lab import (
    DEMO_METHODS,
    FURTHER_TABLES,
    METHODS,
    SCALES,
    TABLES,
    PaperCell,
    Recipe,
    TableCell,
    recipe,
)
from avalanche_hfc.lab.options import CANNOT_RUN, UPPER_BOUNDS, method_class
from avalanche_hfc.lab.read import RunData
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.run_folder import as_json
from avalanche_hfc.lab.tables import ALL_TABLES
from avalanche_hfc.report.numbers import (
    NO_DIFFERENCE,
    ONE_SEED,
    TEST,
    UNITS,
    Difference,
    measures,
    per_run,
)

KEYS = (*PaperCell._fields, "column")
LINE_KEYS = ("row", "losses", "backbone")
NUMBERS = ("base_fraction", "num_steps", "mem_size", "per_class")
SETTINGS = {
    "losses": "with both losses",
    "base_fraction": "B = {:.0%}",
    "num_steps": "T = {:.0f}",
    "mem_size": "M = {:.0f}",
    "per_class": "{:.0f} per class",
}
NOTHING = "–"
MEASURES = (  # columns of `measures_grid`, in order
    "average", "last", "Δ average", "Δ last", "average_nme", "last_nme", "forgetting", "fh",
    "seconds",
)  # fmt: skip
SYMBOLS = {"±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "Δ": r"$\Delta$"}
BESIDE = Path(__file__).parents[2] / "experiments" / "paper.csv"
Row = Json


# A number, and a table of them as text


def number(value: float, *, signed: bool = False, decimals: int = 1) -> str:
    """A number as text: a real minus, a dash if there is none."""
    if pd.isna(value):
        return NOTHING
    return f"{value:{'+' if signed else ''}.{decimals}f}".replace("-", "−")


def spread(mean: float, std: float, *, decimals: int = 1) -> str:
    """mean ± std; the mean alone if one seed has no spread."""
    text = number(mean, decimals=decimals)
    return text if pd.isna(std) else f"{text} ± {number(std, decimals=decimals)}"


class Grid(NamedTuple):
    """A table as it is read: headings and lines of texts, the first `num_words` columns words, the
    others numbers. `about` stands below, then the `notes`, as a list where they are marks.
    """

    headings: list[str]
    num_words: int
    lines: list[list[str]]
    about: str
    notes: list[str]
    marks: bool = True


def markdown(grid: Grid, title: str = "") -> str:
    """A grid as markdown."""
    alignment = ["---"] * grid.num_words + ["---:"] * (len(grid.headings) - grid.num_words)
    text = "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
        for line in (grid.headings, alignment, *grid.lines)
    )
    notes = ["\n".join(f"- {note}" for note in grid.notes)] if grid.marks else grid.notes
    parts = [f"**{title}**" if title else "", text, grid.about, *notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(grid: Grid, title: str = "") -> str:
    """A grid as LaTeX; it needs `\\usepackage{booktabs}`."""
    table = pd.DataFrame([list(map(_tex, line)) for line in grid.lines])
    text = table.to_latex(
        index=False,
        header=list(map(_tex, grid.headings)),
        column_format="l" * grid.num_words + "r" * (len(grid.headings) - grid.num_words),
        caption=_tex(" ".join(part for part in (title and f"{title}.", grid.about) if part)),
    )
    notes = _tex(" ".join(note if note.endswith(".") else f"{note}." for note in grid.notes))
    below = rf"\par\smallskip\footnotesize {notes}" + "\n" if notes else ""
    text = text.replace(r"\begin{table}", "\\begin{table}\n\\centering")
    return text.replace(r"\end{table}", below + r"\end{table}")


def _tex(text: str) -> str:
    escaped = "".join(f"\\{sign}" if sign in "&%$#_{}" else sign for sign in text)
    for sign, command in SYMBOLS.items():
        escaped = escaped.replace(sign, command)
    return escaped


# Ours beside the paper's


def compare(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Compare our numbers with the paper's.

    A number is identified by the columns row, losses, backbone, dataset, base_fraction, num_steps,
    mem_size, per_class and column. If the paper prints a number twice, the first one is used and
    its mark says so.

    Args:
        ours: These columns and `value`, with one row per seed.
        paper: These columns, `value` and `mark`.

    Returns:
        These columns, `ours` (mean over seeds), `std`, `num_seeds`, `paper`, `gap` (ours minus
        paper) and `mark`: all rows of the paper in their order, then those that only we have.
    """
    keys = list(KEYS)
    seeds = _typed(ours).groupby(keys, dropna=False, sort=False)["value"]
    measured = seeds.agg(ours="mean", std="std", num_seeds="count").reset_index()
    printed = [
        {**dict(zip(keys, key, strict=True)), "paper": rows["value"].iloc[0], "mark": _mark(rows)}
        for key, rows in _typed(paper).groupby(keys, dropna=False, sort=False)
    ]
    columns = [*keys, "ours", "std", "num_seeds", "paper", "mark"]
    both = pd.concat([pd.DataFrame(printed, columns=columns), measured])
    both = both.groupby(keys, dropna=False, sort=False).first().reset_index()
    both = both.astype({"ours": float, "std": float, "paper": float})
    both["num_seeds"] = both["num_seeds"].fillna(0).astype(int)
    both["mark"] = both["mark"].fillna("").astype(str)
    both["gap"] = both["ours"] - both["paper"]
    return both[[*keys, "ours", "std", "num_seeds", "paper", "gap", "mark"]]


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Keys of one type each, so that 10, 10.0 and "10" are the same number of steps, and an absent
    one equals an absent one.
    """
    numbers = {name: pd.to_numeric(rows[name]).astype(float) for name in (*NUMBERS, "value")}
    words = [name for name in KEYS if name not in NUMBERS]
    return rows.assign(**numbers, **rows[words].astype(object).fillna("").astype(str))


def _mark(rows: pd.DataFrame) -> str:
    """The mark of a number that the paper prints once or more often."""
    first, *others = rows["value"]
    again = [f"{value:g}" for value in dict.fromkeys(others) if value != first]
    mark = rows["mark"].fillna("").iloc[0]
    note = f"printed again as {', '.join(again)}" if again else ""
    return "; ".join(filter(None, (mark, note)))


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
            f"{path} has no column {', '.join(missing)}. The paper's numbers are in "
            "experiments/paper.csv of the repository."
        )
    return rows


def paper_of(path: Path | None = None) -> pd.DataFrame | None:
    """The numbers of this file; without one, of experiments/paper.csv beside the package, which
    only its repository has.
    """
    return read_paper(path or BESIDE) if path or BESIDE.is_file() else None


# How a table is laid out


def paper_grid(table: pd.DataFrame) -> Grid:
    """Three lines a method (ours, paper, gap), a column per setting, marks as letters that are
    explained below. A table without a number of the paper has one line a method.
    """
    varying = [*_varying(table), "row", "column"]
    across, down = (
        [key for key in KEYS if key in varying and (key in LINE_KEYS) == is_line]
        for is_line in (False, True)
    )
    columns = table[across].drop_duplicates()
    marks = list(dict.fromkeys(filter(None, table["mark"])))
    with_paper = table["paper"].notna().any()
    lines = []
    for names, rows in table.groupby(down, sort=False, dropna=False):
        cells = [row for _, row in columns.merge(rows, on=across, how="left").iterrows()]
        three = _three_lines(_setting(down, names), cells, marks)
        lines += three if with_paper else three[:1]
    same = _setting(KEYS, [None if key in varying else table[key].iloc[0] for key in KEYS])
    about = f"{same}. " if same else ""
    about += "Ours: mean ± standard deviation over seeds."
    about += " Gap: ours − paper." if with_paper else ""
    headings = [_setting(across, row) for row in columns.itertuples(index=False)]
    notes = [f"{_letter(index)}: {mark}" for index, mark in enumerate(marks)]
    return Grid(["", "", *headings], 2, lines, about, notes)


def _three_lines(name: str, cells: Sequence[pd.Series], marks: Sequence[str]) -> list[list[str]]:
    ours, paper, gap = [], [], []
    for cell in cells:
        decimals = 2 if cell["column"] == "parameters_millions" else 1
        ours.append(spread(cell["ours"], cell["std"], decimals=decimals))
        letter = f" ({_letter(marks.index(cell['mark']))})" if cell["mark"] in marks else ""
        paper.append(number(cell["paper"], decimals=decimals) + letter)
        gap.append(number(cell["gap"], signed=True, decimals=decimals))
    seeds = _seeds(pd.Series([cell["num_seeds"] for cell in cells]), " – ")
    return [[name, f"ours, {seeds}", *ours], ["", "paper", *paper], ["", "gap", *gap]]


def _letter(index: int) -> str:
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def comparison_grid(table: pd.DataFrame) -> Grid:
    """A line per method, in the order of `METHODS`, then those of the user's: as it is, with both
    losses, and what these add, mean ± standard error. Marks say why a method cannot run.
    """
    columns = [(losses, name) for losses in ("host", "hfc") for name in ("average", "last")]
    columns += [("host", "Δ average"), ("host", "Δ last")]
    headings = [name if losses == "host" else f"{name}, both losses" for losses, name in columns]
    numbers = {(row["row"], row["losses"], row["column"]): row for _, row in table.iterrows()}
    unable = {row: mark for row, mark in zip(table["row"], table["mark"], strict=True) if mark}
    lines = []
    known = [row for row in METHODS if row in set(table["row"])]
    for row in dict.fromkeys([*known, *table["row"]]):
        texts = [_with_error(numbers.get((row, *column))) for column in columns]
        lines.append([f"`{row}`", *(["cannot run", *texts[1:]] if row in unable else texts)])
    about = (
        f"Percent, mean ± standard error over {_seeds(table['num_seeds'])}, one thread. Δ: what "
        f"the losses add, seed by seed{_tested(table)} On another kind of CPU single seeds differ "
        "by several points."
    )
    notes = [f"`{row}` cannot run. {reason}" for row, reason in unable.items()]
    return Grid(["method", *headings], 1, lines, about, notes, marks=False)


def measures_grid(
    table: pd.DataFrame, leader: str = "`hfc`", names: Mapping[str, str] | None = None
) -> Grid:
    """A line per method and setting, a column per measure, mean ± standard error over seeds.
    `leader` names what the columns with Δ compare with; `names` replace those of settings.
    """
    varying, protocol = _varying(table), PaperCell._fields[2:]
    settings = [key for key in protocol if key in varying]
    columns = sorted(dict.fromkeys(table["column"]), key=MEASURES.index)
    lines = []
    for values, rows in table.groupby(list(PaperCell._fields), sort=False, dropna=False):
        cell = PaperCell(*values)
        numbers = {row["column"]: row for _, row in rows.iterrows()}
        setting = _setting(settings, [getattr(cell, key) for key in settings])
        words = [f"`{cell.row_name}`", *([(names or {}).get(setting, setting)] if settings else [])]
        lines.append([*words, *(_with_error(numbers.get(column)) for column in columns)])
    alike = [key for key in ("losses", *protocol) if key not in varying]
    about = (
        f"{_setting(alike, table[alike].iloc[0])}. Mean ± standard error over "
        f"{_seeds(table['num_seeds'])}: percent, FH × 1000, seconds of training. average and "
        "last are those of the method's own classifier, _nme those of the nearest class mean."
    )
    if table["column"].str.startswith("Δ").any():
        about += f" Δ: by how much {leader} leads, seed by seed{_tested(table)}"
    words = ["method", *(["setting"] if settings else [])]
    return Grid([*words, *columns], len(words), lines, about, [])


def _with_error(row: pd.Series | None) -> str:
    if row is None or pd.isna(row["ours"]):
        return NOTHING
    error = row["std"] / math.sqrt(row["num_seeds"])
    with_error = "" if math.isnan(error) else f" ± {error:.1f}"
    if not row["column"].startswith("Δ"):
        return f"{row['ours']:.1f}{with_error}"
    mark = Difference(row["ours"], error, int(row["num_seeds"])).mark
    return f"{row['ours']:+.1f}{with_error}{mark}"


def _tested(table: pd.DataFrame) -> str:
    """How the differences of a table were tested, behind a sentence on them."""
    seeds = table.loc[table["column"].str.startswith("Δ"), "num_seeds"]
    if len(seeds) and (seeds <= 1).all():
        return f". {ONE_SEED}"
    one = f" {ONE_SEED}" if (seeds == 1).any() else ""
    return f", ± its standard error; {NO_DIFFERENCE}: no difference found by {TEST}.{one}"


def _seeds(counts: pd.Series, joint: str = " or ") -> str:
    """How many seeds some numbers have, in words; a joint with a dash joins the fewest and the
    most.
    """
    several = sorted({int(count) for count in counts if count > 0}) or [0]
    shown = several if joint == " or " else dict.fromkeys([several[0], several[-1]])
    text = joint.join(map(str, shown))
    return f"{text} seed{'' if text == '1' else 's'}"


def _varying(table: pd.DataFrame) -> list[str]:
    return [key for key in KEYS if table[key].nunique(dropna=False) > 1]


def _setting(keys: Iterable[str], values: Iterable[object]) -> str:
    """Values of some keys in words, those that say nothing left out."""
    return ", ".join(
        SETTINGS.get(key, "{}").format(value)
        for key, value in zip(keys, values, strict=True)
        if not (pd.isna(value) or value in ("", "host"))
    )


# What each table shows


def paper_leader(row: Record) -> Record:
    """What the paper compares with: HFC, on other backbones both losses inside."""
    return HFC if row["backbone"] in ("vit-base", DEMO_BACKBONES["vit-base"]) else BOTH_LOSSES


class TableForm(NamedTuple):
    """What a table shows.

    `columns` are `measures` of a run, "average_nme", the mean over steps by the nearest mean, or
    "steps", its accuracy after each step. `over_steps`: also the mean over all T. `leads`: columns
    that are compared with what `leader` changes of a row, seed by seed, and how the difference is
    called. `folder`: the files stand in a folder of their own, with the rows of the runs and what
    they were trained with. `unable`: methods without a number, whose class says why.
    """

    title: str
    columns: tuple[str, ...] = ("average",)
    over_steps: bool = False
    leads: Mapping[str, str] = {}
    leader: Callable[[Record], Record] = paper_leader
    grid: Callable[[pd.DataFrame], Grid] = paper_grid
    folder: bool = False
    titled: bool = True
    unable: tuple[str, ...] = ()


DEMO_BACKBONES = {"vit-base": "tiny-vit", "vit-tiny": "tiny-convit", "resnet-18": "resnet-32"}
HFC, BOTH_LOSSES = {"row": "hfc", "losses": "host"}, {"losses": "hfc"}
LAST: Options = {"columns": ("average", "last")}
MEAN_LED: Options = {"over_steps": True, "leads": {"mean": "improvement"}}
STEPS: Options = {"columns": ("steps", "average"), "leads": {"average": "improvement"}}
LEADS = {"average": "Δ average", "last": "Δ last"}


def measured_form(
    title: str,
    leader: Record = HFC,
    words: str = "`hfc`",
    names: Mapping[str, str] | None = None,
) -> TableForm:
    """A table of the scales small and medium: every measure, with the difference from a leader."""
    return TableForm(
        title,
        tuple(name for name in MEASURES if name not in LEADS.values()),
        leads=LEADS,
        leader=lambda row: leader,
        grid=partial(measures_grid, leader=words, names=names),
        folder=True,
    )


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
    "avalanche": TableForm("Avalanche's own strategies on the paper's protocols", **LAST),
    "hfc-forms": TableForm("HFC as default, as printed and as released", **LAST),
    "methods": TableForm(
        "Every method on split digits, as it is and with both losses",
        ("average", "last", "forgetting", "fh", "seconds"),
        leads=LEADS,
        leader=lambda row: BOTH_LOSSES,
        grid=comparison_grid,
        folder=True,
        titled=False,
        unable=CANNOT_RUN,
    ),
    "demo": TableForm("Four methods on split digits", ("average", "last", "fh", "seconds")),
    "practical": TableForm("What a practitioner would try first", **LAST),
    "comparison": measured_form("Methods compared"),
    "protocols": measured_form("Other protocols"),
    "memory": measured_form("Number of exemplars"),
    "initialisation": measured_form(
        "Initial weights",
        {"backbone": "vit-small"},
        "the same method from `small-mae`",
        names={"vit-small": "`small-mae`", "vit-small, random weights": "random weights"},
    ),
    "order": measured_form("Class orders, another one for each seed"),
}
FORMS_OF_SMALL = {  # of tables that the paper has, too
    "cifar100": measured_form("Methods under four protocols"),
    "ablation": measured_form(
        "Parts of HFC",
        {"row": "baseline+tsa", "losses": "hfc"},
        "`baseline+tsa+hfc`, which has all parts,",
    ),
    "plug-and-play": measured_form(
        "L_FC and L_RD inside other methods", BOTH_LOSSES, "the same method with both losses"
    ),
    "fh": measured_form("Forgetting heterogeneity beside accuracy"),
    "avalanche": measured_form("Avalanche's own strategies"),
    "hfc-forms": measured_form("HFC as default, as printed and as released"),
    "practical": measured_form("What a practitioner would try first"),
}


def form_of(table: str, scale: str) -> TableForm:
    """What a table shows at a scale."""
    forms = FORMS_OF_SMALL if scale in ("small", "medium") else {}
    return forms.get(table, FORMS[table])


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
            "numbers are of other data and networks; the gap is no measure of a reproduction"
        )
    if overrides:
        changed = ", ".join(f"{leaf} {value}" for leaf, value in overrides.items())
        parts.append(f"Changed: {changed}")
    if paper is None and table in TABLES and scale == "paper":
        parts.append("The paper's numbers are not available")
    return ". ".join(parts)


# The numbers of a table


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
        table: Its name, a key of `FORMS`.
        scale: One of `SCALES`. At demo each recipe stands once, as what it is: on digits, and
            without the paper's numbers.
        cells: The cells to fill.
        rows: `steps_of` the runs that fill them.
        paper: The paper's numbers; None: ours alone.
        recipes: The recipes that were run, by name; None: those that the names stand for.

    Returns:
        What `compare` gives, with `table`, `scale` and `recipe`.

    Raises:
        ValueError: If no run fills a cell.
    """
    form = form_of(table, scale)
    if scale == "demo":
        cells, paper = own_cells(cells, recipes), None
    ours = measured(form.columns, cells, rows)
    if not ours:
        raise ValueError(f"No finished run of table {table} at scale {scale}: nothing to show.")
    if scale != "demo" and form.over_steps:  # demo has one T of several
        ours += means(cells, ours)
    ours += [*improvements(form, ours)]
    beside = pd.DataFrame(columns=[*KEYS, "value", "mark"])
    if form.unable:
        cell = cells[0].cell._asdict() | {"losses": "host", "column": "average", "value": math.nan}
        reasons = [(name, method_class(name).cannot_run) for name in form.unable]
        beside = pd.DataFrame([{**cell, "row": name, "mark": mark} for name, mark in reasons])
    elif paper is not None:
        beside = printed_of(table, cells, paper)
    both = compare(pd.DataFrame(ours), beside)
    both.insert(0, "table", table)
    names = {_key(cell._asdict()): name for cell, name in cells}
    return both.assign(scale=scale, recipe=[names.get(_key(row), "") for _, row in both.iterrows()])


def own_cells(
    cells: Iterable[TableCell], recipes: Mapping[str, Recipe] | None = None
) -> list[TableCell]:
    """The recipes behind some cells, each once, with the data set, backbone, steps and memory of
    the recipe in place of those of the paper's cell. `recipes` are those that were run, by name;
    None: those that the names stand for.
    """
    by_recipe = {name: cell for cell, name in reversed([*cells])}
    shown = []
    for name, cell in reversed(by_recipe.items()):
        if recipes is None or name in recipes:
            run = recipe(name) if recipes is None else recipes[name]
            backbone = DEMO_BACKBONES.get(cell.backbone, cell.backbone)
            protocol = {key: getattr(run.data, key) for key in ("dataset", *NUMBERS[:2])}
            memory = {key: getattr(run.memory, key) for key in NUMBERS[2:]}
            shown.append(TableCell(cell._replace(backbone=backbone, **protocol, **memory), name))
    return shown


def steps_of(runs: Iterable[RunData]) -> pd.DataFrame:
    """The rows of steps.csv of all runs, with `recipe` and `seed`."""
    rows = [run.steps.assign(recipe=run.recipe["name"], seed=run.seed) for run in runs]
    return pd.concat(rows or [pd.DataFrame(columns=["recipe", "seed"])], ignore_index=True)


def measured(columns: Sequence[str], cells: Iterable[TableCell], rows: pd.DataFrame) -> list[Row]:
    """A row per cell, column and seed. Joint training has one step, whose accuracy the paper prints
    under averages.
    """
    in_one_step = {"average": "last", "steps": "last", "average_nme": "last_nme"}
    runs: dict[str, list[tuple[int, pd.DataFrame]]] = {}
    for (name, seed), steps in rows.groupby(["recipe", "seed"], sort=False):
        runs.setdefault(name, []).append((seed, steps))
    ours = []
    for cell, name in cells:
        shown = columns
        if cell.row in UPPER_BOUNDS:
            shown = list(dict.fromkeys(in_one_step.get(column, column) for column in columns))
        for seed, steps in runs.get(name, []):
            ours += [
                {**cell._asdict(), "column": column, "seed": seed, "value": value}
                for column, value in values_of(steps, shown).items()
                if not math.isnan(value)
            ]
    return ours


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


def means(cells: Iterable[TableCell], ours: Iterable[Row]) -> list[Row]:
    """The mean of a line over all T of the table with the same share of base classes."""
    needed: dict[tuple, set[int]] = {}
    for cell, _ in cells:
        needed.setdefault(_line(cell._asdict()), set()).add(cell.num_steps)
    lines: dict[tuple, list[Row]] = {}
    for row in ours:
        lines.setdefault((_line(row), row["seed"]), []).append(row)
    return [
        {
            **rows[0],
            "num_steps": None,
            "column": "mean",
            "value": sum(row["value"] for row in rows) / len(rows),
        }
        for (line, _), rows in lines.items()
        if {row["num_steps"] for row in rows} == needed[line]
    ]


def _line(row: Row) -> tuple:
    return tuple(row[key] for key in PaperCell._fields if key != "num_steps")


def improvements(form: TableForm, ours: Sequence[Row]) -> Iterator[Row]:
    """By how much its leader leads a row, on the same seed."""
    for column, name in form.leads.items():
        values = {
            (_line(row), row["num_steps"], row["seed"]): row
            for row in ours
            if row["column"] == column
        }
        for (_, *rest), row in values.items():
            best = values.get((_line({**row, **form.leader(row)}), *rest), row)
            if best is not row and row["row"] not in UPPER_BOUNDS:
                yield {**row, "column": name, "value": best["value"] - row["value"]}


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
    return tuple(None if pd.isna(row[key]) else row[key] for key in PaperCell._fields)


# Its files


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
        table: Its name, a key of `FORMS`.
        numbers: What `table_of` gives.
        folder: Where the files go.
        name: How they are called.
        title: What stands above.
        cells: Its cells; for a table that keeps the rows of its runs.
        runs: The runs behind it; likewise.

    Returns:
        The paths: CSV, markdown and LaTeX first.
    """
    form = form_of(table, numbers["scale"].iloc[0])
    grid = form.grid(numbers)
    files = ("summary.csv", "table.md", "table.tex")
    texts = [numbers.to_csv(index=False), markdown(grid, title if form.titled else "")]
    contents = dict(zip(files, [*texts, latex(grid, title)], strict=True))
    if form.folder:
        contents |= record(cells, runs)
    paths = [
        folder / name / file if form.folder else folder / f"{name}{Path(file).suffix}"
        for file in contents
    ]
    for path, text in zip(paths, contents.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    return paths


def record(cells: Iterable[TableCell], runs: Sequence[RunData]) -> dict[str, str]:
    """The runs behind a table, as files: steps.csv with their rows, and with the recipe where a
    method has several; machine.json with the versions and machines that they were trained with,
    each once.
    """
    cell_of = {name: cell for cell, name in cells}
    rows = steps_of(runs)
    rows["method"] = [cell_of[name].row for name in rows["recipe"]]
    rows["losses"] = [cell_of[name].losses for name in rows["recipe"]]
    rows["average"] = rows["average"].mask(rows["method"].isin(UPPER_BOUNDS))  # one step has none
    several = rows.groupby(["method", "losses"])["recipe"].nunique().max() > 1
    columns = [*(["recipe"] if several else []), "method", "losses", *ROW_COLUMNS]
    conditions = [{"versions": run.versions, "machine": run.machine} for run in runs]
    each = [known for index, known in enumerate(conditions) if known not in conditions[:index]]
    return {
        "steps.csv": rows[columns].to_csv(index=False),
        "machine.json": as_json({"trained with": each}),
    }


ROW_COLUMNS = "seed step classes images accuracy accuracy_nme average forgetting fh seconds".split()


# The demonstration

DEMO_COLUMNS = ["method", *(column for column in ROW_COLUMNS if column != "accuracy_nme")]
DEMO_DEFINITIONS = (
    "average: mean over the steps of the accuracy on all classes seen so far\n"
    "last: accuracy on all classes after the last step\n"
    "FH: variance of 1 - p(true class) within a step's classes, mean over the steps, x 1000; "
    "lower is more even forgetting"
)


def demo_rows(runs: Iterable[RunData]) -> pd.DataFrame:
    """The rows of the demonstration's runs, with method and seed."""
    methods = {entry.recipe: entry.cell.row for entry in FURTHER_TABLES["demo"]["demo"]}
    rows = steps_of(runs)
    rows["method"] = pd.Categorical(rows["recipe"].map(methods), categories=list(DEMO_METHODS))
    return rows.sort_values("method", kind="stable")[DEMO_COLUMNS].astype({"method": str})


def demo_summary(rows: pd.DataFrame) -> pd.DataFrame:
    """The measures of every method and seed."""
    return per_run(rows, ("method", "seed")).drop(columns="last_nme").round({"seconds": 1})


def demo_table(summary: pd.DataFrame) -> str:
    """Mean over seeds, ± standard deviation where there are several; in percent, FH × 1000."""
    lines = [f"{'':<30}{'average %':>14}{'last %':>14}{'FH x1000':>14}{'seconds':>10}{'seeds':>7}"]
    for method, runs in summary.groupby("method", sort=False):
        columns = [runs[name] * UNITS[name] for name in ("average", "last", "fh")]
        cells = "".join(f"{spread(column.mean(), column.std()):>14}" for column in columns)
        seconds = f"{runs['seconds'].mean():>10.1f}{len(runs):>7}"
        lines.append(f"{DEMO_METHODS[method]:<30}{cells}{seconds}")
    return "\n".join(lines)
