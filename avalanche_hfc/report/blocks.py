"""What a report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from avalanche_hfc._types import Json
from avalanche_hfc.report.figures import HEAT, Panel, heat_colour


@dataclass(frozen=True)
class Text:
    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Command:
    """A command to copy."""

    text: str
    kind: str = "command"


@dataclass(frozen=True)
class Heading:
    """The protocol that the blocks below it belong to."""

    text: str
    kind: str = "heading"


@dataclass(frozen=True)
class Cell:
    """`below` is printed under the text, small; `colour` is that of a recipe; `best` marks the best
    value of a column; `line` are accuracies for a small curve.
    """

    text: str
    below: str = ""
    colour: int | None = None
    strong: bool = False
    best: bool = False
    line: Sequence[float] = ()

    @property
    def points(self) -> str:
        """The small curve as points of a polyline in a box of 64 × 20."""
        width = 60 / max(len(self.line) - 1, 1)
        return " ".join(
            f"{2 + index * width:.1f},{18 - 16 * value:.1f}"
            for index, value in enumerate(self.line)
        )


@dataclass(frozen=True)
class Table:
    """`head`: heading and its definition. The columns at `text_columns` are text, the others are
    numbers. `colours`: recipes of the columns.
    """

    head: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    text_columns: Sequence[int] = (0,)
    colours: Sequence[int | None] = ()
    kind: str = "table"


@dataclass(frozen=True)
class Plot:
    """Curves of several recipes. `alt` says what is seen for those who do not see it."""

    name: str
    alt: str
    caption: str
    panels: Sequence[Panel]
    height: int = 300
    kind: str = "plot"

    @property
    def legend(self) -> list[tuple[str, int | None, bool]]:
        """Label, colour and whether it is the paper's, once each."""
        curves = [curve for panel in self.panels for curve in panel.curves]
        return list(dict.fromkeys((curve.label, curve.colour, curve.paper) for curve in curves))


@dataclass(frozen=True)
class Heat:
    """Fractions as colours. The rows of `table` are classes in the order of arrival; `columns` are
    their headings, under `corner`.
    """

    name: str
    alt: str
    caption: str
    table: pd.DataFrame
    columns: Sequence[str]
    corner: str
    kind: str = "heat"
    scale: Sequence[int] = field(default=tuple(range(len(HEAT))))
    most_rows: int = 34

    @property
    def numbered(self) -> bool:
        """Whether a cell has room for its number."""
        return self.table.shape[1] <= 12

    @property
    def headings(self) -> list[str]:
        """The headings that have room: all, or the first and every fifth or tenth."""
        every = 1 if self.numbered else 5 if len(self.columns) <= 20 else 10
        return [
            text if not index or (index + 1) % every == 0 else ""
            for index, text in enumerate(self.columns)
        ]

    @property
    def tables(self) -> list[list[Json]]:
        """Rows for the page, in tables of equal length: name, whether a new step begins, cells of
        (colour, percent) or None.
        """
        rows = []
        before = None
        for (brought_in, _, name), fractions in self.table.iterrows():
            cells = [
                None if pd.isna(value) else (heat_colour(value), round(100 * value))
                for value in fractions
            ]
            rows.append(
                {
                    "name": name,
                    "first": brought_in != before,
                    "brought_in": int(brought_in) + 1,
                    "cells": cells,
                }
            )
            before = brought_in
        num_tables = -(-len(rows) // self.most_rows)
        length = -(-len(rows) // num_tables)
        return [rows[start : start + length] for start in range(0, len(rows), length)]


@dataclass(frozen=True)
class Pictures:
    """Images of some classes: (name, number kept, [(what, address of the image)])."""

    classes: Sequence[tuple[str, int, Sequence[tuple[str, str]]]]
    caption: str
    kind: str = "pictures"


@dataclass(frozen=True)
class Fold:
    """Blocks under a heading that can be closed."""

    title: str
    blocks: Sequence[object]
    colour: int | None = None
    open: bool = False
    kind: str = "fold"


@dataclass(frozen=True)
class Section:
    """`short` is how the list of sections calls it."""

    name: str
    title: str
    blocks: list
    short: str = ""


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    notices: Sequence[str]
    sections: Sequence[Section]
