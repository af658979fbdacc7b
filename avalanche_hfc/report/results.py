"""The sections on what was learned and forgotten: results, accuracy per step, evenness."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from avalanche_hfc.lab.read import Group
from avalanche_hfc.report.blocks import Cell, Fold, Plot, Table, Text
from avalanche_hfc.report.comparisons import (
    DEFINITIONS,
    Comparison,
    duration,
    folders_learned,
    paper_keys,
    ranking_measure,
)
from avalanche_hfc.report.figures import Curve, Panel
from avalanche_hfc.report.numbers import (
    HIGHEST_IS_BEST,
    UNITS,
    Best,
    best_of,
    chance_levels,
    learned_step,
    measures,
    over_seeds,
    per_step,
)
from avalanche_hfc.report.tables import compare, number, spread


def paper_numbers(groups: Sequence[Group], paper: pd.DataFrame) -> dict[tuple[int, str], pd.Series]:
    """(index of the recipe, column of the paper's) -> the comparison, for the numbers that the
    paper has.
    """
    numbers: dict[tuple[int, str], pd.Series] = {}
    for index, group in enumerate(groups):
        keys = paper_keys(group.recipe)
        if keys is None:
            continue
        rows = []
        for run in group.runs:
            values = {
                name: value * UNITS[name]
                for name, value in measures(run.steps).items()
                if name in ("average", "last", "fh")
            }
            values |= {
                f"step {step + 1}": 100 * value
                for step, value in zip(run.steps["step"], run.steps["accuracy"], strict=True)
            }
            rows += [{**keys, "column": column, "value": value} for column, value in values.items()]
        both = compare(pd.DataFrame(rows), paper)
        both = both[both["paper"].notna() & (both["num_seeds"] > 0)]
        numbers |= {(index, str(row["column"])): row for _, row in both.iterrows()}
    return numbers


def results(comparison: Comparison) -> list:
    """A sentence and a table: a row per recipe, best first, every number under its definition."""
    numbers = [over_seeds(group) for group in comparison.groups]
    shown = [name for name in UNITS if any(not np.isnan(own.loc[name, "mean"]) for own in numbers)]
    complete = [
        own
        for own, group in zip(numbers, comparison.groups, strict=True)
        if group.last_step + 1 == comparison.num_steps
    ]  # they come first, so that an index counts in both
    best = {name: best_of(complete, name) for name in shown if name in HIGHEST_IS_BEST}
    rows = []
    for index, group, colour in comparison:
        steps = group.last_step + 1
        short = "" if steps == comparison.num_steps else f"{steps} of {comparison.num_steps} steps"
        cells = [
            _result(
                name, numbers[index], best.get(name), index, comparison.paper.get((index, name))
            )
            for name in shown
        ]
        rows.append([Cell(group.label, short, colour), *cells, Cell(str(len(group.runs)))])
    head = [("recipe", ""), *(DEFINITIONS[name] for name in shown), ("seeds", "")]
    sentence = _in_a_sentence(comparison, numbers, complete, best)
    table = Table(head, rows, _caption(comparison, shown, any(best.values())))
    return [Text(sentence), table, *_learned_later(comparison)]


def _result(
    name: str, own: pd.DataFrame, best: Best | None, index: int, printed: pd.Series | None
) -> Cell:
    mean, std = own.loc[name, "mean"] * UNITS[name], own.loc[name, "std"] * UNITS[name]
    is_best = best is not None and best.first == index
    below = []
    if best is not None and is_best:
        below.append(f"best by {number(best.margin * UNITS[name])}, {_beside_spread(best)}")
    if printed is not None:
        gap = number(printed["gap"], signed=True)
        below.append(f"paper {number(printed['paper'])}, gap {gap}")
    text = duration(mean) if name == "seconds" else spread(mean, std)
    return Cell(text, "; ".join(below), best=is_best)


def _beside_spread(best: Best) -> str:
    if np.isnan(best.spread):
        return "spread unknown"
    return "more than the spread" if best.margin > best.spread else "within the spread"


def _caption(comparison: Comparison, shown: Sequence[str], with_best: bool) -> str:
    chance = 100 * chance_levels(_longest(comparison).runs[0].steps)
    sentences = []
    if max(len(group.runs) for group in comparison.groups) > 1:
        sentences.append("Mean ± standard deviation over seeds.")
    if with_best:
        sentences.append(
            "Spread: the larger standard deviation of the best and the second; unknown with one "
            "seed."
        )
    guessed = [f"average {number(chance.mean())} %"] if "average" in shown else []
    guessed.append(f"last {number(chance.iloc[-1])} %")
    sentences.append(f"Chance level, guessing among the classes seen: {', '.join(guessed)}.")
    if comparison.paper:
        sentences.append("Gap: ours − paper.")
    marks: dict[str, list[str]] = {}
    for (index, name), row in comparison.paper.items():
        if row["mark"] and name in shown:
            marks.setdefault(row["mark"], []).append(f"{name} of {comparison.groups[index].label}")
    sentences += [f"Of the paper's {', '.join(where)}: {mark}." for mark, where in marks.items()]
    return " ".join(sentences)


def _longest(comparison: Comparison) -> Group:
    return max(comparison.groups, key=lambda group: len(group.runs[0].steps))


def _in_a_sentence(
    comparison: Comparison,
    numbers: Sequence[pd.DataFrame],
    complete: Sequence[pd.DataFrame],
    best: dict[str, Best | None],
) -> str:
    groups = comparison.groups
    if len(complete) == 1:
        average, last = (100 * numbers[0].loc[name, "mean"] for name in ("average", "last"))
        classes = int(groups[0].runs[0].steps["classes"].max())
        of_which = f" by {groups[0].label}" if len(groups) > 1 else ""
        sentence = (
            f"After the last step {number(last)} % of the test images of all {classes} classes "
            f"are recognised{of_which}."
        )
        over_steps = f" Over the steps the average is {number(average)} %."
        return sentence if np.isnan(average) else sentence + over_steps
    measure = ranking_measure([own["mean"] for own in complete])
    words = {"average": "average over the steps", "last": "last accuracy"}[measure]
    value = number(100 * complete[0].loc[measure, "mean"])
    top = best[measure]
    if top is None:
        return f"Highest {words}: {value} %, shared by several recipes."
    margin, deviation = (number(100 * size) for size in (top.margin, top.spread))
    extent = {
        "spread unknown": "one seed cannot tell whether that is chance",
        "more than the spread": f"more than the spread of the seeds, {deviation}",
        "within the spread": f"within the spread of the seeds, {deviation}",
    }[_beside_spread(top)]
    return (
        f"Highest {words}: {groups[top.first].label} with {value} %, {margin} points above "
        f"{groups[top.second].label}; {extent}."
    )


def _learned_later(comparison: Comparison) -> list:
    """A table of the folders that were learned after the recipe's steps, one row for each."""
    rows = []
    for _, group, colour in comparison:
        folders = folders_learned(group.recipe)
        first = group.last_step + 1 - len(folders)
        for step, folder in enumerate(folders, start=first):
            steps = [learned_step(run, step) for run in group.runs]
            known = pd.DataFrame([own for own in steps if own is not None])
            if step < 1 or known.empty:
                continue
            means, stds = 100 * known.mean(), 100 * known.std()
            shown = [
                Cell(spread(means[name], stds[name])) for name in ("old_before", "old_after", "new")
            ]
            rows.append(
                [
                    Cell(folder, f"step {step + 1} of {group.label}", colour),
                    Cell(str(int(known["num_new"].iloc[0]))),
                    *shown,
                ]
            )
    head = [
        ("learned later", ""),
        ("new classes", ""),
        ("old classes before %", ""),
        ("old classes after %", ""),
        ("new classes %", "after the step"),
    ]
    return [Table(head, rows, "Accuracy before and after each folder was learned.")] if rows else []


class StepAxis:
    """What a figure of steps has as x: the step, with the classes seen below."""

    def __init__(self, groups: Sequence[Group]):
        rows = pd.concat([group.runs[0].steps[["step", "classes"]] for group in groups]).astype(int)
        self.classes = rows.drop_duplicates("step").set_index("step")["classes"].sort_index()
        steps = [int(step) for step in self.classes.index]
        self.span = (steps[0], steps[-1])
        every = -(-len(steps) // 12)
        shown = [step for step in steps if step == steps[0] or (step + 1) % every == 0]
        self.ticks = [(step, f"{step + 1}\n{self.classes[step]}") for step in shown]
        learned = [len(folders_learned(group.recipe)) for group in groups]
        self.starts = [steps[-1] + 0.5 - count for count in range(max(learned), 0, -1)]

    def curve(self, group: Group, column: str, scale: int, colour: int) -> Curve | None:
        """Mean and deviation over seeds, those of unfinished runs as far as they go; None where no
        run has the column.
        """
        points = per_step([*group.runs, *group.unfinished], column)[["mean", "std"]] * scale
        return Curve(group.label, points, colour) if len(points) else None

    def chance(self) -> Curve:
        points = chance_levels(self.classes.reset_index())
        return Curve("chance", pd.DataFrame({"mean": 100 * points, "std": np.nan}), None)

    def panel(self, title: str, curves: Sequence[Curve], top: int | None = None) -> Panel:
        label = "step, and classes seen"
        return Panel(title, curves, label, self.ticks, self.starts, self.span, (0, top))


def accuracy(comparison: Comparison) -> list:
    """Accuracy after each step, as curves and as numbers."""
    axis, curves = StepAxis(comparison.groups), []
    head, columns = [("step", "")], []
    colours: list[int | None] = [None]
    steps = [int(step) for step in axis.classes.index]
    for index, group, colour in comparison:
        points = per_step([*group.runs, *group.unfinished], "accuracy") * 100
        curves.append(axis.curve(group, "accuracy", 100, colour))
        means, stds = points["mean"].reindex(steps), points["std"].reindex(steps)
        head.append((group.label, ""))
        colours.append(colour)
        columns.append([spread(*pair) for pair in zip(means, stds, strict=True)])
        printed = {
            step: comparison.paper[index, f"step {step + 1}"]["paper"]
            for step in steps
            if (index, f"step {step + 1}") in comparison.paper
        }
        if printed:
            points = pd.DataFrame({"mean": printed, "std": np.nan})
            curves.append(Curve("the paper's", points, colour, paper=True))
            head.append((f"{group.label}, paper", ""))
            colours.append(None)
            columns.append([number(printed.get(step, np.nan)) for step in steps])
    shown = [curve for curve in curves if curve is not None]
    ends = "; ".join(
        f"{curve.label} from {curve.points['mean'].iloc[0]:.0f} to "
        f"{curve.points['mean'].iloc[-1]:.0f} %"
        for curve in shown
    )
    several = any(len(group.runs) + len(group.unfinished) > 1 for group in comparison.groups)
    caption = "Chance: guessing among the classes seen." + (
        " A band is ± one standard deviation over seeds." if several else ""
    )
    caption += " Fine lines: a folder is learned later." if axis.starts else ""
    panel = axis.panel("Accuracy on all classes seen by then, %", [*shown, axis.chance()], 100)
    alt = f"Accuracy after each step: {ends}."
    plot = Plot(f"accuracy{comparison.name}", alt, caption, [panel], height=360)
    rows = [
        [Cell(str(step + 1), f"{axis.classes[step]} classes"), *map(Cell, cells)]
        for step, *cells in zip(steps, *columns, strict=True)
    ]
    about = "Percent of the test images of all classes seen by then."
    return [plot, Fold("The same as numbers", [Table(head, rows, about, colours=colours)])]


def evenness(comparison: Comparison) -> list:
    """Forgetting and its heterogeneity after each step, as curves."""
    axis = StepAxis(comparison.groups)
    headings = {
        "fh": "Forgetting heterogeneity (FH × 1000)",
        "forgetting": "Forgetting, percentage points",
    }
    panels = []
    for column, heading in headings.items():
        measured = [
            axis.curve(group, column, UNITS[column], colour) for _, group, colour in comparison
        ]
        curves = [curve for curve in measured if curve is not None]
        if curves:
            panels.append(axis.panel(heading, curves))
    if not panels:
        return []
    ends = [
        f"{curve.label} {panel.title} {curve.points['mean'].iloc[-1]:.1f}"
        for panel in panels
        for curve in panel.curves
    ]
    caption = (
        "FH: the variance of 1 − p(true class) among the test images of classes that arrived "
        "together. It is low where all of them are "
        "forgotten alike. Forgetting: best earlier accuracy − accuracy now, mean over the "
        "classes of earlier steps; none after step 1."
    )
    alt = f"After the last step: {'; '.join(ends)}."
    return [Plot(f"evenness{comparison.name}", alt, caption, panels, height=290)]
