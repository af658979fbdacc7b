"""The sections on how values were chosen, from the trials on held-out training images."""

from pathlib import Path

import pandas as pd
from variants import VARIANTS, table

from avalanche_hfc.report.tables import Grid, markdown, number

HELD_OUT = (
    "Everything in this part was measured on training images that were held out; no test image was "
    "used."
)


def sections(folder: Path, place: str) -> dict[str, str]:
    """Title to markdown, for each file of trials that there is; `place` is that of the folder."""
    parts = {
        "Forms of HFC": (folder / "variants" / "variants.csv", variants),
        "Augmentation": (folder / "augmentation" / "trials.csv", augmentation),
        "Tuning": (folder / "tuning" / "trials.csv", tuning),
    }
    return {
        title: f"{made(pd.read_csv(path))}\n"
        f"Every trial is in `{place}/{path.relative_to(folder).as_posix()}`.\n"
        for title, (path, made) in parts.items()
        if path.is_file()
    }


def variants(lines: pd.DataFrame) -> str:
    """HFC beside the same with one choice changed."""
    names = {trial.row + str(trial): name for name, trial in VARIANTS.items()}
    return (
        f"{table(lines, names)}\nPercent, FH × 1000; {_seeds(lines)}. Δ: the variant minus HFC's "
        "default form, seed by seed, ± its standard error; (none) is a Δ below two standard "
        "errors: no difference.\n"
    )


def augmentation(lines: pd.DataFrame) -> str:
    """The average of each method with each augmentation."""
    lines = lines.assign(kind=lines["values"].str.extract(r"data\.transforms=([^,]+)"))
    kinds = list(dict.fromkeys(lines["kind"]))
    table = lines.pivot_table(index="row", columns="kind", values="average", sort=False)
    rows = [[f"`{row}`", *(number(own[kind]) for kind in kinds)] for row, own in table.iterrows()]
    about = f"Average over steps, percent; {_seeds(lines)}."
    return markdown(Grid(["method", *(f"`{kind}`" for kind in kinds)], 1, rows, about, []))


def tuning(lines: pd.DataFrame) -> str:
    """The best of the trials of each method, and how much there was to choose."""
    rows = []
    for row, own in lines.groupby("row", sort=False):
        best = own.loc[own["average"].idxmax()]
        cells = [number(best["average"]), number(own["average"].min()), str(len(own))]
        rows.append([f"`{row}`", f"`{best['values']}`" if len(own) > 1 else "–", *cells])
    about = f"Average over steps, percent; {_seeds(lines)}."
    headings = ["method", "best of its trials", "average", "lowest of its trials", "trials"]
    return markdown(Grid(headings, 2, rows, about, []))


def _seeds(lines: pd.DataFrame) -> str:
    seeds = sorted(lines["seed"].unique())
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
