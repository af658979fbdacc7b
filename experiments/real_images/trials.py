"""The sections on how values were chosen, from the trials on held-out training images."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
from variants import GROUPS, PLAIN, by_variant, table

from avalanche_hfc.report.numbers import NO_DIFFERENCE, ONE_SEED, TEST
from avalanche_hfc.report.tables import Grid, markdown, number
from real_images.why import above, fh_alone

VARIANTS = "variants/variants.csv"
CLOSE, FAR = 1.0, 3.0  # points: of the average, of the last accuracy
FORMS = """\
The default form has the values before tuning: rate 5e-4 and weights α = (1 - ρ, ρ) of L_FC and \
L_RD, where ρ is the share of old classes. Literal targets are those that the paper prints, which \
sum to 2 for a sample of a new class; normalised ones sum to 1. L_RD is averaged over the classes \
present in the batch or over all classes seen. The released loss is that of the authors' code.
"""
HELD_OUT = (
    "Everything in this part was measured on training images that were held out; no test image was "
    "used."
)


def sections(folder: Path, place: str) -> dict[str, str]:
    """Title to markdown, for each file of trials that there is; `place` is that of the folder."""
    parts = {
        "Forms of HFC": (folder / VARIANTS, variants),
        "Augmentation": (folder / "augmentation" / "trials.csv", augmentation),
        "Image size": (folder / "image-size" / "trials.csv", image_size),
        "Tuning": (folder / "tuning" / "trials.csv", tuning),
        "Weight alignment": (folder / "alignment" / "alignment.csv", alignment),
    }
    return {
        title: f"{made(pd.read_csv(path))}\n"
        f"Every trial is in `{place}/{path.relative_to(folder).as_posix()}`.\n"
        for title, (path, made) in parts.items()
        if path.is_file()
    }


def forms_of(folder: Path) -> pd.DataFrame:
    """The measures of each form of HFC and seed; none where there is no file of them."""
    path = folder / VARIANTS
    columns = ["row", "values", "seed", "average", "last", "fh"]
    return by_variant(pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=columns))


def trial_seconds(folder: Path) -> float:
    """Seconds that all trials beside the rows of a folder were trained for."""
    return sum(pd.read_csv(path)["seconds"].sum() for path in sorted(folder.glob("*/*.csv")))


def variants(lines: pd.DataFrame) -> str:
    """HFC beside the same with one choice changed, a table for each question."""
    runs = by_variant(lines)
    averages = runs["average"].unstack("seed")
    added = averages - averages.reindex([PLAIN]).iloc[0]
    counts = lines.groupby(["row", "values"]).size()
    tested = f"± its standard error; {NO_DIFFERENCE}: no difference found by {TEST}. "
    parts = [
        FORMS,
        f"Percent, FH × 1000; {_seeds(lines)}. Δ: the variant minus HFC's default form, seed by "
        f"seed{f', {tested}' if (counts > 1).any() else '. '}"
        f"{ONE_SEED if (counts == 1).any() else ''}".rstrip()
        + "\n",
    ]
    parts.append(above(added.drop(index=PLAIN, errors="ignore")))
    for title, group in GROUPS.items():
        changed = [name for name in group if name in averages.index]
        if changed:
            own = runs.loc[[name for name in (PLAIN, *changed) if name in averages.index]]
            parts += [f"#### {title}\n", table(own)]
    told = fh_alone(runs.groupby("variant").mean())
    if told:
        parts.append(f"#### FH and accuracy\n\n{told}")
    return "\n".join(filter(None, parts))


def augmentation(lines: pd.DataFrame) -> str:
    """The average of each method with each augmentation."""
    return beside(lines, "data.transforms", {"average": ""}, "Average over steps, percent")


def image_size(lines: pd.DataFrame) -> str:
    """The average of each method at each image size, and what it costs."""
    return beside(
        lines,
        "data.image_size",
        {"average": " px, average", "seconds": " px, seconds"},
        "Average over steps, percent, and seconds of training; the images have 32 px and are "
        "enlarged to 64",
    )


def beside(lines: pd.DataFrame, leaf: str, measures: Mapping[str, str], about: str) -> str:
    """Measures of each method, for each value of a leaf; after a value, the words of a measure."""
    lines = lines.assign(value=lines["values"].str.extract(rf"{re.escape(leaf)}=([^,]+)"))
    values = list(dict.fromkeys(lines["value"]))
    table = lines.set_index(["row", "value"])
    rows = [
        [
            f"`{row}`",
            *(number(table.at[(row, value), name]) for name in measures for value in values),
        ]
        for row in dict.fromkeys(lines["row"])
    ]
    headings = [f"`{value}`{words}" for words in measures.values() for value in values]
    return markdown(Grid(["method", *headings], 1, rows, f"{about}; {_seeds(lines)}.", []))


def tuning(lines: pd.DataFrame) -> str:
    """The best of the trials of each method, how much there was to choose, and where the best value
    is the lowest or highest that was tried.
    """
    rows, edges, later = [], [], []
    for row, own in lines.groupby("row", sort=False):
        best = own.loc[own["average"].idxmax()]
        cells = [number(best["average"]), number(own["average"].min()), str(len(own))]
        rows.append([f"`{row}`", f"`{best['values']}`" if len(own) > 1 else "–", *cells])
        edges += [f"`{row}` ({edge})" for edge in at_edge(best["values"], own["values"])]
        close = own[own["average"] >= best["average"] - CLOSE]
        last = close.loc[close["last"].idxmax()]
        if last["last"] >= best["last"] + FAR:
            later.append(
                f"`{row}` with `{last['values']}` ({number(last['average'])} / "
                f"{number(last['last'])} instead of {number(best['average'])} / "
                f"{number(best['last'])})"
            )
    about = f"Average over steps, of `joint` the accuracy, percent; {_seeds(lines)}."
    headings = ["method", "best of its trials", "average", "lowest of its trials", "trials"]
    notes = []
    if edges:
        notes.append(
            "At the edge of three or more values tried, so that a wider grid might find a better "
            f"one: {', '.join(edges)}. Options with two values are not listed: either is at an "
            "edge."
        )
    if later:
        notes.append(
            f"Chosen by the average. At most {CLOSE:.0f} point below it, another trial has a last "
            f"accuracy that is at least {FAR:.0f} points higher (average / last): "
            f"{'; '.join(later)}."
        )
    return markdown(Grid(headings, 2, rows, about, notes, marks=False))


def alignment(lines: pd.DataFrame) -> str:
    """The factors of WA after each step, for each way to train it."""
    rows = []
    for training, own in lines.groupby("training", sort=False):
        average = number(100 * own["accuracy"].mean())
        rows.append([training, average, *(f"{value:.2f}" for value in own["factor"].dropna())])
    steps = sorted(lines.loc[lines["factor"].notna(), "step"].unique())
    headings = ["training of `wa`", "average", *(f"γ, step {step + 1}" for step in steps)]
    about = (
        "γ, by which WA scales the rows of new classes in the head: the mean length of old rows "
        "divided by that of new ones. At 1 there is nothing to align. Average over steps, percent; "
        f"{_seeds(lines)}."
    )
    return markdown(Grid(headings, 1, rows, about, []))


def at_edge(best: str, tried: Iterable[str]) -> list[str]:
    """The leaves whose value is the lowest or highest of at least three numbers, in words.

    >>> at_edge("train.lr=2e-4, a.b=1", [f"train.lr={r}, a.b=1" for r in ("2e-4", "5e-4", "1e-3")])
    ['lowest train.lr']
    >>> at_edge("train.lr=5e-4", ["train.lr=5e-4", "train.lr=1e-3", "train.lr=2e-4, a.b=1"])
    []
    """
    all_tried = [leaves_of(values) for values in tried]
    found = []
    for leaf, value in leaves_of(best).items():
        try:
            values = sorted({float(own[leaf]) for own in all_tried if leaf in own})
        except ValueError:  # an option in words
            continue
        if len(values) >= 3 and float(value) in (values[0], values[-1]):
            found.append(f"{'lowest' if float(value) == values[0] else 'highest'} {leaf}")
    return found


def leaves_of(values: str) -> dict[str, str]:
    """The leaves of a trial with their values, as the text of its line has them."""
    return dict(pair.split("=") for pair in values.split(", ") if "=" in pair)


def _seeds(lines: pd.DataFrame) -> str:
    seeds = sorted(lines["seed"].unique())
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
