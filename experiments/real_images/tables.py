"""The tables of the page: numbers over seeds from the committed rows, sorted, the best marked, the
paper's beside.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from avalanche_hfc.lab import TableCell
from avalanche_hfc.lab.options import UPPER_BOUNDS
from avalanche_hfc.lab.tables import ALL_TABLES
from avalanche_hfc.report.tables import (
    NOTHING,
    Grid,
    comparison_grid,
    form_of,
    markdown,
    measures_grid,
    number,
    table_of,
)

PROTOCOL = ["backbone", "dataset", "base_fraction", "num_steps", "mem_size", "per_class"]
LINE = ["row", "losses", *PROTOCOL]
HIGHEST = ("average", "last", "average_nme", "last_nme")  # the best of these is marked
NO_LOGITS = ("ncm", "ranpac", "avalanche-icarl-fixed")  # distances, scores of a regression
PAPERS = "The paper's numbers are of another scale: 100 classes, 2000 exemplars"
VIT_BASE, OWN_BACKBONES = f"{PAPERS}, ViT-Base.", f"{PAPERS}, ResNet-32 or DyTox's encoder."


class Shown(NamedTuple):
    """A table of the page.

    Attributes:
        table: Its name.
        num_seeds: Seeds of each row, as docs/protocol.md says.
        printed: The paper's table whose numbers are beside; empty for none.
        ranked: Whether rows are sorted by the average; else they stay in the table's order.
        scale: Its scale.
    """

    table: str
    num_seeds: int
    printed: str = ""
    ranked: bool = True
    scale: str = "small"

    @property
    def cells(self) -> Sequence[TableCell]:
        return ALL_TABLES[self.table][self.scale]

    @property
    def title(self) -> str:
        scale = "" if self.scale == "small" else f", scale {self.scale}"
        return form_of(self.table, self.scale).title + scale

    @property
    def command(self) -> str:
        return f"hfc table {self.table} --scale {self.scale} --seeds {self.num_seeds}"


COMPARISON = Shown("comparison", 5, "cifar100")
ABLATION = Shown("ablation", 5, "ablation", ranked=False)
PLUG_AND_PLAY = Shown("plug-and-play", 5, "plug-and-play", ranked=False)
PROTOCOLS = Shown("protocols", 3, "cifar100")
ORDER = Shown("order", 5)
MEDIUM = Shown("comparison", 1, "cifar100", scale="medium")
SHOWN = (
    COMPARISON,
    ABLATION,
    PLUG_AND_PLAY,
    PROTOCOLS,
    Shown("memory", 3),
    Shown("initialisation", 3, ranked=False),
    ORDER,
    MEDIUM,
)


def rows_shown(shown: Shown, rows: pd.DataFrame) -> pd.DataFrame:
    """Those of the rows that a table is made of: its recipes, its seeds."""
    own = rows["recipe"].isin([entry.recipe for entry in shown.cells])
    return rows[own & (rows["seed"] < shown.num_seeds)]


def is_begun(shown: Shown, runs: pd.DataFrame) -> bool:
    """Whether there is a run that no earlier table has."""
    earlier = {e.recipe for other in SHOWN[: SHOWN.index(shown)] for e in other.cells}
    return not set(rows_shown(shown, runs)["recipe"]) <= earlier


def missing(shown: Shown, runs: pd.DataFrame) -> dict[str, list[int]]:
    """Recipe to the seeds that have no rows yet."""
    there = set(zip(runs["recipe"], runs["seed"], strict=True))
    absent = {
        entry.recipe: [s for s in range(shown.num_seeds) if (entry.recipe, s) not in there]
        for entry in shown.cells
    }
    return {name: seeds for name, seeds in absent.items() if seeds}


def section(shown: Shown, steps: pd.DataFrame, paper: pd.DataFrame) -> str:
    """A table as markdown, with what is missing in it; that of methods with and without the losses
    is followed by one of all measures.
    """
    own = rows_shown(shown, steps)
    numbers = numbers_of(shown, own)
    further = ""
    if shown is PLUG_AND_PLAY:
        grid = with_paper(comparison_grid(numbers), shown, paper, losses_add)
        further = f"\n{all_measures(numbers)}"
    else:
        numbers = in_order(numbers) if shown.ranked else numbers
        grid = with_best(form_of(shown.table, shown.scale).grid(numbers), numbers)
        grid = with_paper(grid, shown, paper, printed(numbers))
    absent = missing(shown, own)
    if absent:
        listed = ", ".join(f"`{name}` (seed {_listed(seeds)})" for name, seeds in absent.items())
        grid = grid._replace(notes=[*grid.notes, f"Not trained yet: {listed}."], marks=False)
    return markdown(grid) + further


def all_measures(numbers: pd.DataFrame) -> str:
    """Markdown: every measure, a method as it is and below it with both losses."""
    own = numbers[~numbers["column"].str.startswith("Δ")]
    places = own.groupby("row", sort=False).ngroup()
    order = own.assign(place=places, added=own["losses"] != "host")
    own = own.loc[order.sort_values(["place", "added"], kind="stable").index]
    return f"All measures, without and with both losses:\n\n{markdown(measures_grid(own))}"


def numbers_of(shown: Shown, steps: pd.DataFrame) -> pd.DataFrame:
    """The numbers of a table; no FH of rows whose outputs are no logits, nor of joint training,
    whose single step has all classes.
    """
    numbers = table_of(shown.table, shown.scale, shown.cells, steps)
    no_fh = (numbers["column"] == "fh") & numbers["row"].isin((*NO_LOGITS, *UPPER_BOUNDS))
    return numbers.assign(ours=numbers["ours"].mask(no_fh))


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def in_order(numbers: pd.DataFrame) -> pd.DataFrame:
    """The same protocol together, the highest average first; upper bounds last, without one."""
    averages = numbers["ours"].where(numbers["column"] == "average")
    of_line = numbers.assign(average=-averages).groupby(LINE, dropna=False)["average"]
    protocols = numbers.groupby(PROTOCOL, sort=False, dropna=False).ngroup()
    keys = pd.DataFrame({"protocol": protocols, "average": of_line.transform("min")})
    order = keys.sort_values(["protocol", "average"], kind="stable", na_position="last").index
    return numbers.loc[order].reset_index(drop=True)


def with_best(grid: Grid, numbers: pd.DataFrame) -> Grid:
    """The highest accuracies of each protocol in bold; upper bounds do not count."""
    rivals = numbers[~numbers["row"].isin(UPPER_BOUNDS) & numbers["column"].isin(HIGHEST)]
    protocol = [*PROTOCOL, "column"]
    top = rivals.groupby(protocol, dropna=False)["ours"].transform("max")
    places = numbers.groupby(LINE, sort=False, dropna=False).ngroup()  # the lines of the grid
    lines = [list(line) for line in grid.lines]
    for index, row in rivals[rivals["ours"] == top].iterrows():
        line, column = lines[places[index]], grid.headings.index(row["column"])
        line[column] = f"**{line[column]}**"
    several = numbers.drop_duplicates(PROTOCOL).shape[0] > 1
    of = "under each setting" if several else "of its column"
    return grid._replace(lines=lines, about=f"{grid.about} Bold: the highest {of}.")


Printed = Callable[[int, list[str], pd.DataFrame], list[str]]


def with_paper(grid: Grid, shown: Shown, paper: pd.DataFrame, cells_of: Printed) -> Grid:
    """A grid with columns of the paper's numbers, where the paper has any."""
    if not shown.printed:
        return grid
    paper = paper[(paper["dataset"] == "cifar100") & (paper["mem_size"] == 2000)]
    own = paper[paper["table"].isin([shown.printed, "fh"])]
    cells = [cells_of(index, line, own) for index, line in enumerate(grid.lines)]
    headings = ["average in the paper", "FH in the paper"]
    if shown is PLUG_AND_PLAY:
        headings = ["Δ average in the paper"]
    kept = [place for place in range(len(headings)) if any(own[place] != NOTHING for own in cells)]
    lines = [
        [*line, *(own[place] for place in kept)]
        for line, own in zip(grid.lines, cells, strict=True)
    ]
    about = f"{grid.about} {OWN_BACKBONES if shown is PLUG_AND_PLAY else VIT_BASE}"
    return grid._replace(
        headings=[*grid.headings, *(headings[place] for place in kept)], lines=lines, about=about
    )


def printed(numbers: pd.DataFrame) -> Printed:
    """The paper's average and FH for a line of `measures_grid`; of joint training the accuracy,
    which the paper prints under averages.
    """
    lines = numbers.drop_duplicates(LINE)

    def cells(index: int, line: list[str], paper: pd.DataFrame) -> list[str]:
        at = lines.iloc[index]
        own = paper[
            (paper["row"] == at["row"])
            & (paper["losses"] == at["losses"])
            & (paper["base_fraction"] == at["base_fraction"])
            & (paper["num_steps"] == at["num_steps"])
        ]
        last = "last" if at["row"] in UPPER_BOUNDS else "average"
        return [first_of(own[own["table"] != "fh"], last), first_of(own, "fh")]

    return cells


def losses_add(index: int, line: list[str], paper: pd.DataFrame) -> list[str]:
    """What the paper's losses add to the method of a line of `comparison_grid`, in five steps."""
    own = paper[
        (paper["row"] == line[0].strip("`"))
        & (paper["num_steps"] == 5)
        & (paper["column"] == "average")
    ]
    values = own.drop_duplicates("losses").set_index("losses")["value"]
    if not {"host", "hfc"} <= set(values.index):
        return [NOTHING]
    return [number(values["hfc"] - values["host"], signed=True).replace("−", "-")]


def first_of(rows: pd.DataFrame, column: str) -> str:
    values = rows.loc[rows["column"] == column, "value"]
    return number(values.iloc[0]) if len(values) else NOTHING
