"""The report: its sections, from the rows of runs to text, tables and curves."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from avalanche_hfc._names import counted
from avalanche_hfc.lab import TABLES, TableCell
from avalanche_hfc.lab.read import Group, read_runs, shared_name
from avalanche_hfc.lab.run_folder import LOSS, settings
from avalanche_hfc.report.classes import PicturesOfRun, classes, exemplars
from avalanche_hfc.report.figures import Curve, Panel
from avalanche_hfc.report.numbers import (
    HIGHEST_IS_BEST,
    UNITS,
    Best,
    Comparison,
    best_of,
    chance_levels,
    comparisons_of,
    folders_learned,
    learned_step,
    over_epochs,
    over_seeds,
    per_step,
    ranking_measure,
    shared_class_table,
    training_columns,
)
from avalanche_hfc.report.page import Cell, Fold, Heading, Plot, Report, Section, Table, write_page
from avalanche_hfc.report.tables import compare, measured, number, read_paper, spread, steps_of

DEFINITIONS = {
    "average": ("average %", "mean over all steps of the accuracy on the classes seen by then"),
    "last": ("last %", "accuracy on all classes after the last step"),
    "last_nme": (
        "last by nearest mean %",
        "the same, where an image gets the class whose mean feature is nearest",
    ),
    "forgetting": (
        "forgetting, points",
        "best earlier accuracy of a class − its last, mean over the classes of earlier steps",
    ),
    "fh": (
        "FH × 1000",
        "variance of 1 − p(true class) among the images of one step's classes, mean over the "
        "steps; low is even",
    ),
    "seconds": ("training", "time of all steps of a run, evaluation apart"),
}
PAPER_CELLS = {
    entry.recipe: entry.cell for scales in TABLES.values() for entry in scales.get("paper", ())
}


def write_report(
    folders: Iterable[Path | str],
    out: Path | str,
    *,
    paper: pd.DataFrame | Path | str | None = None,
    pictures: PicturesOfRun | None = None,
) -> Path:
    """Write a report on runs, as a single HTML page.

    Args:
        folders: Run folders, or folders that contain run folders.
        out: The folder for report.html; it is created if necessary.
        paper: Published numbers to compare with, as rows for `compare` or as a CSV file with such
            rows. By default there is no comparison.
        pictures: Shows exemplars as images: `pictures_of_recipe()`, or a function from a run to a
            return value of `pictures_of`. By default exemplars are listed by position.

    Returns:
        The path of report.html.

    Raises:
        FileNotFoundError: If a folder or the CSV file does not exist.
        ValueError: If a folder contains no run, or its files cannot be read.
    """
    return write_page(make_report(folders, paper=paper, pictures=pictures), out)


def make_report(
    folders: Iterable[Path | str],
    *,
    paper: pd.DataFrame | Path | str | None = None,
    pictures: PicturesOfRun | None = None,
    summary: Callable[[Comparison], list] | None = None,
) -> Report:
    """What a report shows. `summary` makes the blocks of its first section, `results` if None."""
    rows = read_paper(Path(paper)) if isinstance(paper, str | Path) else paper
    paths = [Path(folder) for folder in folders]
    runs, waiting = read_runs(paths)
    comparisons = comparisons_of(runs)
    if rows is not None:
        comparisons = [
            replace(comparison, paper=paper_numbers(comparison.groups, rows))
            for comparison in comparisons
        ]
    sections = []
    for name, title, short, blocks_of in (
        ("results", "Results", "", summary or results),
        ("accuracy", "Accuracy after each step", "Accuracy per step", accuracy),
        ("evenness", "How much is forgotten, and how evenly", "Forgetting", evenness),
        ("classes", "Which classes are forgotten, and when", "Classes", classes),
        ("acting", "Whether GFC and GRD act", "GFC and GRD", acting),
        ("losses", "Loss terms over the epochs", "Losses", losses),
        ("exemplars", "Exemplars", "", partial(exemplars, pictures=pictures)),
        ("recipe", "Recipe and versions", "Recipe", recipe_values),
    ):
        blocks: list = []
        for comparison in comparisons:
            of_comparison = blocks_of(comparison)
            if of_comparison and len(comparisons) > 1:
                blocks.append(Heading(comparison.title))
            blocks += of_comparison
        if blocks:
            sections.append(Section(name, title, blocks, short))
    sections[-1].blocks.append(origins(comparisons))
    return Report(_title(paths), _subtitle(comparisons), _notices(comparisons, waiting), sections)


def _title(folders: Sequence[Path]) -> str:
    """The names of the folders that a report is about, a recipe's before a run's; of many, the
    name of the folder that they share.
    """
    folders = [folder.resolve() for folder in folders]
    if len(folders) > 3:
        return Path(os.path.commonpath(folders)).name or folders[0].name
    return ", ".join(
        f"{path.parent.name}/{path.name}" if (path / "recipe.json").is_file() else path.name
        for path in folders
    )


def _subtitle(comparisons: Sequence[Comparison]) -> str:
    """What was trained, how often, when and where."""
    groups = [group for comparison in comparisons for group in comparison.groups]
    runs = [run for group in groups for run in (*group.runs, *group.unfinished)]
    protocols = "; ".join(comparison.title for comparison in comparisons)
    words = [
        f"What was learned and what was forgotten in {counted(len(runs), 'run')} of "
        f"{counted(len(groups), 'recipe')}: {protocols}."
    ]
    if len(comparisons) > 1:
        words.append("Only runs with the same data and steps are compared.")
    start, end = shared_name([str(group.recipe["name"]) for group in groups])
    if start or end:
        words.append(f"Recipes: {start}*{end}.")
    dates = sorted(run.finished_at[:10] for run in runs if run.finished_at)
    if dates:
        words.append(f"Finished {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}.")
    return " ".join(words)


def _notices(comparisons: Sequence[Comparison], waiting: Sequence[Path]) -> list[str]:
    """What a reader must know before reading on: one sentence per reason, whatever the number of
    runs.
    """
    groups = [group for comparison in comparisons for group in comparison.groups]
    shorter = [
        f"{group.label} seed {run.seed} ({run.last_step + 1} of {group.last_step + 1} steps)"
        for group in groups
        for run in group.unfinished
    ]
    running, reordered = {}, {}
    for group in groups:
        in_map = shared_class_table(group.runs)[1]
        running[group.label] = [run.seed for run in group.runs if not run.finished]
        reordered[group.label] = [
            run.seed for run in group.runs if run.classes is not None and run.seed not in in_map
        ]
    reasons = (
        ("No finished step yet, not in this report: {}.", [str(path) for path in waiting]),
        ("Fewer steps than other seeds, in the curves but not in the results: {}.", shorter),
        ("Not finished, so that the last step is the last so far: {}.", _with_seeds(running)),
        ("Classes arrive in another order and have maps of their own: {}.", _with_seeds(reordered)),
    )
    return [sentence.format("; ".join(names)) for sentence, names in reasons if names]


def _with_seeds(seeds: Mapping[str, Sequence[int]]) -> list[str]:
    """Each recipe with its seeds, those without any left out; one entry if all have the same."""
    texts = {
        label: f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        for label, numbers in seeds.items()
        if numbers
    }
    if 1 < len(texts) == len(seeds) and len(set(texts.values())) == 1:
        return [f"all recipes, {texts.popitem()[1]}"]
    return [f"{label} {text}" for label, text in texts.items()]


# What was learned


def paper_numbers(groups: Sequence[Group], paper: pd.DataFrame) -> dict[tuple[int, str], pd.Series]:
    """(index of the recipe, column of the paper's) -> the comparison, for the numbers that the
    paper has.
    """
    numbers: dict[tuple[int, str], pd.Series] = {}
    for index, group in enumerate(groups):
        name = str(group.recipe["name"])
        if name in PAPER_CELLS:
            cell = TableCell(PAPER_CELLS[name], name)
            ours = measured(("average", "last", "fh", "steps"), [cell], steps_of(group.runs))
            both = compare(pd.DataFrame(ours), paper)
            both = both[both["paper"].notna() & (both["num_seeds"] > 0)]
            numbers |= {(index, row["column"]): row for _, row in both.iterrows()}
    return numbers


def results(comparison: Comparison) -> list:
    """A sentence and a table: a row per recipe, best first, every number under its definition."""
    numbers = [over_seeds(group) for group in comparison.groups]
    shown = [name for name in UNITS if any(table["mean"].notna()[name] for table in numbers)]
    complete = [
        table
        for table, group in zip(numbers, comparison.groups, strict=True)
        if group.last_step + 1 == comparison.num_steps
    ]  # they come first, so that an index counts in both
    best = {name: best_of(complete, name) for name in shown if name in HIGHEST_IS_BEST}
    rows = []
    for index, group, colour in comparison:
        steps = group.last_step + 1
        short = "" if steps == comparison.num_steps else f"{steps} of {comparison.num_steps} steps"
        cells = [
            _result(name, numbers[index].loc[name], best.get(name), index, comparison)
            for name in shown
        ]
        rows.append([Cell(group.label, short, colour), *cells, Cell(str(len(group.runs)))])
    head = [("recipe", ""), *(DEFINITIONS[name] for name in shown), ("seeds", "")]
    caption = _caption(comparison, shown, any(best.values()))
    sentence = _in_a_sentence(comparison, complete, best)
    return [sentence, Table(head, rows, caption), *_learned_later(comparison)]


def _result(
    name: str, over: pd.Series, best: Best | None, index: int, comparison: Comparison
) -> Cell:
    mean, std = over["mean"] * UNITS[name], over["std"] * UNITS[name]
    is_best = best is not None and best.first == index
    below = []
    if best is not None and is_best:
        below.append(f"best by {number(best.margin * UNITS[name])}, {_beside_spread(best)}")
    if (index, name) in comparison.paper:
        printed = comparison.paper[index, name]
        below.append(f"paper {number(printed['paper'])}, gap {number(printed['gap'], signed=True)}")
    text = duration(mean) if name == "seconds" else spread(mean, std)
    return Cell(text, "; ".join(below), best=is_best)


def duration(seconds: float) -> str:
    """A time as text: "90 s", "12 min", "3.5 h"."""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return "–" if pd.isna(seconds) else f"{seconds:.0f} s"


def _beside_spread(best: Best) -> str:
    if np.isnan(best.spread):
        return "spread unknown"
    return "more than the spread" if best.margin > best.spread else "within the spread"


def _caption(comparison: Comparison, shown: Sequence[str], with_best: bool) -> str:
    longest = max((group.runs[0].steps for group in comparison.groups), key=len)
    chance = 100 * chance_levels(longest)
    sentences = []
    if max(len(group.runs) for group in comparison.groups) > 1:
        sentences.append("Mean ± standard deviation over seeds.")
    if with_best:
        sentences.append(
            "Spread: the larger standard deviation of the best and the second; unknown with one "
            "seed."
        )
    average = f"average {number(chance.mean())} %, " if "average" in shown else ""
    sentences.append(
        f"Chance level, guessing among the classes seen: {average}last {number(chance.iloc[-1])} %."
    )
    if comparison.paper:
        sentences.append("Gap: ours − paper.")
    sentences += [
        f"Of the paper's {name} of {comparison.groups[index].label}: {row['mark']}."
        for (index, name), row in comparison.paper.items()
        if row["mark"] and name in shown
    ]
    return " ".join(sentences)


def _in_a_sentence(
    comparison: Comparison, complete: Sequence[pd.DataFrame], best: Mapping[str, Best | None]
) -> str:
    groups, means = comparison.groups, [table["mean"] for table in complete]
    if len(complete) == 1:
        by = f" by {groups[0].label}" if len(groups) > 1 else ""
        num_classes = int(groups[0].runs[0].steps["classes"].max())
        sentence = (
            f"After the last step {number(100 * means[0]['last'])} % of the test images of all "
            f"{num_classes} classes are recognised{by}."
        )
        average = 100 * means[0]["average"]
        over_steps = f" Over the steps the average is {number(average)} %."
        return sentence if np.isnan(average) else sentence + over_steps
    measure = ranking_measure(means)
    words = {"average": "average over the steps", "last": "last accuracy"}[measure]
    value, top = number(100 * means[0][measure]), best[measure]
    if top is None:
        return f"Highest {words}: {value} %, shared by several recipes."
    beside = _beside_spread(top)
    return (
        f"Highest {words}: {groups[top.first].label} with {value} %, {number(100 * top.margin)} "
        f"points above {groups[top.second].label}; "
        + (
            "one seed cannot tell whether that is chance."
            if beside == "spread unknown"
            else f"{beside} of the seeds, {number(100 * top.spread)}."
        )
    )


def _learned_later(comparison: Comparison) -> list:
    """A table of the folders that were learned after the recipe's steps, one row for each."""
    rows = []
    for _, group, colour in comparison:
        folders = folders_learned(group.recipe)
        for step, folder in enumerate(folders, start=group.last_step + 1 - len(folders)):
            known = pd.DataFrame(filter(None, (learned_step(run, step) for run in group.runs)))
            if step > 0 and len(known):
                means, stds = 100 * known.mean(), 100 * known.std()
                rows.append(
                    [
                        Cell(folder, f"step {step + 1} of {group.label}", colour),
                        Cell(str(int(known["num_new"].iloc[0]))),
                        *(Cell(spread(means[name], stds[name])) for name in known.columns[1:]),
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


def _seen(comparison: Comparison) -> pd.Series:
    """Number of classes seen after each step."""
    rows = pd.concat([group.runs[0].steps[["step", "classes"]] for group in comparison.groups])
    return rows.astype(int).drop_duplicates("step").set_index("step")["classes"].sort_index()


def _step_panel(
    comparison: Comparison, title: str, curves: Sequence[Curve], top: int | None = None
) -> Panel:
    """A panel with the step as x, and the classes seen below it."""
    seen = _seen(comparison)
    first, last = int(seen.index[0]), int(seen.index[-1])
    every = -(-len(seen) // 12)
    ticks = [
        (step, f"{step + 1}\n{seen[step]}")
        for step in map(int, seen.index)
        if step == first or (step + 1) % every == 0
    ]
    learned = max(len(folders_learned(group.recipe)) for group in comparison.groups)
    starts = [last + 0.5 - count for count in range(learned, 0, -1)]
    label = "step, and classes seen"
    return Panel(title, curves, label, ticks, starts, (first, last), (0, top))


def _step_curves(comparison: Comparison, column: str) -> list[Curve]:
    """A curve for each recipe that has the column; runs that are not finished as far as they
    go.
    """
    curves = []
    for _, group, colour in comparison:
        points = per_step([*group.runs, *group.unfinished], column) * UNITS.get(column, 100)
        if len(points):
            curves.append(Curve(group.label, points[["mean", "std"]], colour))
    return curves


def accuracy(comparison: Comparison) -> list:
    """Accuracy after each step, as curves and as numbers."""
    seen, curves = _seen(comparison), []
    for index, curve in enumerate(_step_curves(comparison, "accuracy")):
        printed = {
            step: comparison.paper[index, f"step {step + 1}"]["paper"]
            for step in map(int, seen.index)
            if (index, f"step {step + 1}") in comparison.paper
        }
        curves.append(curve)
        if printed:
            points = pd.DataFrame({"mean": printed, "std": np.nan})
            curves.append(Curve(f"{curve.label}, paper", points, curve.colour, paper=True))
    ends = "; ".join(
        f"{curve.label} from {curve.points['mean'].iloc[0]:.0f} to "
        f"{curve.points['mean'].iloc[-1]:.0f} %"
        for curve in curves
    )
    chance = pd.DataFrame({"mean": 100 * chance_levels(seen.reset_index()), "std": np.nan})
    title = "Accuracy on all classes seen by then, %"
    panel = _step_panel(comparison, title, [*curves, Curve("chance", chance, None)], 100)
    caption = "Chance: guessing among the classes seen."
    if any(curve.points["std"].notna().any() for curve in curves):
        caption += " A band is ± one standard deviation over seeds."
    caption += " Fine lines: a folder is learned later." if panel.starts else ""
    alt = f"Accuracy after each step: {ends}."
    plot = Plot(f"accuracy{comparison.name}", alt, caption, [panel], height=360)
    columns = [curve.points.reindex(seen.index) for curve in curves]
    rows = [
        [
            Cell(str(step + 1), f"{num_classes} classes"),
            *(Cell(spread(*points.loc[step])) for points in columns),
        ]
        for step, num_classes in seen.items()
    ]
    head = [("step", ""), *((curve.label, "") for curve in curves)]
    colours = [None, *(None if curve.paper else curve.colour for curve in curves)]
    about = "Percent of the test images of all classes seen by then."
    return [plot, Fold("The same as numbers", [Table(head, rows, about, colours=colours)])]


def evenness(comparison: Comparison) -> list:
    """Forgetting and its heterogeneity after each step, as curves."""
    headings = {
        "fh": "Forgetting heterogeneity (FH × 1000)",
        "forgetting": "Forgetting, percentage points",
    }
    curves = {heading: _step_curves(comparison, column) for column, heading in headings.items()}
    panels = [
        _step_panel(comparison, heading, of_column)
        for heading, of_column in curves.items()
        if of_column
    ]
    if not panels:
        return []
    ends = "; ".join(
        f"{curve.label} {panel.title} {curve.points['mean'].iloc[-1]:.1f}"
        for panel in panels
        for curve in panel.curves
    )
    caption = (
        "FH: the variance of 1 − p(true class) among the test images of classes that arrived "
        "together. It is low where all of them are "
        "forgotten alike. Forgetting: best earlier accuracy − accuracy now, mean over the "
        "classes of earlier steps; none after step 1."
    )
    alt = f"After the last step: {ends}."
    return [Plot(f"evenness{comparison.name}", alt, caption, panels, height=290)]


# What was trained

QUANTITIES = {  # of train.csv: heading, definition and scale
    "weight_spread": (
        "spread of the GFC weights",
        "standard deviation around their mean of 1; 0 is plain cross-entropy",
        1,
    ),
    "alone_fraction": (
        "samples alone in their step, %",
        "the only one of its step in a batch; GFC leaves it at weight 1",
        100,
    ),
    f"{LOSS}relation": ("relation loss", "0 means that GRD does nothing", 1),
}
Drawn = tuple[Group, int, str]  # a recipe, its colour and the column of train.csv


def acting(comparison: Comparison) -> list:
    """Whether GFC and GRD act: what each recipe wrote of them, from its second step on."""
    rows, silent = [], []
    for _, group, colour in comparison:
        trains = [run.train for run in group.runs if run.train is not None]
        train = pd.concat(trains) if trains else pd.DataFrame({"step": []})
        written = train.reindex(columns=list(QUANTITIES))
        means = written[train["step"] > train["step"].min()].mean()
        if written.notna().any(axis=None):
            cells = [
                Cell(number(means[column] * scale, decimals=3))
                for column, (_, _, scale) in QUANTITIES.items()
            ]
            rows.append([Cell(group.label, colour=colour), *cells])
        elif trains:
            silent.append(group.label)
    head = [("recipe", ""), *((title, text) for title, text, _ in QUANTITIES.values())]
    caption = "Means over all epochs from the second step on; below are the curves."
    caption += f" Neither loss is in {', '.join(silent)}." if silent else ""
    return [Table(head, rows, caption)] if rows else []


def losses(comparison: Comparison) -> list:
    """Every loss term over the epochs, and what GFC's weights did, as curves."""
    drawn: dict[str, list[Drawn]] = {}
    for _, group, colour in comparison:
        columns = [training_columns(run.train) for run in group.runs if run.train is not None]
        for column in dict.fromkeys(column for of_run in columns for column in of_run):
            drawn.setdefault(column, []).append((group, colour, column))
    if not drawn:
        return []
    panels = [
        _epochs_panel(column.removeprefix(LOSS).replace("_", " "), entries)
        for column, entries in drawn.items()
    ]
    alt = f"Means over the epochs: {', '.join(panel.title for panel in panels)}."
    caption = (
        "Mean over the samples of an epoch; total is what was minimised. Fine lines: a new step "
        "begins."
    )
    if any("compensation" in column for column in drawn):
        caption += (
            " Compensation is what GFC adds to the criterion: below 0 where its weights are "
            "below 1."
        )
    return [Plot(f"losses{comparison.name}", alt, caption, panels, height=230)]


def _epochs_panel(title: str, drawn: Sequence[Drawn]) -> Panel:
    """Epochs one after the other through all steps. The steps are marked where they begin at the
    same epoch in all curves.
    """
    curves, steps = [], []
    for group, colour, column in drawn:
        points = over_epochs(group.runs, column)
        points.index = points.index + 1
        epochs = points.index.to_series().groupby(points["step"]).agg(["min", "max"])
        steps.append(tuple(epochs.itertuples(name=None)))
        curves.append(Curve(group.label, points[["mean", "std"]], colour))
    span = (1, max(of_curve[-1][2] for of_curve in steps))
    if len(set(steps)) > 1 or len(steps[0]) > 25:
        return Panel(title, curves, "epoch, counted through all steps", span=span)
    every = -(-len(steps[0]) // 10)
    ticks = [((first + last) / 2, str(step + 1)) for step, first, last in steps[0]][::every]
    starts = [first - 0.5 for _, first, _ in steps[0][1:]]
    return Panel(title, curves, "step; a point is an epoch", ticks, starts, span)


def recipe_values(comparison: Comparison) -> list:
    """The values that differ, a column per recipe; those that all share, once."""
    groups = comparison.groups
    values = [settings(group.recipe) for group in groups]
    names = dict.fromkeys(name for of_recipe in values for name in of_recipe if name != "name")
    shown = {name: [_plain(of.get(name, "–")) for of in values] for name in names}
    sources = {
        name: str(text)
        for group in reversed(groups)
        for name, text in (group.recipe.get("sources") or {}).items()
    }
    differing = {name: texts for name, texts in shown.items() if len(set(texts)) > 1}
    shared = {name: texts[:1] for name, texts in shown.items() if name not in differing}
    blocks: list = []
    if differing:
        labels = [group.label for group in groups]
        blocks.append("Where the recipes differ:")
        blocks.append(_values(labels, differing, sources, comparison.colours))
    title = "Every value of the recipe" if len(groups) == 1 else "Values that all recipes share"
    table = _values(["value"], shared, sources, [None])
    return [*blocks, Fold(title, [table], open=not differing)]


def _plain(value: object) -> str:
    """A recipe's value as a reader writes it."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def _values(
    headings: Sequence[str],
    cells: Mapping[str, Sequence[str]],
    sources: Mapping[str, str],
    colours: Sequence[int | None],
) -> Table:
    rows = [[Cell(name, sources.get(name, "")), *map(Cell, cells[name])] for name in cells]
    head = [(text, "") for text in ("setting", *headings)]
    return Table(head, rows, text_columns=range(len(head)), colours=(None, *colours))


def origins(comparisons: Sequence[Comparison]) -> Fold:
    """Versions, machines, dates and folders of all runs."""
    groups = [group for comparison in comparisons for group in comparison.groups]
    runs = [run for group in groups for run in (*group.runs, *group.unfinished)]
    versions = pd.DataFrame([run.versions for run in runs]).fillna("–").astype(str)
    values = {name: ", ".join(dict.fromkeys(versions[name])) for name in versions}
    values["machine"] = "; ".join(dict.fromkeys(run.machine for run in runs if run.machine)) or "–"
    for run in runs:
        finished = f"finished {run.finished_at}" if run.finished_at else "not finished"
        values[str(run.path)] = f"{run.recipe['name']}, seed {run.seed}, {finished}"
    rows = [[*map(Cell, pair)] for pair in values.items()]
    table = Table([("of", ""), ("value", "")], rows, text_columns=(0, 1))
    return Fold("Versions, machine, dates, folders", [table])
