"""From run folders to one page. It is made from the CSV files and can be deleted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path

import jinja2
import pandas as pd

from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.report.blocks import Heading, Plot, Report, Section
from avalanche_hfc.report.classes import PicturesOfRun, classes, exemplars
from avalanche_hfc.report.comparisons import Comparison, comparisons_of, subtitle, title
from avalanche_hfc.report.figures import (
    MARKERS,
    NARROW,
    SERIES,
    WIDE,
    as_svg,
    draw,
    marker_of,
    style_rules,
)
from avalanche_hfc.report.numbers import shared_class_table
from avalanche_hfc.report.recipe_values import acting, losses, origins, recipe_values
from avalanche_hfc.report.results import accuracy, evenness, paper_numbers, results

TEMPLATES = Path(__file__).parent / "templates"


def write_report(
    folders: Iterable[Path | str],
    out: Path | str,
    *,
    paper: pd.DataFrame | Path | str | None = None,
    pictures: PicturesOfRun | None = None,
) -> Path:
    """Write a report on runs, as a single HTML page.

    Args:
        folders: Run folders, or folders that contain run folders.
        out: The folder for report.html; it is created if necessary.
        paper: Published numbers to compare with, as rows for `compare` or as a CSV file with such
            rows. By default there is no comparison.
        pictures: Shows exemplars as images: `pictures_of_recipe()`, or a function from a run to a
            return value of `pictures_of`. By default exemplars are listed by position.

    Returns:
        The path of report.html.

    Raises:
        FileNotFoundError: If a folder or the CSV file does not exist.
        ValueError: If a folder contains no run, or its files cannot be read.
    """
    return write_page(make_report(folders, paper=paper, pictures=pictures), out)


def write_page(report: Report, out: Path | str) -> Path:
    """Write a report that has been made, and return its path."""
    page = Path(out) / "report.html"
    html = as_html(report)
    page.parent.mkdir(parents=True, exist_ok=True)
    replace_file(page, html)
    return page


def make_report(
    folders: Iterable[Path | str],
    *,
    paper: pd.DataFrame | Path | str | None = None,
    pictures: PicturesOfRun | None = None,
    summary: Callable[[Comparison], list] = results,
) -> Report:
    """What the report says, before it has a form. `summary` makes the blocks of its first
    section.
    """
    printed = _paper_rows(paper)
    paths = [Path(folder) for folder in folders]
    runs, waiting = read_runs(paths)
    comparisons = comparisons_of(runs)
    if printed is not None:
        comparisons = [
            replace(comparison, paper=paper_numbers(comparison.groups, printed))
            for comparison in comparisons
        ]
    sections = [
        _section("results", "Results", comparisons, summary),
        _section(
            "accuracy", "Accuracy after each step", comparisons, accuracy, "Accuracy per step"
        ),
        _section(
            "evenness", "How much is forgotten, and how evenly", comparisons, evenness, "Forgetting"
        ),
        _section(
            "classes", "Which classes are forgotten, and when", comparisons, classes, "Classes"
        ),
        _section("acting", "Whether GFC and GRD act", comparisons, acting, "GFC and GRD"),
        _section("losses", "Loss terms over the epochs", comparisons, losses, "Losses"),
        _section("exemplars", "Exemplars", comparisons, partial(exemplars, pictures=pictures)),
        _section("recipe", "Recipe and versions", comparisons, recipe_values, "Recipe"),
    ]
    sections[-1].blocks.append(origins(comparisons))
    return Report(
        title(paths),
        subtitle(comparisons),
        _notices(comparisons, waiting),
        [section for section in sections if section.blocks],
    )


def _section(
    name: str,
    heading: str,
    comparisons: Sequence[Comparison],
    make_blocks: Callable[[Comparison], list],
    short: str = "",
) -> Section:
    """The blocks of every comparison, under its protocol where there are several."""
    blocks: list = []
    for comparison in comparisons:
        made = make_blocks(comparison)
        if made and len(comparisons) > 1:
            blocks.append(Heading(comparison.title))
        blocks += made
    return Section(name, heading, blocks, short)


def _paper_rows(paper: pd.DataFrame | Path | str | None) -> pd.DataFrame | None:
    if paper is None or isinstance(paper, pd.DataFrame):
        return paper
    if not Path(paper).is_file():
        raise FileNotFoundError(f"{paper}: no such file with the paper's numbers.")
    return pd.read_csv(paper)


def _notices(comparisons: Sequence[Comparison], waiting: Sequence[Path]) -> list[str]:
    """What a reader must know before reading on: one sentence per reason, whatever the number of
    runs.
    """
    shorter, going, reordered = [], [], []
    for group in (group for comparison in comparisons for group in comparison.groups):
        shorter += [
            f"{group.label} seed {run.seed} ({run.last_step + 1} of {group.last_step + 1} steps)"
            for run in group.unfinished
        ]
        going.append((group.label, [run.seed for run in group.runs if not run.finished]))
        in_map = shared_class_table(group.runs)[1]
        others = [run for run in group.runs if run.classes is not None and run.seed not in in_map]
        reordered.append((group.label, [run.seed for run in others]))
    reasons = (
        ("No finished step yet, not in this report: {}.", [str(path) for path in waiting]),
        ("Fewer steps than other seeds, in the curves but not in the results: {}.", shorter),
        ("Not finished, so that the last step is the last so far: {}.", _with_seeds(going)),
        ("Classes arrive in another order and have maps of their own: {}.", _with_seeds(reordered)),
    )
    return [sentence.format("; ".join(names)) for sentence, names in reasons if names]


def _with_seeds(seeds: Sequence[tuple[str, Sequence[int]]]) -> list[str]:
    """Each recipe with its seeds as an entry of a list, those without any left out; one entry where
    all of several have the same.
    """
    entries = [
        (label, f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}")
        for label, numbers in seeds
        if numbers
    ]
    if 1 < len(entries) == len(seeds) and len({text for _, text in entries}) == 1:
        entries = [("all recipes,", entries[0][1])]
    return [f"{label} {text}" for label, text in entries]


def as_html(report: Report) -> str:
    """The report as one self-contained page.

    It contains each figure twice, for wide and for narrow screens; the style sheet shows one.
    """

    def plots(block: Plot) -> dict[str, str]:
        alt = escape(block.alt)
        looks = {"wide": WIDE, "narrow": NARROW}
        return {
            form: as_svg(draw(block.panels, look, block.height), f"{block.name}-{form}", alt)
            for form, look in looks.items()
        }

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    style = (TEMPLATES / "report.css").read_text() + style_rules()
    environment.globals |= {
        "plots": plots,
        "num_colours": len(SERIES),
        "marker": lambda colour: MARKERS[marker_of(colour)],
    }
    return environment.get_template("report.html.j2").render(report=report, style=style) + "\n"
