"""The section on single classes: accuracy after each step, which were never learned, which fall
fastest, and what they are predicted as.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from avalanche_hfc.lab.read import RunData
from avalanche_hfc.report.blocks import Cell, Fold, Heat, Pictures, Table, Text
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


ImageAt = Callable[
    [int], Any
]  # position -> an array (h, w), (h, w, 3) or (3, h, w), of any range, or a PIL image
PicturesOfRun = Callable[
    [RunData], ImageAt | None
]  # positions follow the order of the classes, which may differ from run to run


def pictures_of_recipe(
    data_root: Path | str | None = None, *, allow_code: bool = False
) -> PicturesOfRun:
    """Show the exemplars of runs by rebuilding the benchmark from the recipe and seed of each run.

    The data must be available. Torch and Avalanche are imported.

    Args:
        data_root: The folder of the data, as in `hfc report --data`. By default the one in the
            recipe or Avalanche's folder for data.
        allow_code: Import the class that a recipe with ``module:Class`` names.

    Returns:
        A function from a run to a return value of `pictures_of`, for `write_report`.
    """

    def find(run: RunData) -> ImageAt:
        from avalanche_hfc.lab.data import build_benchmark, read_records, refuse_other_data
        from avalanche_hfc.lab.run_folder import RunFolder, recipe_of

        folder, known = RunFolder(run.path), read_records(run.path)
        recipe = recipe_of(folder, allow_code=allow_code)
        benchmark = build_benchmark(recipe, run.seed, data_root, known)
        refuse_other_data(folder, benchmark.records)
        return pictures_of(benchmark)

    return find


def pictures_of(benchmark: Any) -> ImageAt:
    """Look up training images of a benchmark by position.

    Args:
        benchmark: An Avalanche benchmark with a `train_stream`.

    Returns:
        A function from a position to an image as an array. The position of an image is the number
        of training images of earlier steps plus its index in the data set of its step.
    """
    parts = [experience.dataset for experience in benchmark.train_stream]
    ends = np.cumsum([len(part) for part in parts])

    def image_at(position: int) -> Any:
        if not 0 <= position < ends[-1]:
            raise ValueError(
                f"Position {position} is not in the benchmark: it has {ends[-1]} training "
                "images. Is it of another recipe?"
            )
        step = int(np.searchsorted(ends, position, side="right"))
        part = parts[step]
        shown = part.eval() if hasattr(part, "eval") else part
        return np.asarray(shown[position - (int(ends[step - 1]) if step else 0)][0])

    return image_at


def as_address(picture: Any, side: int = 72) -> str:
    """A PNG inside an address, at most `side` pixels wide and high; small images are enlarged
    without smoothing.
    """
    image = picture if isinstance(picture, Image.Image) else _image(np.asarray(picture))
    image = image.convert("RGB")
    factor = side / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    image = image.resize(
        size, Image.Resampling.NEAREST if factor >= 2 else Image.Resampling.BICUBIC
    )
    file = BytesIO()
    image.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def _image(values: np.ndarray) -> Image.Image:
    """Darkest value black, brightest white: a normalised image has no other scale."""
    if values.ndim == 3 and values.shape[0] in (1, 3):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        values = np.round((values - low) / ((high - low) or 1) * 255).astype(np.uint8)
    return Image.fromarray(values)


MOST_CLASSES, MOST_EXEMPLARS = 8, 10


def exemplars(comparison: Comparison, pictures: PicturesOfRun | None) -> list:
    """The exemplars of some classes, as pictures or positions; a fold per recipe."""
    shown = []
    for _, group, colour in comparison:
        run = next((run for run in group.runs if run.exemplars is not None), None)
        if run is not None:
            kept = _kept(run, run.exemplars, pictures(run) if pictures else None)
            shown.append((group.label, colour, kept))
    if len(shown) < 2:
        return [kept for _, _, kept in shown]
    return [
        Fold(label, [kept], colour=colour, open=index == 0)
        for index, (label, colour, kept) in enumerate(shown)
    ]


def _kept(run: RunData, rows: pd.DataFrame, image_at: ImageAt | None) -> Pictures | Table:
    last = int(rows["step"].max())
    rows = rows[rows["step"] == last].sort_values(["class", "rank"], kind="stable")
    ids = list(dict.fromkeys(rows["class"]))
    names, arrival = {}, {}
    if run.classes is not None:
        own = run.classes.drop_duplicates("class").set_index("class")
        names, arrival = own["name"].to_dict(), own["brought_in"].to_dict()
    ids.sort(key=lambda class_id: (arrival.get(class_id, 0), class_id))
    some = [
        ids[place]
        for place in np.unique(
            np.linspace(0, len(ids) - 1, min(MOST_CLASSES, len(ids))).round().astype(int)
        )
    ]
    caption = f"After step {last + 1}, seed {run.seed}: {len(rows)} exemplars of {len(ids)} classes"
    caption += f"; {len(some)} of the classes, the oldest first." if len(some) < len(ids) else "."
    kept = {class_id: rows.loc[rows["class"] == class_id, "position"].tolist() for class_id in some}
    labels = {class_id: str(names.get(class_id, class_id)) for class_id in some}
    if image_at is not None:
        shown = [
            (
                labels[c],
                len(own),
                [
                    (f"{labels[c]}, position {position}", as_address(image_at(int(position))))
                    for position in own[:MOST_EXEMPLARS]
                ],
            )
            for c, own in kept.items()
        ]
        return Pictures(shown, caption + " Best first.")
    head = [
        ("class", ""),
        ("positions, best first", "indices into the training data"),
        ("kept", ""),
    ]
    cells = [
        [
            Cell(labels[c]),
            Cell(
                ", ".join(map(str, own[:MOST_EXEMPLARS]))
                + (" …" if len(own) > MOST_EXEMPLARS else "")
            ),
            Cell(str(len(own))),
        ]
        for c, own in kept.items()
    ]
    return Table(head, cells, caption, text_columns=(0, 1))
