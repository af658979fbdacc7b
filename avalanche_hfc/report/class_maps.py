"""The section on single classes: accuracy after each step, which were never learned, which fall
fastest, and what they are predicted as.
"""

from collections.abc import Sequence

import pandas as pd

from avalanche_hfc.report.blocks import Cell, Fold, Heat, Table, Text
from avalanche_hfc.report.comparisons import Comparison
from avalanche_hfc.report.numbers import (
    chance_levels,
    class_table,
    confusion_shares,
    falls,
    never_learned,
    predicted_as,
    predicts_by_means,
    shared_class_table,
)
from avalanche_hfc.store.read import RunData

MOST_FALLS = 10
MOST_NAMES = 20  # of classes that were never learned
MOST_COLUMNS = 16  # of a confusion matrix by class, so that a narrow screen shows it


def classes(comparison: Comparison) -> list:
    """A fold per recipe with the maps of its classes."""
    folds = []
    for index, group, colour in comparison:
        table, seeds = shared_class_table(group.runs)
        if table is None:
            continue
        name = f"{index}{comparison.name}"
        blocks = _class_blocks(group.runs, table, seeds, name)
        for run in group.runs:
            per_class = class_table(run)
            if per_class is not None and run.seed not in seeds:
                of_seed = _class_blocks([run], per_class, [run.seed], f"{name}-seed-{run.seed}")
                blocks.append(Fold(f"Seed {run.seed}", of_seed))
        folds.append(Fold(group.label, blocks, colour=colour, open=index < 2))
    if not folds:
        return []
    intro = Text(
        "Each row is a class, each column the accuracy on it after a step: dark where it is "
        "known, pale where it is forgotten, empty "
        "before it arrives. Classes that arrived together stand together."
    )
    return [intro, *folds]


def _class_blocks(
    runs: Sequence[RunData], table: pd.DataFrame, seeds: list[int], name: str
) -> list:
    runs = [run for run in runs if run.seed in seeds]
    over = (
        f"Mean over seeds {', '.join(map(str, seeds))}." if len(seeds) > 1 else f"Seed {seeds[0]}."
    )
    means = predicts_by_means(runs[0])
    caption = (
        "Accuracy in percent. "
        f"{over}{' By the nearest class mean, with which this method predicts.' if means else ''}"
    )
    lowest = table.iloc[:, -1].sort_values().head(3)
    alt = "Lowest after the last step: " + ", ".join(
        f"{key[2]} {value:.0%}" for key, value in lowest.items()
    )
    steps = [str(step + 1) for step in table.columns]
    blocks: list = [Heat(f"classes-{name}", f"{alt}.", caption, table, steps, "after step")]
    blocks += _never_learned(table, runs[0])
    fell = falls(table)
    if len(fell):
        blocks.append(_fall_table(runs, table, fell, means))
    elif table.shape[1] > 1:
        blocks.append(Text("No class is below its best accuracy."))
    return blocks + _confusion(runs, table, name, means)


def _never_learned(table: pd.DataFrame, run: RunData) -> list:
    names = never_learned(table, chance_levels(run.steps))
    if not names:
        return []
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    listed = ", ".join(names[:MOST_NAMES]) + more
    return [
        Text(
            f"Never learned, as never above chance in any step: {listed} ({len(names)} of "
            f"{len(table)} classes)."
        )
    ]


def _confusion(runs: Sequence[RunData], table: pd.DataFrame, name: str, means: bool) -> list:
    step = int(table.columns[-1])
    by_step = len(table) > MOST_COLUMNS
    shares = confusion_shares(runs, step, by_step=by_step)
    if shares is None:
        return []
    names = [str(name) for name in shares.index.get_level_values("name")]
    wrong = [
        (shares.iat[row, column], names[row], names[column])
        for row in range(len(names))
        for column in range(len(names))
        if row != column
    ]
    share, of, predicted = max(wrong, default=(0.0, "no class", "another"))
    alt = f"Most frequent confusion: {share:.0%} of {of} predicted as {predicted}."
    if by_step:
        columns = [str(arrived + 1) for arrived in shares.columns]
        rows, corner = "the images of the classes of a step", "as step"
    else:
        columns = [str(index + 1) for index in range(len(names))]
        shares = shares.rename(
            index=dict(zip(names, map(" ".join, zip(columns, names, strict=True)), strict=True)),
            level="name",
        )
        rows, corner = "the images of a class", "predicted as"
    caption = (
        f"Confusion matrix after step {step + 1}, in percent: each row is {rows}, each column what "
        "they are predicted as; right answers are on the diagonal."
    )
    caption += " By the linear head." if means else ""
    shown = shares.where(shares > 0)  # an empty cell is easier to pass over than a 0
    return [Heat(f"confusion-{name}", alt, caption, shown, columns, corner)]


def _fall_table(
    runs: Sequence[RunData], table: pd.DataFrame, fell: pd.DataFrame, means: bool
) -> Table:
    last_step = int(table.columns[-1])
    known = any(run.confusion is not None for run in runs)
    rows = []
    for _, row in fell.head(MOST_FALLS).iterrows():
        course = table.loc[(row["brought_in"], row["class"], row["name"])].dropna()
        best, last, fall, rate = (
            100 * row[column] for column in ("best", "last", "fall", "fall_per_step")
        )
        cells = [
            Cell(str(row["name"]), f"arrived in step {row['brought_in'] + 1}"),
            Cell(f"{rate:.1f}", strong=True),
            Cell(f"{fall:.0f}"),
        ]
        cells += [
            Cell(f"{best:.0f}", f"step {row['best_step'] + 1}"),
            Cell(f"{last:.0f}"),
            Cell("", line=list(course)),
        ]
        wrong = [
            f"{name} ({share:.0%})".replace(" ", "\u00a0")
            for name, share in predicted_as(runs, row["class"], last_step)
        ]
        rows.append([*cells, *([Cell(", ".join(wrong) or "–")] if known else [])])
    head = [
        ("class", ""),
        ("per step", "points for each step since its best"),
        ("fall", "points"),
        ("best %", ""),
        ("last %", ""),
    ]
    head += [
        ("course", "0 to 100 %, since it arrived"),
        *([("predicted as", "share of its images, after the last step")] if known else []),
    ]
    caption = (
        f"The classes that fall fastest: {len(rows)} of {len(fell)} that are below their best."
    )
    caption += " What they are predicted as is by the linear head." if means and known else ""
    return Table(head, rows, caption, text_columns=(0, 6))
