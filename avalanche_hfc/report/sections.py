"""The sections on what was learned and forgotten: results, accuracy per step, evenness, classes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from avalanche_hfc.report.blocks import Cell, Fold, Heat, Plot, Section, Table, Text
from avalanche_hfc.report.figures import Curve, Panel
from avalanche_hfc.report.numbers import (
    UNITS,
    class_table,
    falls,
    measures,
    over_seeds,
    per_step,
    predicted_as,
    predicts_by_means,
    shared_class_table,
)
from avalanche_hfc.report.sentences import DEFINITIONS, duration, paper_keys
from avalanche_hfc.report.tables import compare, number, spread
from avalanche_hfc.store.read import Group, RunData

MOST_FALLS = 10
MOST_COLUMNS = 4  # recipes side by side


def comparison(
    groups: Sequence[Group], paper: pd.DataFrame | None
) -> dict[tuple[int, str], pd.Series]:
    """(place of the recipe, column of the paper's) -> the comparison, for the numbers that the
    paper has.
    """
    found: dict[tuple[int, str], pd.Series] = {}
    for place, group in enumerate(groups):
        keys = paper_keys(group.recipe)
        if keys is None or paper is None:
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
        found |= {(place, str(row["column"])): row for _, row in both.iterrows()}
    return found


def results(groups: Sequence[Group], beside: dict[tuple[int, str], pd.Series]) -> Section:
    """Every number with its definition beside it: a line per measure, or, with many recipes, a line
    per recipe.
    """
    numbers = [over_seeds(group) for group in groups]
    shown = [name for name in UNITS if any(not np.isnan(own.loc[name, "mean"]) for own in numbers)]
    seeds = [Cell(str(len(group.runs))) for group in groups]
    columns = [
        [_result(name, own, beside.get((place, name))) for name in shown]
        for place, own in enumerate(numbers)
    ]
    caption = (
        "Mean ± standard deviation over seeds. "
        if max(len(group.runs) for group in groups) > 1
        else ""
    )
    caption += "Gap: ours − paper. " if beside else ""
    marks = [
        f"Of the paper's {name} of {groups[place].label}: {row['mark']}."
        for (place, name), row in beside.items()
        if row["mark"] and name in shown
    ]
    caption = " ".join([caption.strip(), *marks]).strip()
    said = Text(_in_a_sentence(groups, numbers))
    if len(groups) <= MOST_COLUMNS:
        rows = [
            [Cell(*DEFINITIONS[name]), *(column[line] for column in columns)]
            for line, name in enumerate(shown)
        ]
        rows.append([Cell("seeds", "finished runs"), *seeds])
        head = [("", ""), *((group.label, "") for group in groups)]
        return Section(
            "results",
            "Results",
            [said, Table(head, rows, caption, colours=(None, *range(len(groups))))],
        )
    rows = [
        [Cell(group.label, colour=place), seeds[place], *columns[place]]
        for place, group in enumerate(groups)
    ]
    head = [("recipe", ""), ("seeds", ""), *((DEFINITIONS[name][0], "") for name in shown)]
    meanings = Table(
        [("number", ""), ("is", "")],
        [[Cell(text) for text in DEFINITIONS[name]] for name in shown],
        words=(0, 1),
    )
    return Section("results", "Results", [said, Table(head, rows, caption), meanings])


def _result(name: str, own: pd.DataFrame, row: pd.Series | None) -> Cell:
    mean, std = own.loc[name, "mean"] * UNITS[name], own.loc[name, "std"] * UNITS[name]
    note = (
        ""
        if row is None
        else f"paper {number(row['paper'])}, gap {number(row['gap'], signed=True)}"
    )
    return Cell(
        duration(mean) if name == "seconds" else spread(mean, std),
        note,
        strong=name in ("average", "last"),
    )


def _in_a_sentence(groups: Sequence[Group], numbers: list[pd.DataFrame]) -> str:
    classes = int(groups[0].runs[0].steps["classes"].max())
    alike = len({group.last_step for group in groups}) == 1 and all(
        own.loc["average"].notna()["mean"] for own in numbers
    )
    measure, over = ("average", "average over the steps") if alike else ("last", "last accuracy")
    if len(groups) == 1:
        average, last = (100 * numbers[0].loc[name, "mean"] for name in ("average", "last"))
        said = (
            f"After the last step {number(last)} % of the test images of all {classes} classes "
            "are recognised."
        )
        return (
            said
            if np.isnan(average)
            else f"{said} Over the steps the average is {number(average)} %."
        )
    order = sorted(range(len(groups)), key=lambda place: -numbers[place].loc[measure, "mean"])
    best, second = (100 * numbers[place].loc[measure, "mean"] for place in order[:2])
    ahead = f"{number(best - second)} points above {groups[order[1]].label}"
    return f"Highest {over}: {groups[order[0]].label} with {number(best)} %, {ahead}."


class StepAxis:
    """What a figure of steps has as x: the step, with the classes seen below; the classes where
    recipes differ in these.
    """

    def __init__(self, groups: Sequence[Group]):
        rows = pd.concat([group.runs[0].steps[["step", "classes"]] for group in groups]).astype(int)
        pairs = {(step, classes) for step, classes in rows.itertuples(index=False)}
        seen = dict(sorted(pairs))
        self.by_step = len(seen) == len(pairs)
        places = list(seen) if self.by_step else sorted({classes for _, classes in pairs})
        self.span = (places[0], places[-1])
        self.label = "step, and classes seen" if self.by_step else "classes seen"
        every = -(-len(places) // 12)
        shown = (
            [step for place, step in enumerate(places) if not place or (step + 1) % every == 0]
            if self.by_step
            else places[::every]
        )
        self.ticks = [
            (place, f"{place + 1}\n{seen[place]}" if self.by_step else str(place))
            for place in shown
        ]

    def curve(self, group: Group, column: str, scale: int, place: int) -> Curve | None:
        """Mean and deviation over seeds, those of unfinished runs as far as they go; None where no
        run has the column.
        """
        points = per_step([*group.runs, *group.unfinished], column)[["mean", "std"]] * scale
        if not self.by_step:
            points.index = points.index.map(group.runs[0].steps.set_index("step")["classes"])
        return Curve(group.label, points, place) if len(points) else None

    def panel(self, title: str, curves: Sequence[Curve], top: int | None = None) -> Panel:
        return Panel(title, curves, self.label, self.ticks, span=self.span, limits=(0, top))


def accuracy(groups: Sequence[Group], beside: dict[tuple[int, str], pd.Series]) -> Section:
    axis, curves, rows = StepAxis(groups), [], []
    steps = sorted({int(step) for group in groups for step in group.runs[0].steps["step"]})
    for place, group in enumerate(groups):
        points = per_step([*group.runs, *group.unfinished], "accuracy") * 100
        curves.append(axis.curve(group, "accuracy", 100, place))
        ours = [
            spread(points["mean"].get(step, np.nan), points["std"].get(step, np.nan))
            for step in steps
        ]
        rows.append([Cell(group.label, colour=place), *map(Cell, ours)])
        printed = {
            step: beside[place, f"step {step + 1}"]["paper"]
            for step in steps
            if (place, f"step {step + 1}") in beside
        }
        if printed:
            seen = group.runs[0].steps.set_index("step")["classes"]
            at = {
                step if axis.by_step else int(seen[step]): value for step, value in printed.items()
            }
            curves.append(
                Curve("the paper's", pd.DataFrame({"mean": at, "std": np.nan}), place, paper=True)
            )
            rows.append(
                [
                    Cell(f"{group.label}, paper"),
                    *(Cell(number(printed.get(step, np.nan))) for step in steps),
                ]
            )
    several = any(len(group.runs) + len(group.unfinished) > 1 for group in groups)
    shown = [curve for curve in curves if curve is not None]
    alt = "; ".join(
        f"{curve.label} from {curve.points['mean'].iloc[0]:.0f} to "
        f"{curve.points['mean'].iloc[-1]:.0f} %"
        for curve in shown
    )
    caption = "A band is ± one standard deviation over seeds." if several else ""
    panel = axis.panel("Accuracy on all classes seen by then, %", shown, 100)
    plot = Plot("accuracy", f"Accuracy after each step: {alt}.", caption, [panel], height=360)
    head = [("recipe", ""), *((f"step {step + 1}", "") for step in steps)]
    table = Table(head, rows, "Percent of the test images of all classes seen by then.")
    return Section(
        "accuracy",
        "Accuracy after each step",
        [plot, Fold("The same as numbers", [table])],
        "Accuracy per step",
    )


def evenness(groups: Sequence[Group]) -> Section | None:
    axis = StepAxis(groups)
    kinds = {
        "fh": "Forgetting heterogeneity (FH × 1000)",
        "forgetting": "Forgetting, percentage points",
    }
    panels = []
    for column, heading in kinds.items():
        found = [
            axis.curve(group, column, UNITS[column], place) for place, group in enumerate(groups)
        ]
        curves = [curve for curve in found if curve is not None]
        if curves:
            panels.append(axis.panel(heading, curves))
    if not panels:
        return None
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
    plot = Plot("evenness", f"After the last step: {'; '.join(ends)}.", caption, panels, height=290)
    return Section("evenness", "How much is forgotten, and how evenly", [plot], "Forgetting")


def classes(groups: Sequence[Group]) -> Section | None:
    folds = []
    for place, group in enumerate(groups):
        table, seeds = shared_class_table(group.runs)
        if table is None:
            continue
        blocks = _class_blocks(group.runs, table, seeds, f"classes-{place}")
        for run in group.runs:
            own = class_table(run)
            if own is not None and run.seed not in seeds:
                blocks.append(
                    Fold(
                        f"Seed {run.seed}",
                        _class_blocks([run], own, [run.seed], f"classes-{place}-{run.seed}"),
                    )
                )
        folds.append(Fold(group.label, blocks, colour=place, open=place < 2))
    intro = Text(
        "Each row is a class, each column the accuracy on it after a step: dark where it is "
        "known, pale where it is forgotten, empty "
        "before it arrives. Classes that arrived together stand together."
    )
    return (
        Section("classes", "Which classes are forgotten, and when", [intro, *folds], "Classes")
        if folds
        else None
    )


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
    fell = falls(table)
    lowest = table.iloc[:, -1].sort_values().head(3)
    alt = "Lowest after the last step: " + ", ".join(
        f"{key[2]} {value:.0%}" for key, value in lowest.items()
    )
    blocks: list = [Heat(name, alt + ".", caption, table)]
    if len(fell):
        blocks.append(_fall_table(runs, table, fell, means))
    elif table.shape[1] > 1:
        blocks.append(Text("No class is below its best accuracy."))
    return blocks


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
    return Table(head, rows, caption, words=(0, 6))
