"""What a report consists of, and how it becomes one HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

import jinja2
import pandas as pd

from avalanche_hfc._types import Json
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.report.figures import (
    HEAT,
    MARKERS,
    NARROW,
    SERIES,
    WIDE,
    Panel,
    as_svg,
    draw,
    heat_colour,
    marker_of,
    style_rules,
)

TEMPLATES = Path(__file__).parent / "templates"
MOST_ROWS = 34  # of a heat map, before it is split
MOST_NUMBERED = 12  # columns of a heat map whose cells have room for a number


class Command(NamedTuple):
    """A command to copy."""

    text: str


class Heading(NamedTuple):
    """The protocol that the blocks below it belong to."""

    text: str


@dataclass(frozen=True)
class Cell:
    """`below` is printed under the text, small; `colour` is that of a recipe; `best` marks the best
    value of a column; `line` are accuracies for a small curve.
    """

    text: str
    below: str = ""
    colour: int | None = None
    best: bool = False
    line: Sequence[float] = ()

    @property
    def points(self) -> str:
        """The small curve as points of a polyline in a box of 64 × 20."""
        width = 60 / max(len(self.line) - 1, 1)
        return " ".join(f"{2 + i * width:.1f},{18 - 16 * y:.1f}" for i, y in enumerate(self.line))


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


@dataclass(frozen=True)
class Plot:
    """Curves of several recipes. `alt` describes them to those who cannot see them."""

    name: str
    alt: str
    caption: str
    panels: Sequence[Panel]
    height: int = 300

    @property
    def legend(self) -> list[tuple[str, int | None, bool]]:
        """Label, colour and whether it is the paper's, once each."""
        curves = [curve for panel in self.panels for curve in panel.curves]
        return list(dict.fromkeys((curve.label, curve.colour, curve.paper) for curve in curves))

    @property
    def drawings(self) -> dict[str, str]:
        """The figure for wide and for narrow screens; the style sheet shows one."""
        return {
            form: as_svg(
                draw(self.panels, look, self.height), f"{self.name}-{form}", escape(self.alt)
            )
            for form, look in (("wide", WIDE), ("narrow", NARROW))
        }


@dataclass(frozen=True)
class Heat:
    """Fractions as colours. The rows of `table` are classes in the order of arrival; `columns` are
    their headings, under `corner`.
    """

    alt: str
    caption: str
    table: pd.DataFrame
    columns: Sequence[str]
    corner: str

    @property
    def numbered(self) -> bool:
        """Whether a cell has room for its number."""
        return len(self.columns) <= MOST_NUMBERED

    @property
    def headings(self) -> list[str]:
        """The headings that have room: all, or the first and every fifth or tenth."""
        every = 1 if self.numbered else 5 if len(self.columns) <= 20 else 10
        shown = {0, *range(every - 1, len(self.columns), every)}
        return [text if index in shown else "" for index, text in enumerate(self.columns)]

    @property
    def tables(self) -> list[list[Json]]:
        """Rows for the page, in tables of equal length: name, whether a new step begins, cells of
        (colour, percent) or None.
        """
        rows: list[Json] = []
        for (brought_in, _, name), fractions in self.table.iterrows():
            cells = [
                None if pd.isna(value) else (heat_colour(value), round(100 * value))
                for value in fractions
            ]
            step = int(brought_in) + 1
            first = not rows or rows[-1]["step"] != step
            rows.append({"name": name, "first": first, "step": step, "cells": cells})
        length = -(-len(rows) // -(-len(rows) // MOST_ROWS))
        return [rows[start : start + length] for start in range(0, len(rows), length)]


class Pictures(NamedTuple):
    """Exemplars of some classes: (name, number kept, [(what, address of the image)], or text in
    place of images).
    """

    classes: Sequence[tuple[str, int, str | Sequence[tuple[str, str]]]]
    caption: str


class Fold(NamedTuple):
    """Blocks under a heading that can be closed."""

    title: str
    blocks: Sequence[object]
    colour: int | None = None
    open: bool = False


class Section(NamedTuple):
    """Blocks under a heading; a block that is a string is a paragraph. `short` is the section's
    name in the list of sections.
    """

    name: str
    title: str
    blocks: list
    short: str = ""


class Report(NamedTuple):
    """What a page shows, before it has a form."""

    title: str
    subtitle: str
    notices: Sequence[str]
    sections: Sequence[Section]


def write_page(report: Report, out: Path | str) -> Path:
    """Write a report as `report.html` in the folder `out`, and return its path."""
    page = Path(out) / "report.html"
    html = as_html(report)
    page.parent.mkdir(parents=True, exist_ok=True)
    replace_file(page, html)
    return page


def as_html(report: Report) -> str:
    """The report as one self-contained page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {
        "num_colours": len(SERIES),
        "num_shades": len(HEAT),
        "marker": lambda colour: MARKERS[marker_of(colour)],
        "kind": lambda block: type(block).__name__,
    }
    style = (TEMPLATES / "report.css").read_text() + style_rules()
    return environment.get_template("report.html.j2").render(report=report, style=style) + "\n"
