"""The section on the exemplars that a run keeps."""

import numpy as np
import pandas as pd

from avalanche_hfc.report.blocks import Cell, Fold, Pictures, Table
from avalanche_hfc.report.comparisons import Comparison
from avalanche_hfc.report.pictures import ImageAt, PicturesOfRun, as_address
from avalanche_hfc.store.read import RunData

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
