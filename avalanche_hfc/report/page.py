"""From run folders to one page and the same as markdown. Everything is made from the CSV files and
can be deleted.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import jinja2
import pandas as pd

from avalanche_hfc.report import sections, training_section
from avalanche_hfc.report.blocks import Fold, Heat, Plot, Report
from avalanche_hfc.report.figures import as_png, as_svg, draw, heat_map
from avalanche_hfc.report.pictures import PicturesOfRun
from avalanche_hfc.report.sentences import title
from avalanche_hfc.report.style import FOR_PRINT, NARROW, SERIES, WIDE, style_rules
from avalanche_hfc.store.read import Group, group_runs, read_runs
from avalanche_hfc.store.rows import replace_file

TEMPLATES = Path(__file__).parent / "templates"
FIGURES = "figures"


def write_report(
    folders: Iterable[Path | str],
    out: Path | str,
    *,
    paper: pd.DataFrame | Path | str | None = None,
    pictures: PicturesOfRun | None = None,
) -> list[Path]:
    """report.html, which needs nothing else, and report.md with figures/*.png, in the folder `out`.
    Gives all paths, these two first.

    `folders`: run folders, or folders of them. `paper`: the paper's numbers to set beside, rows as
    `tables.compare` takes them, or a CSV file of such. `pictures`: for a run, the image at a
    position: `lambda run: pictures_of(benchmark)`, or `pictures_of_recipe()`; without it exemplars
    are told by position.
    """
    report = make_report(folders, paper=paper, pictures=pictures)
    html, text, figures = as_html(report), as_markdown(report), as_pngs(report)
    out = Path(out)
    (out / FIGURES).mkdir(parents=True, exist_ok=True)
    contents: dict[Path, str | bytes] = {out / "report.html": html, out / "report.md": text}
    contents |= {out / FIGURES / name: content for name, content in figures.items()}
    for path, content in contents.items():
        replace_file(path, content)
    return list(contents)


def make_report(
    folders: Iterable[Path | str],
    *,
    paper: pd.DataFrame | Path | str | None = None,
    pictures: PicturesOfRun | None = None,
) -> Report:
    """What the report says, before it has a form."""
    numbers = _paper_rows(paper)
    runs, waiting = read_runs(folders)
    groups = group_runs(runs)
    beside = sections.comparison(groups, numbers)
    parts = [
        sections.results(groups, beside),
        sections.accuracy(groups, beside),
        sections.evenness(groups),
        sections.classes(groups),
        training_section.acting(groups),
        training_section.losses(groups),
        training_section.exemplars(groups, pictures),
        training_section.recipe(groups),
    ]
    heading, below = title(groups)
    return Report(
        heading, below, _notices(groups, waiting), [part for part in parts if part is not None]
    )


def _paper_rows(paper: pd.DataFrame | Path | str | None) -> pd.DataFrame | None:
    if paper is None or isinstance(paper, pd.DataFrame):
        return paper
    if not Path(paper).is_file():
        raise FileNotFoundError(f"{paper}: no such file with the paper's numbers.")
    return pd.read_csv(paper)


def _notices(groups: Sequence[Group], waiting: Sequence[Path]) -> list[str]:
    """What a reader must know before reading on."""
    said = [f"{path} has no finished step yet and is not in this report." for path in waiting]
    for group in groups:
        if group.parents:
            names = ", ".join(str(run.path) for run in group.parents)
            said.append(f"The first steps of {group.label} are those of {names}: one curve.")
        for run in group.unfinished:
            told = (
                f"{run.last_step + 1} of {group.last_step + 1} steps: it is in the curves, not "
                "in the table of results"
            )
            said.append(f"Seed {run.seed} of {group.label} has {told}.")
        going = [str(run.seed) for run in group.runs if not run.finished]
        if going:
            said.append(
                f"{group.label} is not finished (seed {', '.join(going)}): what is called "
                "its last step is the last so far."
            )
        orders = sections.shared_class_table(group.runs)[1]
        others = [
            str(run.seed)
            for run in group.runs
            if run.classes is not None and run.seed not in orders
        ]
        if others:
            said.append(
                f"In {group.label} the classes arrive in another order in seed "
                f"{', '.join(others)}: each has a map of its own."
            )
    return said


def as_html(report: Report) -> str:
    """One page with everything in it. A figure stands there twice, for wide and for narrow screens;
    the style sheet shows one.
    """

    def plots(block: Plot) -> dict[str, str]:
        alt = escape(block.alt)
        looks = {"wide": WIDE, "narrow": NARROW}
        return {
            form: as_svg(draw(block.panels, look, block.height), f"{block.name}-{form}", alt)
            for form, look in looks.items()
        }

    environment = _environment(autoescape=True)
    style = (TEMPLATES / "report.css").read_text() + style_rules()
    environment.globals |= {"plots": plots, "num_colours": len(SERIES)}
    return environment.get_template("report.html.j2").render(report=report, style=style) + "\n"


def as_markdown(report: Report) -> str:
    text = (
        _environment(autoescape=False)
        .get_template("report.md.j2")
        .render(report=report, figures=FIGURES)
    )
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" +\n", "\n", text)).strip() + "\n"


def as_pngs(report: Report) -> dict[str, bytes]:
    """The figures of the markdown, by file name."""
    found = {}
    for block in _flat([block for section in report.sections for block in section.blocks]):
        if isinstance(block, Plot):
            found[f"{block.name}.png"] = as_png(draw(block.panels, FOR_PRINT, block.height))
        elif isinstance(block, Heat):
            found[f"{block.name}.png"] = as_png(heat_map(block.table, FOR_PRINT))
    return found


def _flat(blocks: Iterable[object]) -> list[object]:
    return [
        inner
        for block in blocks
        for inner in (_flat(block.blocks) if isinstance(block, Fold) else [block])
    ]


def _environment(*, autoescape: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["prose"] = _prose
    environment.filters["cell"] = lambda text: _prose(text).replace("|", "\\|").replace("\n", " ")
    return environment


def _prose(text: object) -> str:
    """Markdown without HTML, links and images: names of classes may hold anything."""
    return re.sub(r"[\[\]]", r"\\\g<0>", str(text).replace("<", "&lt;"))
