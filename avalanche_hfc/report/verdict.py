"""Which method to use for your data: the verdict on a comparison, in sentences and as a table.

The sentences are a pure function of the rows, so that the page, the terminal and the tests have the
same ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from avalanche_hfc._names import joined
from avalanche_hfc.lab.read import Group, RunData
from avalanche_hfc.report.blocks import Cell, Command, Report, Table, Text
from avalanche_hfc.report.comparisons import Comparison, duration
from avalanche_hfc.report.numbers import (
    TEST,
    Difference,
    chance_levels,
    class_table,
    falls,
    measures,
)
from avalanche_hfc.report.page import make_report
from avalanche_hfc.report.tables import NOTHING, number, spread

MOST_CLASSES = 5  # that a sentence names
FEW_SEEDS = 5  # below this number a test finds large differences only
COARSE = 100  # test images: with fewer, one image is more than a point
CLOSE = 1.0  # points: a faster method may be this much lower
PERCENT = ("average", "last", "forgetting")
HEAD = (
    ("method", ""),
    ("average %", "mean over all steps of the accuracy on the classes seen by then"),
    ("behind the best", "points of the average, seed by seed"),
    ("last %", "accuracy on all classes after the last step"),
    ("forgetting, points", "best earlier accuracy of a class − its last, mean over the classes"),
    ("training", "time of all steps of a run, evaluation apart"),
    ("exemplars", "images kept after the last step"),
    ("model", "the weights that predict"),
)


class Verdict(NamedTuple):
    """The method to use, the one with the highest average, and why, in sentences. They are two
    methods where a faster one is close to the highest and not distinguishable from it.
    """

    method: str
    highest: str
    sentences: list[str]


def paired(rows: pd.DataFrame, first: str, second: str, measure: str = "average") -> Difference:
    """By how much a method leads another, seed by seed.

    Args:
        rows: As in `verdict`.
        first: The method that is compared.
        second: The method that it is compared with.
        measure: A column of the rows.

    Returns:
        The mean difference and its standard error.

    Example:
        >>> rows = pd.DataFrame({"method": [*"aabb"], "seed": [0, 1] * 2, "last": [5, 9, 3, 5]})
        >>> paired(rows, "a", "b", "last")
        Difference(mean=3.0, error=1.0, num_seeds=2)
    """
    by_seed = rows.pivot(index="seed", columns="method", values=measure)
    each = (by_seed[first] - by_seed[second]).dropna()
    return Difference.of(each)


def verdict(rows: pd.DataFrame, fallen: Mapping[str, pd.Series]) -> Verdict:
    """Which method to use, by how much, whether the difference is real, what it costs and which
    classes it forgets.

    The best method is the one with the highest average over the steps. Of those that are within
    `CLOSE` points of it, and not distinguishable from it by a paired t-test, the one that trains
    fastest is the method to use. A test that finds no difference does not show that there is none:
    with few seeds a method that is far below may not be distinguishable.

    Args:
        rows: A row per method and seed with the columns `method`, `seed`, `average` and `last` in
            percent, `images` tested after the last step, `seconds`, `exemplars` and `megabytes`
            (nan if not known).
        fallen: For each method the points that each class has fallen below its best, by name, the
            largest first.

    Returns:
        The method and the sentences.
    """
    means = rows.groupby("method", sort=False).mean(numeric_only=True)
    highest = str(means["average"].idxmax())
    others = [str(method) for method in means.index if method != highest]
    leads = {method: paired(rows, highest, method) for method in others}
    equal = [method for method in others if leads[method].none]
    close = [method for method in equal if leads[method].mean <= CLOSE]
    method = str(means.loc[[highest, *close], "seconds"].idxmin())
    below = [other for other in others if other not in equal]
    second = str(means.loc[below, "average"].idxmax()) if below else None
    own, seeds = means.loc[method], rows["seed"].nunique()
    over = f"mean over {seeds} seeds" if seeds > 1 else f"seed {rows['seed'].iloc[0]}"
    sentences = [
        f"Use {method}: {number(own['average'])} % on average over the steps and "
        f"{number(own['last'])} % after the last step ({over}).",
        _certainty(rows, highest, second, equal, method),
        *_highest_last(rows, means, method),
        _cost(means, method),
        _forgotten(method, fallen[method]),
        _tested(int(rows["images"].min())),
    ]
    return Verdict(method, highest, sentences)


def _certainty(
    rows: pd.DataFrame, highest: str, second: str | None, equal: Sequence[str], method: str
) -> str:
    """By how much the highest average leads: `equal` are the methods that it does not lead for
    certain, `second` is the best of the others.
    """
    seeds = rows["seed"].nunique()
    lead = None if second is None else paired(rows, highest, second)
    if seeds == 1:
        same = [other for other in (highest, *equal) if other != method]
        leads = f"It equals {joined(same)}" if same else ""
        if lead is not None:
            leads += f"{', and' if equal else 'It'} is {number(lead.mean)} points above {second}"
        return (
            f"{leads}; with one seed nothing can be said about the spread, so this may be "
            "chance. Several seeds tell, as with --seeds 0-2."
        )
    few = f" {seeds} seeds are few: smaller differences are not found." if seeds < FEW_SEEDS else ""
    real = f"by {TEST} the difference is real"
    if not equal:
        assert lead is not None
        return (
            f"It leads {second}, the second, by {_points(lead)} points (paired by seed, ± standard "
            f"error): {real}.{few}"
        )
    leads = ", ".join(f"{_points(paired(rows, highest, other))} above {other}" for other in equal)
    who = "It" if method == highest else highest
    chosen = "" if method == highest else f" {method} is close to it and trains faster."
    others = (
        ""
        if lead is None
        else f" {who} leads {second}, the next, by {_points(lead)} points: {real}."
    )
    return (
        f"{who} has the highest average, but its lead over {joined(equal)} is not certain: it is "
        f"{leads} (points, paired by seed, ± standard error).{chosen}{others}{few}"
    )


def _points(difference: Difference) -> str:
    return spread(difference.mean, difference.error)


def _highest_last(rows: pd.DataFrame, means: pd.DataFrame, method: str) -> list[str]:
    """A sentence where another method is better after the last step."""
    best = str(means["last"].idxmax())
    lead = paired(rows, best, method, "last")
    if lead.none or math.isnan(lead.error):  # 0 if it is the method itself
        return []
    return [f"After the last step {best} is better than {method}, by {_points(lead)} points."]


def _cost(means: pd.DataFrame, method: str) -> str:
    own, fastest = means.loc[method], str(means["seconds"].idxmin())
    kept = f"{own['exemplars']:.0f} exemplars" if own["exemplars"] else "no exemplars"
    model = "" if pd.isna(own["megabytes"]) else f", and its model takes {megabytes(own)}"
    cost = f"A run of {method} trains for {duration(own['seconds'])}, keeps {kept}{model}."
    if fastest == method:
        return f"{cost} No other method here trains faster."
    lag = own["average"] - means.loc[fastest, "average"]
    return (
        f"{cost} The fastest is {fastest}: {duration(means.loc[fastest, 'seconds'])}, "
        f"{number(abs(lag))} points {'below' if lag > 0 else 'above'}."
    )


def _forgotten(method: str, fallen: pd.Series) -> str:
    if fallen.empty:
        return f"{method} forgets no class: none is below its best accuracy."
    named = ", ".join(f"{name} ({fall:.0f})" for name, fall in fallen.head(MOST_CLASSES).items())
    return (
        f"{method} forgets {len(fallen)} class{'es' if len(fallen) > 1 else ''}, most of all "
        f"{named} (points below the best accuracy, mean over seeds)."
    )


def _tested(images: int) -> str:
    said = f"The accuracies stand on {images} test images after the last step, on fewer before it."
    if images >= COARSE:
        return said
    return f"{said} They are coarse: one image is {number(100 / images)} points."


def megabytes(row: pd.Series) -> str:
    """The size of a method's model as text."""
    return NOTHING if pd.isna(row["megabytes"]) else f"{row['megabytes']:.1f} MB"


# From runs to rows


def result_rows(groups: Sequence[Group], sizes: Mapping[str, int | None]) -> pd.DataFrame:
    """The rows of `verdict`, with `forgetting`, from the runs of each method.

    Args:
        groups: The methods with their runs.
        sizes: Bytes of the model of each recipe, by name; None if not known.
    """
    rows = []
    for group in groups:
        size = sizes.get(str(group.recipe["name"]))
        for run in group.runs:
            numbers = measures(run.steps)
            rows.append(
                {
                    "method": group.label,
                    "seed": run.seed,
                    **{name: 100 * numbers[name] for name in PERCENT},
                    "images": int(run.steps["images"].iloc[-1]),
                    "seconds": numbers["seconds"],
                    "exemplars": _num_exemplars(run),
                    "megabytes": math.nan if size is None else size / 1e6,
                }
            )
    return pd.DataFrame(rows)


def _num_exemplars(run: RunData) -> int:
    return 0 if run.exemplars is None else int((run.exemplars["step"] == run.last_step).sum())


def fallen_classes(group: Group) -> pd.Series:
    """Points that each class has fallen below its best accuracy, the largest first: the mean over
    the seeds in which it arrived before the last step. Classes that did not fall are left out.
    """
    parts = []
    for run in group.runs:
        table = class_table(run)
        if table is None:
            continue
        earlier = table[table.index.get_level_values("brought_in") < run.last_step]
        fell = falls(earlier).set_index("name")["fall"]
        parts.append(fell.reindex(earlier.index.get_level_values("name"), fill_value=0.0))
    if not parts:
        return pd.Series(dtype=float)
    means = 100 * pd.concat(parts).groupby(level=0).mean()
    return means[means > 0].sort_values(ascending=False, kind="stable")


# The page


def make_verdict(
    folders: Sequence[Path],
    title: str,
    sizes: Mapping[str, int | None],
    predict: Mapping[str, str],
    failed: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
) -> Report:
    """A report on runs of several methods whose first section is the verdict.

    Args:
        folders: The run folders, of the same data and protocol.
        title: The title of the page.
        sizes: As in `result_rows`.
        predict: The command that uses a run of a recipe, by the recipe's name.
        failed: Why a method has no runs to compare, by the method's name.
        remarks: Further sentences for the verdict.

    Returns:
        The report, for `write_pages`; `spoken` gives its verdict as text.
    """
    left_out = [f"{method} is not compared: {reason}" for method, reason in (failed or {}).items()]
    summary = partial(verdict_blocks, sizes=sizes, predict=predict, remarks=[*remarks, *left_out])
    return replace(make_report(folders, summary=summary), title=title)


def verdict_blocks(
    comparison: Comparison,
    *,
    sizes: Mapping[str, int | None],
    predict: Mapping[str, str],
    remarks: Sequence[str],
) -> list:
    """The sentences and remarks, the command that uses the method, and a row per method, best
    first.
    """
    rows = result_rows(comparison.groups, sizes)
    decision = verdict(rows, {group.label: fallen_classes(group) for group in comparison.groups})
    names = {group.label: str(group.recipe["name"]) for group in comparison.groups}
    command = predict.get(names[decision.method])
    usage = (
        [Text(f"{decision.method} keeps no weights, so that hfc predict cannot use it.")]
        if command is None
        else [Text(f"To classify images with {decision.method}:"), Command(command)]
    )
    return [*map(Text, [*decision.sentences, *remarks]), *usage, _table(comparison, rows, decision)]


def _table(comparison: Comparison, rows: pd.DataFrame, decision: Verdict) -> Table:
    methods = rows.drop(columns="seed").groupby("method")
    means, errors = methods.mean(), methods.sem()
    several = rows["seed"].nunique() > 1
    lines = []
    for _, group, colour in comparison:
        name = group.label
        own, error = means.loc[name], errors.loc[name]
        behind = paired(rows, decision.highest, name)
        text = NOTHING if name == decision.highest else _points(behind)
        none = "not certain" if several and name != decision.highest and behind.none else ""
        used = "use this one" if name == decision.method else ""
        average, last, forgetting = (spread(own[column], error[column]) for column in PERCENT)
        lines.append(
            [
                Cell(name, used, colour),
                Cell(average, best=name == decision.method),
                Cell(text, none),
                *map(Cell, (last, forgetting, duration(own["seconds"]))),
                *map(Cell, (f"{own['exemplars']:.0f}", megabytes(own))),
            ]
        )
    chance = 100 * chance_levels(comparison.groups[0].runs[0].steps)
    caption = (
        f"Mean ± standard error over seeds; not certain: not found by {TEST}. "
        if several
        else "One seed. "
    )
    caption += (
        "In each seed all methods have the same images, class order and exemplars per class. "
        f"Chance level: average {number(chance.mean())} %, last {number(chance.iloc[-1])} %."
    )
    return Table(HEAD, lines, caption)


def spoken(report: Report) -> str:
    """The verdict of a report as lines of text."""
    blocks = report.sections[0].blocks
    return "\n".join(block.text for block in blocks if isinstance(block, Text | Command))
