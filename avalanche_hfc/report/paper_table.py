"""The numbers of a table from the folders of its runs, beside those of the paper, and in its units:
percent, FH × 1000.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from avalanche_hfc._types import Json
from avalanche_hfc.recipes import FURTHER_TABLES, SCALES, PaperCell, TableCell
from avalanche_hfc.recipes.options import UPPER_BOUNDS
from avalanche_hfc.report.numbers import summarise
from avalanche_hfc.report.tables import KEYS, compare
from avalanche_hfc.store.read import Run, read_runs
from avalanche_hfc.tasks.table import TableRun

TITLES = {
    "cifar100": "CIFAR-100 with ViT-Base and 2000 exemplars",
    "imagenet100": "ImageNet-100 with ViT-Base and 2000 exemplars",
    "imagenet1000": "ImageNet-1000 with ViT-Base and 20000 exemplars",
    "plug-and-play": "L_FC and L_RD inside other methods on CIFAR-100 and ImageNet-100",
    "ablation": "Parts of HFC on CIFAR-100 and ImageNet-100",
    "per-class-20": "CIFAR-100 with 20 exemplars per class",
    "fh": "Forgetting heterogeneity beside average accuracy on CIFAR-100 in 5 steps",
    "steps-imagenet100": "Accuracy after each of 10 steps on ImageNet-100",
    "steps-imagenet1000": "Accuracy after each of 10 steps on ImageNet-1000",
    "steps-plug-and-play": "L_FC and L_RD inside other methods on CIFAR-100 after each of 10 steps",
    "avalanche": "Avalanche's own strategies on the paper's protocols",
    "hfc-forms": "HFC as default, as printed and as released",
    "methods": "Every method on split digits, as it is and with both losses",
    "demo": "Four methods on split digits",
}
WITH_MEAN = ("cifar100", "imagenet100", "imagenet1000", "plug-and-play", "per-class-20")  # over T
LED_BY_MEAN = ("cifar100", "imagenet100", "imagenet1000", "per-class-20")
PROTOCOL = ("dataset", "base_fraction", "num_steps", "mem_size", "per_class")
BESIDE = Path(__file__).parents[2] / "experiments" / "paper.csv"
Row = Json


def table_of(
    table: str,
    scale: str,
    cells: Sequence[TableCell],
    runs: Iterable[TableRun],
    paper: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """`compare` of finished runs with the paper's numbers for these cells, with `scale` and
    `recipe`; without a paper, ours alone.

    Ours are the numbers that the paper prints in this table: averages, steps, FH; the mean over T
    and the lead of HFC for the seeds that have all that they are made of, the lead seed by seed.
    `parameters_millions` is the paper's alone.
    """
    ours = [*measured(table, cells, runs)]
    if not ours:
        raise ValueError(f"No finished run of table {table} at scale {scale}: nothing to show.")
    if scale != "demo":  # which has one T of several
        ours += [*means(table, cells, ours)]
    ours += [*improvements(table, ours)]
    columns = ["table", *KEYS, "value", "mark"]
    printed = (
        pd.DataFrame(columns=columns) if paper is None else printed_of(table, scale, cells, paper)
    )
    both = compare(pd.DataFrame(ours), printed)
    names = {_key(cell._asdict()): name for cell, name in cells}
    return both.assign(scale=scale, recipe=[names.get(_key(row), "") for _, row in both.iterrows()])


def measured(table: str, cells: Iterable[TableCell], runs: Iterable[TableRun]) -> Iterator[Row]:
    """A row per cell, column and seed."""
    by_recipe: dict[str, list[Run]] = {}
    for run in runs:
        by_recipe.setdefault(run.recipe.name, []).extend(read_runs([run.folder])[0])
    for cell, name in cells:
        for own in by_recipe.get(name, []):
            for column, value in values_of(own, table, joint=cell.row in UPPER_BOUNDS).items():
                yield {
                    "table": table,
                    **cell._asdict(),
                    "column": column,
                    "seed": own.seed,
                    "value": value,
                }


def values_of(run: Run, table: str, *, joint: bool) -> dict[str, float]:
    """The numbers of a run that this table has. Joint training has one step, whose accuracy the
    paper prints under averages.
    """
    numbers = summarise(run)
    average, last = {"average": 100 * numbers["average"]}, {"last": 100 * numbers["last"]}
    if joint:
        return last
    if table == "fh":
        return {"fh": 1000 * numbers["fh"], **average}
    if table.startswith("steps-"):
        accuracies = zip(run.steps["step"], run.steps["accuracy"], strict=True)
        return {
            f"step {step + 1}": 100 * float(accuracy) for step, accuracy in accuracies
        } | average
    return {**average, **last} if table in FURTHER_TABLES else average


def means(table: str, cells: Sequence[TableCell], ours: Sequence[Row]) -> Iterator[Row]:
    """Of a line over all T of the table with the same share of base classes."""
    if table not in WITH_MEAN:
        return
    needed: dict[PaperCell, set[int]] = {}
    for cell, _ in cells:
        needed.setdefault(cell._replace(num_steps=0), set()).add(cell.num_steps)
    found: dict[tuple, dict[int, Row]] = {}
    for row in ours:
        line = PaperCell(*(row[key] for key in KEYS[:-1]))._replace(num_steps=0)
        found.setdefault((line, row["seed"]), {})[row["num_steps"]] = row
    for (line, _), rows in found.items():
        if set(rows) == needed[line]:
            value = sum(row["value"] for row in rows.values()) / len(rows)
            yield {**next(iter(rows.values())), "num_steps": None, "column": "mean", "value": value}


def improvements(table: str, ours: Sequence[Row]) -> Iterator[Row]:
    """By how much HFC leads a row, or a host with both losses the host alone, on the same seed."""
    column = "mean" if table in LED_BY_MEAN else "average" if table.startswith("steps-") else None
    held = {_place(row, row["row"], row["losses"]): row for row in ours if row["column"] == column}
    for row in held.values():
        if row["losses"] == "host" and row["row"] not in ("hfc", *UPPER_BOUNDS):
            leader = held.get(
                _place(
                    row,
                    *(("hfc", "host") if row["backbone"] == "vit-base" else (row["row"], "hfc")),
                )
            )
            if leader is not None:
                yield {**row, "column": "improvement", "value": leader["value"] - row["value"]}


def _place(row: Row, name: str, losses: str) -> tuple:
    return (name, losses, row["backbone"], *(row[key] for key in PROTOCOL), row["seed"])


def printed_of(
    table: str, scale: str, cells: Iterable[TableCell], paper: pd.DataFrame
) -> pd.DataFrame:
    """The paper's rows for these cells; what a line has for no single T is left out where a scale
    has only one of several.
    """
    own = paper[paper["table"] == table]
    wanted = {_key(cell._asdict()) for cell, _ in cells}
    lines = {key[:4] for key in wanted}
    keys = [_key(row) for _, row in own.iterrows()]
    kept = [
        key in wanted or (scale != "demo" and pd.isna(key[5]) and key[:4] in lines) for key in keys
    ]
    return own[pd.Series(kept, index=own.index, dtype=bool)]


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


def title_of(table: str, scale: str, overrides: Mapping[str, object], *, paper: bool) -> str:
    """What the table is, and what a reader must know before comparing."""
    parts = [TITLES[table]]
    if scale != "paper":
        parts.append(
            f"Scale {scale} ({SCALES[scale]}): each recipe stands for a cell of the paper, whose "
            "numbers are of other data and "
            "networks; the gap is no measure of a reproduction"
        )
    if overrides:
        parts.append(
            "Changed: " + ", ".join(f"{leaf} {value}" for leaf, value in overrides.items())
        )
    if not paper and table not in FURTHER_TABLES:
        parts.append("The paper's numbers are not at hand")
    return ". ".join(parts)
