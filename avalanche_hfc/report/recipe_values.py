"""The section on what was trained: values of the recipes, versions, machines, dates."""

from collections.abc import Sequence

import pandas as pd

from avalanche_hfc.lab.read import Group
from avalanche_hfc.lab.run_folder import LOSS, settings
from avalanche_hfc.report.blocks import Cell, Fold, Plot, Table, Text
from avalanche_hfc.report.comparisons import Comparison, plain, verdicts
from avalanche_hfc.report.figures import Curve, Panel
from avalanche_hfc.report.numbers import activity, loss_terms, over_epochs


def recipe_values(comparison: Comparison) -> list:
    """The values that differ, a column per recipe; those that all share, once."""
    groups = comparison.groups
    values = [settings(group.recipe) for group in groups]
    names = list(dict.fromkeys(name for own in values for name in own if name != "name"))
    shown = {name: [plain(own[name]) if name in own else "–" for own in values] for name in names}
    sources: dict[str, str] = {}
    for group in groups:
        sources = {**dict(group.recipe.get("sources") or {}), **sources}
    differing = [name for name in names if len(set(shown[name])) > 1]
    shared = [name for name in names if name not in differing]
    blocks: list = []
    if differing:
        cells = {name: shown[name] for name in differing}
        blocks = [
            Text("Where the recipes differ:"),
            _values([group.label for group in groups], cells, sources, comparison.colours),
        ]
    title = "Every value of the recipe" if len(groups) == 1 else "Values that all recipes share"
    once = {name: shown[name][:1] for name in shared}
    return [*blocks, Fold(title, [_values(["value"], once, sources, [None])], open=not differing)]


def _values(
    headings: Sequence[str],
    cells: dict[str, list[str]],
    sources: dict[str, str],
    colours: Sequence[int | None],
) -> Table:
    with_sources = any(name in sources for name in cells)
    rows = [
        [Cell(name), *map(Cell, own), *([Cell(str(sources.get(name, "")))] * with_sources)]
        for name, own in cells.items()
    ]
    head = [("setting", ""), *((text, "") for text in headings)]
    head += [("source", "")] * with_sources
    return Table(
        head, rows, text_columns=range(len(head)), colours=(None, *colours, *[None] * with_sources)
    )


def origins(comparisons: Sequence[Comparison]) -> Fold:
    """Versions, machines, dates and folders of all runs."""
    groups = [group for comparison in comparisons for group in comparison.groups]
    runs = [run for group in groups for run in (*group.runs, *group.unfinished)]
    packages = list(dict.fromkeys(name for run in runs for name in run.versions))
    rows = [
        [
            Cell(name),
            Cell(", ".join(dict.fromkeys(str(run.versions.get(name, "–")) for run in runs))),
        ]
        for name in packages
    ]
    machines = dict.fromkeys(run.machine for run in runs if run.machine)
    rows.append([Cell("machine"), Cell("; ".join(machines) or "–")])
    for run in runs:
        finished = f"finished {run.finished_at}" if run.finished_at else "not finished"
        rows.append(
            [Cell(str(run.path)), Cell(f"{run.recipe['name']}, seed {run.seed}, {finished}")]
        )
    table = Table([("of", ""), ("value", "")], rows, text_columns=(0, 1))
    return Fold("Versions, machine, dates, folders", [table])


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
