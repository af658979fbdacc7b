"""The page on the paper's cells with ResNet-32 on CIFAR-100, from committed run folders.

    python experiments/paper_scale_page.py experiments/results/paper-scale

The folder holds what experiments/paper_scale.py has collected; its run in float32 stands in the
folder of that name with -float32 behind. Nothing is trained, and without a finished run nothing is
written. Numbers of the paper are those of experiments/paper.csv.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from paper_scale import FIRST_STEPS, beside, queue

from avalanche_hfc.lab.read import RunData, read_runs
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.tables import TABLES, PaperCell
from avalanche_hfc.report.numbers import measures
from avalanche_hfc.report.tables import Grid, markdown, number

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper-scale.md"
PAPER = ROOT / "experiments" / "paper.csv"
FIDELITY = ROOT / "docs" / "fidelity.toml"
CELLS = {
    entry.recipe: entry.cell
    for entry in TABLES["plug-and-play"]["paper"]
    if entry.cell.backbone == "resnet-32"
}
INTRODUCTION = """# The paper's own cells

<!-- written by experiments/paper_scale_page.py -->

ResNet-32 with 0.46 M parameters on all 60,000 images of CIFAR-100 is the part of the paper that
one CPU core can train. The recipes are those of scale paper; only the form of the arithmetic
differs, and each row names it.

One run of each cell, as in the paper. One seed proves no difference of a point: runs of the same
method with other seeds differ by as much.
"""


class Cell(NamedTuple):
    """A finished run, with the cell of the paper that it fills."""

    run: RunData
    note: dict[str, object]  # recipe.json
    cell: PaperCell

    @property
    def label(self) -> str:
        steps = "" if self.cell.row == "joint" else f", T = {self.cell.num_steps}"
        return self.cell.row_name + steps

    @property
    def measure(self) -> str:
        """What the paper prints of it; the upper bound has one step."""
        return "last" if self.cell.row == "joint" else "average"


def read(folder: Path, *, whole: bool = True) -> dict[str, Cell]:
    """Recipe to its run, in the order of the queue."""
    names = list(dict.fromkeys(work.run.recipe.name for work in queue(folder, folder)))
    there = [path for name in names if (path := folder / name).is_dir()]
    runs = read_runs(there)[0] if there else []
    return {
        run.recipe["name"]: Cell(
            run,
            json.loads((run.path / "recipe.json").read_text()),
            CELLS[run.recipe["name"]],
        )
        for run in runs
        if run.finished or not whole
    }


def printed(table: str, cell: PaperCell) -> pd.Series:
    """The paper's numbers of a row and a protocol, by column."""
    rows = pd.read_csv(PAPER)
    fits = rows["table"] == table
    for key in ("row", "losses", "backbone", "dataset", "base_fraction", "num_steps"):
        fits &= rows[key] == getattr(cell, key)
    return rows[fits].set_index("column")["value"].astype(float)


def grid(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    return markdown(Grid([*headings], 1, [[*line] for line in lines], "", []))


# The parts of the page


def cells_table(cells: Iterable[Cell]) -> str:
    lines = []
    for one in cells:
        numbers = measures(one.run.steps)
        ours, paper = 100 * numbers[one.measure], printed("plug-and-play", one.cell)[one.measure]
        train = one.note["recipe"]["train"]
        form = train["precision"] + ", channels last" * train["channels_last"]
        texts = (number(ours), number(paper), number(ours - paper, signed=True))
        hours = f"{numbers['seconds'] / 3600:.1f}"
        commit = str(one.note.get("commit", "unknown"))[:10]
        lines.append([one.label, *texts, form, hours, commit, one.run.machine])
    headings = "cell|ours|paper|gap|arithmetic|hours|commit|machine".split("|")
    return grid(headings, lines)


def claims(cells: dict[str, Cell]) -> Iterator[str]:
    """What both losses add, ours and the paper's."""
    for name, both in cells.items():
        host = cells.get(name.replace("+hfc", ""))
        if "+hfc" not in name or host is None:
            continue
        ours, paper = (
            [100 * measures(one.run.steps)["average"] for one in (host, both)],
            [printed("plug-and-play", one.cell)["average"] for one in (host, both)],
        )
        yield (
            f"- Both losses in {host.label}: {number(ours[1] - ours[0], signed=True)} here, "
            f"{number(paper[1] - paper[0], signed=True)} in the paper."
        )


def curves(cells: Iterable[Cell]) -> str:
    """The accuracy after each of ten steps beside that of the paper's table 10."""
    lines = []
    for one in cells:
        if one.cell.num_steps != 10:
            continue
        paper = printed("steps-plug-and-play", one.cell)
        ours = 100 * one.run.steps.sort_values("step")["accuracy"]
        lines.append([f"{one.cell.row_name}, ours", *map(number, ours)])
        steps = [paper[f"step {step}"] for step in range(1, 11)]
        lines.append([f"{one.cell.row_name}, paper", *map(number, steps)])
    return grid(["", *map(str, range(10, 101, 10))], lines) if lines else ""


def arithmetic(fast: dict[str, Cell], exact: dict[str, Cell]) -> str:
    """The first steps of one run in float32 beside the same steps in the fast form."""
    lines = []
    for name in exact.keys() & fast.keys():
        both = [one[name].run.steps.set_index("step")["accuracy"] * 100 for one in (exact, fast)]
        for step in range(FIRST_STEPS):
            first, second = (values[step] for values in both)
            texts = number(first), number(second), number(second - first, signed=True)
            lines.append([f"{fast[name].label}, step {step + 1}", *texts])
    return grid(["run", "float32", "bfloat16", "difference"], lines) if lines else ""


def departures(cells: dict[str, Cell]) -> Iterator[str]:
    """The departures that docs/fidelity.toml declares of these methods and recipes."""
    methods = {one.cell.row for one in cells.values()} - {"joint"}
    for one in tomllib.loads(FIDELITY.read_text())["departure"]:
        concerned = sorted(methods.intersection(one["methods"]))
        recipes = [name for name in cells if CELLS[name].row in concerned]
        if "*" not in one["methods"] and not recipes:
            continue
        rules = [rule[:2] for rule in one.get("recipes", [])]
        values = {
            next((value for pattern, value in rules if fnmatch(name, pattern)), "")
            for name in recipes or cells
        }
        if values == {one.get("theirs")}:
            continue  # these recipes have the authors' value
        who = ", ".join(f"`{name}`" for name in concerned) or "all"
        yield f"- {who}, {one['detail']}: theirs {one['authors']}; ours {one['ours']}."


def page(folder: Path) -> str:
    """The page, empty without a finished run."""
    cells = read(folder)
    if not cells:
        return ""
    wanted = {work.run.recipe.name for work in queue(folder, folder)}
    parts = [INTRODUCTION, cells_table(cells.values())]
    if wanted - cells.keys():
        parts.append(f"{len(wanted - cells.keys())} of {len(wanted)} cells have no row yet.")
    if added := list(claims(cells)):
        parts += ["## What the losses add", "\n".join(added)]
    if shown := curves(cells.values()):
        parts += [
            "## Accuracy after each of ten steps",
            "In percent of the classes seen; the paper's numbers are those of its table 10. "
            "iCaRL's own paper prints one number for ten steps, an average of 64.1; its curve is a "
            "figure without numbers.",
            shown,
        ]
    if shown := arithmetic(cells, read(beside(folder), whole=False)):
        parts += [
            "## float32 against bfloat16",
            "The first steps of one run, all else equal.",
            shown,
        ]
    parts += [
        "## What is known to differ",
        "From the authors of each method, as `docs/fidelity.md` declares; what HFC's authors "
        "changed in the hosts is not published.",
        "\n".join(departures(cells)),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of finished runs")
    parser.add_argument("--out", type=Path, default=PAGE, metavar="FILE")
    arguments = parser.parse_args()
    text = page(arguments.folder)
    if not text:
        print(f"No finished run in {arguments.folder}: no page is written.")
        return 1
    replace_file(arguments.out, text)
    print(f"Wrote {arguments.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
