"""The sections on how it was trained: whether the losses act, their course, the exemplars, recipe
and versions.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from avalanche_hfc.report.blocks import Cell, Fold, Pictures, Plot, Section, Table, Text
from avalanche_hfc.report.figures import Curve, Panel
from avalanche_hfc.report.numbers import activity, loss_terms, over_epochs
from avalanche_hfc.report.pictures import ImageAt, PicturesOfRun, as_address
from avalanche_hfc.report.sentences import plain, verdicts
from avalanche_hfc.store.read import Group, RunData
from avalanche_hfc.store.run_folder import LOSS, settings

PANELS = {
    "spread": ("Spread of the GFC weights", 1),
    "alone": ("Samples alone in their step, %", 100),
    "relation": ("Relation loss", 1),
}
MOST_CLASSES, MOST_EXEMPLARS = 8, 10


def acting(groups: Sequence[Group]) -> Section | None:
    said, found = [], {}
    for place, group in enumerate(groups):
        trains = [run.train for run in group.runs if run.train is not None]
        own = activity(pd.concat(trains)) if trains else {}
        if own:
            found[place] = own
            said.append(
                [
                    Cell(group.label, colour=place),
                    Cell(" ".join(verdicts(own, int(trains[0]["step"].nunique())))),
                ]
            )
    if not found:
        return None
    panels = []
    for word, (heading, scale) in PANELS.items():
        columns = {place: own[word]["column"] for place, own in found.items() if word in own}
        if columns:
            panels.append(_epochs_panel(heading, groups, columns, scale))
    silent = [
        group.label
        for place, group in enumerate(groups)
        if place not in found and any(run.train is not None for run in group.runs)
    ]
    notes = [Text(f"Neither loss is in {', '.join(silent)}.")] if silent else []
    caption = (
        "GFC multiplies the loss of each sample by a weight with mean 1 inside a step; spread is "
        "the weights' standard deviation over an "
        "epoch, 0 means plain cross-entropy. A sample that is the only one of its step in a "
        "batch has weight 1. The relation loss is GRD's."
    )
    alt = (
        "Over the epochs: "
        + ", ".join(panel.title for panel in panels)
        + ". The means are in the table above."
    )
    table = Table([("recipe", ""), ("what its train.csv shows", "")], said, words=(0, 1))
    return Section(
        "acting",
        "Whether GFC and GRD act",
        [table, *notes, Plot("acting", alt, caption, panels, height=250)],
        "GFC and GRD",
    )


def losses(groups: Sequence[Group]) -> Section | None:
    columns: dict[str, dict[int, str]] = {}
    for place, group in enumerate(groups):
        for run in group.runs:
            for term in loss_terms(run.train) if run.train is not None else ():
                columns.setdefault(term, {})[place] = term
    if not columns:
        return None
    panels = [
        _epochs_panel(term.removeprefix(LOSS).replace("_", " "), groups, own)
        for term, own in columns.items()
    ]
    alt = f"Mean of each loss term over the epochs: {', '.join(panel.title for panel in panels)}."
    caption = (
        "Mean over the samples of an epoch; total is what was minimised. Fine lines: a new step "
        "begins."
    )
    if any("compensation" in term for term in columns):
        caption += (
            " Compensation is what GFC adds to the criterion: below 0 where its weights are "
            "below 1."
        )
    return Section(
        "losses",
        "Loss terms over the epochs",
        [Plot("losses", alt, caption, panels, height=230)],
        "Losses",
    )


def _epochs_panel(
    heading: str, groups: Sequence[Group], columns: dict[int, str], scale: int = 1
) -> Panel:
    """Epochs one after the other through all steps; told by steps where these begin at the same
    epoch for all curves.
    """
    curves, steps = [], []
    for place, column in columns.items():
        points = over_epochs(groups[place].runs, column)
        points.index = points.index + 1
        rows = points.reset_index().groupby("step")["row"]
        steps.append(tuple(zip(rows.min(), rows.max(), rows.min().index, strict=True)))
        curves.append(Curve(groups[place].label, points[["mean", "std"]] * scale, place))
    span = (1, max(own[-1][1] for own in steps))
    if len(set(steps)) > 1 or len(steps[0]) > 25:
        return Panel(heading, curves, "epoch, counted through all steps", span=span)
    every = -(-len(steps[0]) // 10)
    ticks = [((first + last) / 2, str(step + 1)) for first, last, step in steps[0]][::every]
    return Panel(
        heading,
        curves,
        "step; a point is an epoch",
        ticks,
        [first - 0.5 for first, _, _ in steps[0][1:]],
        span,
    )


def exemplars(groups: Sequence[Group], pictures: PicturesOfRun | None) -> Section | None:
    found = [
        (group, next((run for run in group.runs if run.exemplars is not None), None))
        for group in groups
    ]
    with_them = [(group, run) for group, run in found if run is not None]
    if not with_them:
        return None
    blocks: list = [
        _kept(run, run.exemplars, pictures(run) if pictures else None) for _, run in with_them
    ]
    if len(with_them) > 1:
        labelled = enumerate(zip(with_them, blocks, strict=True))
        blocks = [
            Fold(group.label, [block], colour=groups.index(group), open=place == 0)
            for place, ((group, _), block) in labelled
        ]
    return Section("exemplars", "Exemplars", blocks)


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
    return Table(head, cells, caption, words=(0, 1))


def recipe(groups: Sequence[Group]) -> Section:
    values = [settings(group.recipe) for group in groups]
    names = list(dict.fromkeys(name for own in values for name in own if name != "name"))
    sources: dict[str, str] = {}
    for group in groups:
        sources = {**dict(group.recipe.get("sources") or {}), **sources}
    differing = {
        name
        for name in names
        if len({plain(own[name]) if name in own else None for own in values}) > 1
    }

    def lines(chosen: list[str]) -> Table:
        source = [("source", "")] if any(name in sources for name in chosen) else []
        rows = [
            [
                Cell(name, strong=name in differing),
                *(Cell(plain(own[name]) if name in own else "–") for own in values),
                *([Cell(str(sources.get(name, "")))] if source else []),
            ]
            for name in chosen
        ]
        return Table(
            [("value", ""), *((group.label, "") for group in groups), *source],
            rows,
            words=range(2 + len(groups)),
        )

    blocks: list = []
    if differing:
        blocks = [
            Text("Where the recipes differ:"),
            lines([name for name in names if name in differing]),
        ]
    blocks.append(
        Fold(
            "Every value of the recipe" if len(groups) == 1 else "Every value of the recipes",
            [lines(names)],
            open=not differing,
        )
    )
    return Section(
        "recipe",
        "Recipe and versions",
        [*blocks, Fold("Versions, machine, folders", [_origins(groups)], open=True)],
        "Recipe",
    )


def _origins(groups: Sequence[Group]) -> Table:
    runs = [run for group in groups for run in (*group.runs, *group.unfinished)]
    packages = list(dict.fromkeys(name for run in runs for name in run.versions))
    rows = [
        [
            Cell(name),
            Cell(", ".join(dict.fromkeys(str(run.versions.get(name, "–")) for run in runs))),
        ]
        for name in packages
    ]
    rows.append(
        [
            Cell("machine"),
            Cell(", ".join(dict.fromkeys(run.machine for run in runs if run.machine)) or "–"),
        ]
    )
    for group in groups:
        own = (*group.runs, *group.unfinished)
        rows.append(
            [Cell(f"seeds of {group.label}"), Cell(", ".join(str(run.seed) for run in own))]
        )
    return Table([("of", ""), ("value", "")], rows, words=(0, 1))
