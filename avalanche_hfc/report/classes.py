"""The sections on single classes: accuracy after each step, which were never learned, which fall
fastest, what they are predicted as, and the exemplars that are kept of them.
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
from avalanche_hfc.report.numbers import (
    Comparison,
    chance_levels,
    class_table,
    confusion_shares,
    falls,
    never_learned,
    predicted_as,
    predicts_by_means,
    shared_class_table,
)
from avalanche_hfc.report.page import Cell, Fold, Heat, Pictures, Table

MOST_FALLS = 10
MOST_NAMES = 20  # of classes that were never learned
MOST_COLUMNS = 16  # of a confusion matrix by class, so that a narrow screen shows it
MOST_CLASSES, MOST_EXEMPLARS = 8, 10  # whose exemplars are shown, and how many of each


def classes(comparison: Comparison) -> list:
    """A fold per recipe with the maps of its classes."""
    folds = []
    for index, group, colour in comparison:
        table, seeds = shared_class_table(group.runs)
        if table is None:
            continue
        blocks = _class_blocks([run for run in group.runs if run.seed in seeds], table)
        for run in group.runs:
            per_class = class_table(run)
            if per_class is not None and run.seed not in seeds:
                blocks.append(Fold(f"Seed {run.seed}", _class_blocks([run], per_class)))
        folds.append(Fold(group.label, blocks, colour=colour, open=index < 2))
    intro = (
        "Each row is a class, each column the accuracy on it after a step: dark where it is "
        "known, pale where it is forgotten, empty "
        "before it arrives. Classes that arrived together stand together."
    )
    return [intro, *folds] if folds else []


def _class_blocks(runs: Sequence[RunData], table: pd.DataFrame) -> list:
    seeds = ", ".join(str(run.seed) for run in runs)
    means = predicts_by_means(runs[0])
    caption = f"Accuracy in percent. {'Mean over seeds' if len(runs) > 1 else 'Seed'} {seeds}."
    caption += " By the nearest class mean, with which this method predicts." if means else ""
    lowest = table.iloc[:, -1].sort_values().head(3)
    named = ", ".join(f"{name} {value:.0%}" for (_, _, name), value in lowest.items())
    alt = f"Lowest after the last step: {named}."
    steps = [str(step + 1) for step in table.columns]
    blocks: list = [Heat(alt, caption, table, steps, "after step")]
    names = never_learned(table, chance_levels(runs[0].steps))
    if names:
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        blocks.append(
            "Never learned, as never above chance in any step: "
            f"{', '.join(names[:MOST_NAMES])}{more} ({len(names)} of {len(table)} classes)."
        )
    fell = falls(table)
    if len(fell):
        blocks.append(_fall_table(runs, table, fell, means))
    elif table.shape[1] > 1:
        blocks.append("No class is below its best accuracy.")
    return blocks + _confusion(runs, table, means)


def _fall_table(
    runs: Sequence[RunData], table: pd.DataFrame, fell: pd.DataFrame, means: bool
) -> Table:
    shares = confusion_shares(runs, int(table.columns[-1]))
    rows = []
    for _, row in fell.head(MOST_FALLS).iterrows():
        best, last, fall, rate = 100 * row[["best", "last", "fall", "fall_per_step"]]
        cells = [
            Cell(str(row["name"]), f"arrived in step {row['brought_in'] + 1}"),
            Cell(f"{rate:.1f}"),
            Cell(f"{fall:.0f}"),
            Cell(f"{best:.0f}", f"step {row['best_step'] + 1}"),
            Cell(f"{last:.0f}"),
            Cell("", line=list(table.loc[tuple(row[table.index.names])].dropna())),
        ]
        if shares is not None:
            wrong = [f"{name} ({share:.0%})" for name, share in predicted_as(shares, row["class"])]
            cells.append(Cell(", ".join(text.replace(" ", "\u00a0") for text in wrong) or "–"))
        rows.append(cells)
    head = [
        ("class", ""),
        ("per step", "points for each step since its best"),
        ("fall", "points"),
        ("best %", ""),
        ("last %", ""),
        ("course", "0 to 100 %, since it arrived"),
        ("predicted as", "share of its images, after the last step"),
    ]
    caption = (
        f"The classes that fall fastest: {len(rows)} of {len(fell)} that are below their best."
    )
    if means and shares is not None:
        caption += " What they are predicted as is by the linear head."
    return Table(head[: len(rows[0])], rows, caption, text_columns=(0, 6))


def _confusion(runs: Sequence[RunData], table: pd.DataFrame, means: bool) -> list:
    step, by_step = int(table.columns[-1]), len(table) > MOST_COLUMNS
    shares = confusion_shares(runs, step, by_step=by_step)
    if shares is None:
        return []
    names = shares.index.get_level_values("name")
    wrong = shares.mask(np.eye(len(shares), dtype=bool), 0.0).to_numpy()
    row, column = np.unravel_index(wrong.argmax(), wrong.shape)
    alt = (
        f"Most frequent confusion: {wrong[row, column]:.0%} of {names[row]} predicted as "
        f"{names[column]}."
    )
    if by_step:
        headings = [str(arrived + 1) for arrived in shares.columns]
        rows, corner = "the images of the classes of a step", "as step"
    else:
        headings = [str(index + 1) for index in range(len(names))]
        numbered = dict(zip(names, map(" ".join, zip(headings, names, strict=True)), strict=True))
        shares = shares.rename(index=numbered, level="name")
        rows, corner = "the images of a class", "predicted as"
    caption = (
        f"Confusion matrix after step {step + 1}, in percent: each row is {rows}, each column what "
        "they are predicted as; right answers are on the diagonal."
    )
    caption += " By the linear head." if means else ""
    shown = shares.where(shares > 0)  # an empty cell is easier to pass over than a 0
    return [Heat(alt, caption, shown, headings, corner)]


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


def exemplars(comparison: Comparison, pictures: PicturesOfRun | None) -> list:
    """The exemplars of some classes, as pictures or positions; a fold per recipe."""
    folds: list[Fold] = []
    for _, group, colour in comparison:
        run = next((run for run in group.runs if run.exemplars is not None), None)
        if run is not None:
            kept = _kept(run, pictures(run) if pictures else None)
            folds.append(Fold(group.label, [kept], colour=colour, open=not folds))
    return folds if len(folds) > 1 else [kept for fold in folds for kept in fold.blocks]


def _kept(run: RunData, image_at: ImageAt | None) -> Pictures:
    assert run.exemplars is not None
    last = int(run.exemplars["step"].max())
    rows = run.exemplars[run.exemplars["step"] == last].sort_values(["class", "rank"])
    positions = rows.groupby("class")["position"].apply(list)
    if run.classes is None:
        known = pd.DataFrame({"name": "", "brought_in": 0}, index=positions.index)
    else:
        known = run.classes.drop_duplicates("class").set_index("class")
    known = known.loc[positions.index].sort_values("brought_in", kind="stable")
    shown = np.linspace(0, len(known) - 1, min(MOST_CLASSES, len(known))).round().astype(int)
    some = f"; {len(shown)} of the classes, the oldest first" if len(shown) < len(known) else ""
    caption = (
        f"After step {last + 1}, seed {run.seed}: {len(rows)} exemplars of {len(known)} "
        f"classes{some}."
    )
    kept = [
        (str(name) if name else str(class_id), positions[class_id])
        for class_id, name in known["name"].fillna("").iloc[shown].items()
    ]
    exemplars_of: list[tuple[str, int, str | list[tuple[str, str]]]] = []
    for name, places in kept:
        best = places[:MOST_EXEMPLARS]
        if image_at is None:
            more = " …" if len(places) > MOST_EXEMPLARS else ""
            exemplars_of.append((name, len(places), f"{', '.join(map(str, best))}{more}"))
        else:
            images = [(f"{name}, position {at}", as_address(image_at(int(at)))) for at in best]
            exemplars_of.append((name, len(places), images))
    what = "" if image_at else " Positions in the training data."
    return Pictures(exemplars_of, f"{caption} Best first.{what}")
