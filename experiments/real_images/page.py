"""The parts of docs/results.md and of the README that are generated from the committed rows."""

import os
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from avalanche_hfc._names import joined
from avalanche_hfc.lab.options import UPPER_BOUNDS
from avalanche_hfc.report.tables import markdown, measures_grid, paper_of
from real_images.claims import (
    BRACKETS,
    BRACKETS_OF_ONE,
    MEASURES,
    claims_table,
    not_here,
    standing,
    verdict,
    with_later,
)
from real_images.figures import figures
from real_images.rows import COLUMNS, MAPPED
from real_images.tables import (
    COMPARISON,
    MEDIUM,
    ORDER,
    PROTOCOLS,
    SHOWN,
    Shown,
    in_order,
    is_begun,
    missing,
    numbers_of,
    rows_shown,
    section,
)
from real_images.trials import HELD_OUT, forms_of, sections, trial_seconds
from real_images.why import fh_alone, why

IMAGES = "docs/images"
START, END = "<!-- real-images -->\n", "<!-- /real-images -->"
SHARED = "The pictures that `small-mae` was trained on share concepts with CIFAR-100, not images."
READING = """\
- *average* is the accuracy on all classes seen so far, averaged over the steps, *last* that after \
the last step, by the classifier that the method predicts with. *_nme* is by the nearest mean: of \
the exemplars' features, of all training images in `ncm` and `joint`.
- *forgetting* is the mean over the classes of earlier steps of their best earlier accuracy minus \
the last. It is also low where new classes are hardly predicted, as in `foster`: its class \
weights, chosen by the average, favour old classes ([trials](#tuning)).
- *FH* is the variance of 1 - p(true class) within the classes of a step, averaged over steps. It \
depends on the scale of the logits, and with it on the learning rate: in most methods it is higher \
at a higher rate ([trials](#tuning)). Where outputs are distances or scores of a regression it has \
no meaning and is left out, as for `joint`, which has one step; in `icarl` it is that of the head, \
which does not predict; `dytox` and `hfc-official` train sigmoids, FH is of their softmax.
- *seconds* are those of training, by the clock, without evaluation and pre-training.
- `hfc` is the default form: relation targets that sum to 1, averages over the classes in the \
batch, and tuned weights α = (1 - ρ, 1) of L_FC and L_RD, where ρ is the share of old classes. \
`hfc-paper` has the equations as printed, `hfc-official` the loss of the released code. `icarl` \
has a softmax in place of its authors' sigmoids, which did better in the [trials](#tuning).
- `ncm` and `ranpac` keep no images; `ranpac` keeps sums over them, which are larger than 200 \
images. `joint` also trains for five epochs only: it is no bound on what the network can learn. \
Avalanche's strategies and `ssil` put exemplars into every batch and so see more images.
- 200 exemplars are shared by the classes seen: 50 of each after the first step, 10 in the end. In \
the table of exemplars a class has the number of its setting from the start.
- Avalanche's strategies and `ranpac` have no exemplars chosen by herding, and so no nearest mean; \
`icarl` predicts by it, and its head is not shown.
- The classes, their order and the test images are the same for all seeds but in the table of \
class orders; a seed draws the new parts of the network and the batches. Networks of different \
shape draw different ones, so between them the seeds are paired in name only.
- TSA replaces the last pre-trained block and starts at random: its difference from `baseline` \
mixes both. [Forms of HFC](#tsa-and-the-rest-of-the-network) takes them apart. Values were tuned \
for five steps from `small-mae`; all tables use them.
"""
STANDINGS = {  # words before where HFC stands: protocol and measure
    PROTOCOLS: {
        "In ten steps": ((0, 10), "average"),
        "After a base step with half of the classes": ((0.5, 5), "average"),
    },
    ORDER: {
        "Over five class orders, by the average,": ((0, 5), "average"),
        "By the last accuracy": ((0, 5), "last"),
    },
    MEDIUM: {
        "With all 100 classes, by the average of one run each,": ((0, 10), "average"),
        "By the last accuracy": ((0, 10), "last"),
    },
}
TOLD = ("hfc", "herding-replay", "ncm")  # always in the README's table, with the best three


class Committed(NamedTuple):
    """The committed files as data frames."""

    runs: pd.DataFrame
    steps: pd.DataFrame
    classes: pd.DataFrame


def read_committed(folder: Path) -> Committed:
    """The files of a folder; those that it does not have are empty."""
    found = []
    for name, columns in COLUMNS.items():
        path = folder / f"{name}.csv"
        found.append(
            pd.read_csv(path, keep_default_na=False, na_values=[""])
            if path.is_file()
            else pd.DataFrame(columns=list(columns))
        )
    return Committed(*found)


def files_of(folder: Path, root: Path) -> dict[Path, str | bytes]:
    """The two pages and the figures as the rows of a folder give them.

    Args:
        folder: The committed rows.
        root: The folder of the README.

    Raises:
        ValueError: A page has no marked part, or more than one.
    """
    rows = read_committed(folder)
    pictures = figures(*rows)
    texts = {
        "docs/results.md": results_part(rows, folder, root, list(pictures)),
        "README.md": readme_part(rows),
    }
    found: dict[Path, str | bytes] = {root / IMAGES / name: png for name, png in pictures.items()}
    for name, text in texts.items():
        page = root / name
        before, *inside = page.read_text().split(START)
        if len(inside) != 1 or inside[0].count(END) != 1:
            raise ValueError(f"{page} must have one part between {START.strip()} and {END}.")
        found[page] = before + START + text + END + inside[0].split(END)[1]
    return found


def results_part(rows: Committed, folder: Path, root: Path, pictures: list[str]) -> str:
    """The part of docs/results.md; empty without rows and trials."""
    parts: dict[str, str] = {}
    place = Path(os.path.relpath(folder, root)).as_posix()
    if len(rows.runs):
        parts["## Real images"] = introduction(rows.runs, folder, place)
        parts["### What the paper claims"] = verdict(rows.runs)
        because = why(rows.runs, rows.classes, forms_of(folder))
        if because:
            parts["### Why"] = because
        parts["### How to read the tables"] = READING
        paper = paper_of()
        assert paper is not None
        waiting = []
        for shown in SHOWN:
            if is_begun(shown, rows.runs):
                parts[f"### {shown.title}"] = table_part(shown, rows, paper, pictures)
            else:
                waiting.append(f"`{shown.command}`")
        if waiting:
            parts["### Not trained yet"] = f"There are no rows yet of {', '.join(waiting)}.\n"
    trials = sections(folder, place)
    if trials:
        parts["## How the values on real images were chosen"] = f"{HELD_OUT}\n"
        parts |= {f"### {title}": text for title, text in trials.items()}
    return "\n".join(f"{title}\n\n{text}" for title, text in parts.items())


def introduction(runs: pd.DataFrame, folder: Path, place: str) -> str:
    """What was trained, for how long and on what; `place` is that of the rows in `folder`."""
    hours, tried = runs["seconds"].sum() / 3600, trial_seconds(folder) / 3600
    machines = joined(list(dict.fromkeys(runs["machine"].dropna())))
    return (
        "20 classes of CIFAR-100, four in each of five steps, with 250 training and 50 test images "
        "of each class, 200 exemplars in all, five epochs a step, and a small ViT that starts from "
        f"`small-mae`. {SHARED} The [protocol](protocol.md) was written before the runs and says "
        f"what was changed after the first. {len(runs)} runs trained for {hours:.1f} hours of one "
        f"core, the trials for {tried:.1f}, by the clock, two at a time and sometimes with other "
        f"work beside; on {machines}. Their rows are in `{place}`; `make results` generates this "
        "part from them.\n"
    )


def table_part(shown: Shown, rows: Committed, paper: pd.DataFrame, pictures: list[str]) -> str:
    """A table with the sentences and figures that belong to it."""
    own = rows_shown(shown, rows.runs)
    parts = [section(shown, rows.steps, paper)]
    if shown is COMPARISON:
        parts.insert(0, listed(with_later(own, rows.steps), shown))
        parts.append(fh_alone(over_seeds(numbers_of(shown, rows_shown(shown, rows.steps)))))
        parts += [figure(name, text) for name, text in FIGURES.items() if name in pictures]
    brackets = BRACKETS if shown.num_seeds > 1 else BRACKETS_OF_ONE
    for words, (protocol, column) in STANDINGS.get(shown, {}).items():
        said = str(standing(own, shown, protocol, column))
        parts.append(f"{words} {said}. {brackets}\n" if said else "")
    if shown in STANDINGS:
        parts.append(not_here(rows.runs, shown))
    return "\n".join(part for part in parts if part.strip())


def listed(runs: pd.DataFrame, shown: Shown) -> str:
    """Where HFC stands by each measure, as a list; empty before all rows are there."""
    said = {words: str(standing(runs, shown, column=name)) for name, words in MEASURES.items()}
    lines = [f"- {words} {text}." for words, text in said.items() if text]
    return "\n".join([*lines, "", BRACKETS, ""]) if lines else ""


def over_seeds(numbers: pd.DataFrame) -> pd.DataFrame:
    """The measures of each method of a table, a column each; upper bounds are left out."""
    rivals = numbers[~numbers["row"].isin(UPPER_BOUNDS)]
    return rivals.assign(row="`" + rivals["row"] + "`").pivot(
        index="row", columns="column", values="ours"
    )


FIGURES = {
    "small-accuracy.png": "Accuracy after each step of the eight methods with the highest average, "
    "herding replay and nearest class mean; a band is ± one standard deviation over seeds",
    **{
        f"small-classes-{row}.png": f"`{row}`: accuracy of each class after each step, over seeds"
        for row in MAPPED
    },
    "small-fh.png": "What HFC and its losses gain against FH; bars are ± one standard error",
}


def figure(name: str, text: str) -> str:
    return f"![{text.replace('`', '')}](images/{name})\n\n{text}.\n"


def readme_part(rows: Committed) -> str:
    """The section of the README; empty without rows of the comparison. Means are over the seeds
    that all its rows have.
    """
    own = rows_shown(COMPARISON, rows.steps)
    recipes_with = own.groupby("seed")["recipe"].nunique()
    shared = recipes_with.index[recipes_with == own["recipe"].nunique()]
    own = own[own["seed"].isin(shared)] if len(shared) else own
    if not len(own):
        return ""
    numbers = in_order(numbers_of(COMPARISON, own))
    rivals = numbers[~numbers["row"].isin(UPPER_BOUNDS)]
    best = list(dict.fromkeys(rivals["row"]))[:3]
    lasts = rivals[rivals["column"] == "last"]
    best.append(lasts.loc[lasts["ours"].idxmax(), "row"])
    kept = rivals[
        rivals["row"].isin([*best, *TOLD]) & rivals["column"].isin(["average", "last", "fh"])
    ]
    seeds = sorted({int(number) for number in kept["num_seeds"]})
    about = (
        "*average*: accuracy on all classes seen so far, averaged over the steps. *last*: after "
        "the last step. *fh*: forgetting heterogeneity, the variance of 1 - p(true class) within a "
        "step. Percent, FH × 1000; mean ± standard error over "
        f"{' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'}; the three with the "
        "highest average, the highest last, HFC, herding replay and nearest class mean without "
        f"training. {SHARED}"
    )
    runs = rows_shown(COMPARISON, rows.runs)
    said = [
        f"{MEASURES[name]} {'; '.join(filter(None, (first, equal)))}."
        for name in ("average", "last")
        for first, equal, _ in [standing(runs, COMPARISON, column=name)]
        if first
    ]
    said += [
        BRACKETS if said else "",
        "Some rows are not trained yet." if missing(COMPARISON, rows.runs) else "",
    ]
    table = markdown(measures_grid(kept)._replace(about=about))
    return (
        "## Real images\n\n20 classes of CIFAR-100 in five steps of five epochs, 200 exemplars, a "
        f"small pre-trained ViT ([protocol](docs/protocol.md)).\n\n{table}\n"
        f"{' '.join(filter(None, said))} [All tables](docs/results.md).\n\n"
        f"{claims_table(rows.runs)}\n"
    )
