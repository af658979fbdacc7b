"""The sections on the losses: whether GFC and GRD act, and every term over the epochs."""

from collections.abc import Sequence

import pandas as pd

from avalanche_hfc.report.blocks import Cell, Plot, Table, Text
from avalanche_hfc.report.comparisons import Comparison
from avalanche_hfc.report.figures import Curve, Panel
from avalanche_hfc.report.numbers import activity, loss_terms, over_epochs
from avalanche_hfc.report.sentences import verdicts
from avalanche_hfc.store.read import Group
from avalanche_hfc.store.run_folder import LOSS

PANELS = {
    "spread": ("Spread of the GFC weights", 1),
    "alone": ("Samples alone in their step, %", 100),
    "relation": ("Relation loss", 1),
}
Drawn = tuple[Group, int, str]  # a recipe, its colour and the column of train.csv


def acting(comparison: Comparison) -> list:
    """Whether GFC and GRD act: a sentence per recipe, and curves over the epochs."""
    rows, silent = [], []
    drawn: dict[str, list[Drawn]] = {quantity: [] for quantity in PANELS}
    for _, group, colour in comparison:
        trains = [run.train for run in group.runs if run.train is not None]
        means = activity(pd.concat(trains)) if trains else {}
        if means:
            sentences = verdicts(means, int(trains[0]["step"].nunique()))
            rows.append([Cell(group.label, colour=colour), Cell(" ".join(sentences))])
        elif trains:
            silent.append(group.label)
        for quantity, mean in means.items():
            drawn[quantity].append((group, colour, mean["column"]))
    if not rows:
        return []
    panels = [
        _epochs_panel(heading, drawn[quantity], scale)
        for quantity, (heading, scale) in PANELS.items()
        if drawn[quantity]
    ]
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
    head = [("recipe", ""), ("what its train.csv shows", "")]
    absent = [Text(f"Neither loss is in {', '.join(silent)}.")] if silent else []
    plot = Plot(f"acting{comparison.name}", alt, caption, panels, height=250)
    return [Table(head, rows, text_columns=(0, 1)), *absent, plot]


def losses(comparison: Comparison) -> list:
    """Every loss term over the epochs, as curves."""
    drawn: dict[str, list[Drawn]] = {}
    for _, group, colour in comparison:
        terms = [loss_terms(run.train) for run in group.runs if run.train is not None]
        for term in dict.fromkeys(term for own in terms for term in own):
            drawn.setdefault(term, []).append((group, colour, term))
    if not drawn:
        return []
    panels = [
        _epochs_panel(term.removeprefix(LOSS).replace("_", " "), own) for term, own in drawn.items()
    ]
    alt = f"Mean of each loss term over the epochs: {', '.join(panel.title for panel in panels)}."
    caption = (
        "Mean over the samples of an epoch; total is what was minimised. Fine lines: a new step "
        "begins."
    )
    if any("compensation" in term for term in drawn):
        caption += (
            " Compensation is what GFC adds to the criterion: below 0 where its weights are "
            "below 1."
        )
    return [Plot(f"losses{comparison.name}", alt, caption, panels, height=230)]


def _epochs_panel(heading: str, drawn: Sequence[Drawn], scale: int = 1) -> Panel:
    """Epochs one after the other through all steps; told by steps where these begin at the same
    epoch for all curves.
    """
    curves, steps = [], []
    for group, colour, column in drawn:
        points = over_epochs(group.runs, column)
        points.index = points.index + 1
        rows = points.reset_index().groupby("step")["row"]
        steps.append(tuple(zip(rows.min(), rows.max(), rows.min().index, strict=True)))
        curves.append(Curve(group.label, points[["mean", "std"]] * scale, colour))
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
