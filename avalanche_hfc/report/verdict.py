"""Which method to use for your data: the verdict on a comparison, in sentences and as a table.

The sentences are a pure function of the rows, so that the page, the terminal and the tests have the
same ones.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from avalanche_hfc._names import joined
from avalanche_hfc.lab.read import Group
from avalanche_hfc.report.numbers import (
    TEST,
    Comparison,
    Difference,
    chance_levels,
    class_table,
    falls,
    measures,
)
from avalanche_hfc.report.page import Cell, Command, Report, Table
from avalanche_hfc.report.sections import DEFINITIONS, duration, make_report
from avalanche_hfc.report.tables import NOTHING, number, spread

MOST_CLASSES = 5  # that a sentence names
FEW_SEEDS = 5  # below this number a test finds large differences only
COARSE = 100  # test images: with fewer, one image is more than a point
CLOSE = 1.0  # points: a faster method may be this much lower
PERCENT = ("average", "last", "forgetting")
HEAD = (
    ("method", ""),
    DEFINITIONS["average"],
    ("behind the best", "points of the average, seed by seed"),
    DEFINITIONS["last"],
    DEFINITIONS["forgetting"],
    DEFINITIONS["seconds"],
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
    leads = {method: paired(rows, highest, method) for method in means.index if method != highest}
    equal = [method for method, lead in leads.items() if lead.none]
    close = [method for method in equal if leads[method].mean <= CLOSE]
    method = str(means.loc[[highest, *close], "seconds"].idxmin())
    average, last = (number(means.loc[method, name]) for name in ("average", "last"))
    seeds, images = rows["seed"].nunique(), int(rows["images"].min())
    over = f"mean over {seeds} seeds" if seeds > 1 else f"seed {rows['seed'].iloc[0]}"
    coarse = f" They are coarse: one image is {number(100 / images)} points."
    sentences = [
        f"Use {method}: {average} % on average over the steps and {last} % after the last step "
        f"({over}).",
        _certainty(method, highest, equal, leads),
        *_highest_last(rows, means, method),
        _cost(means, method),
        _forgotten(method, fallen[method]),
        f"The accuracies stand on {images} test images after the last step, on fewer before it."
        f"{coarse if images < COARSE else ''}",
    ]
    return Verdict(method, highest, sentences)


def _certainty(
    method: str, highest: str, equal: Sequence[str], leads: Mapping[str, Difference]
) -> str:
    """By how much the highest average leads: `equal` are the methods that it does not lead for
    certain.
    """
    below = {other: lead for other, lead in leads.items() if other not in equal}
    second = min(below, key=lambda other: below[other].mean, default="")
    seeds = max(lead.num_seeds for lead in leads.values())
    if seeds == 1:
        same = [other for other in (highest, *equal) if other != method]
        words = [f"equals {joined(same)}"] if same else []
        words += [f"is {number(below[second].mean)} points above {second}"] if second else []
        return (
            f"It {', and '.join(words)}; with one seed nothing can be said about the spread, so "
            "this may be chance. Use several seeds, as with --seeds 0-2."
        )
    few = f" {seeds} seeds are few: smaller differences are not found." if seeds < FEW_SEEDS else ""
    real = f"by {TEST} the difference is real"
    if not equal:
        return (
            f"It leads {second}, the second, by {_points(leads[second])} points (paired by seed, "
            f"± standard error): {real}.{few}"
        )
    who, faster = "It", ""
    if method != highest:
        who, faster = highest, f" {method} is close to it and trains faster."
    listed = ", ".join(f"{_points(leads[other])} above {other}" for other in equal)
    others = ""
    if second:
        others = f" {who} leads {second}, the next, by {_points(leads[second])} points: {real}."
    return (
        f"{who} has the highest average, but its lead over {joined(equal)} is not certain: it is "
        f"{listed} (points, paired by seed, ± standard error).{faster}{others}{few}"
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
    values, fastest = means.loc[method], str(means["seconds"].idxmin())
    kept = f"{values['exemplars']:.0f} exemplars" if values["exemplars"] else "no exemplars"
    size = values["megabytes"]
    model = "" if pd.isna(size) else f", and its model takes {size:.1f} MB"
    cost = f"A run of {method} trains for {duration(values['seconds'])}, keeps {kept}{model}."
    if fastest == method:
        return f"{cost} No other method here trains faster."
    lag = values["average"] - means.loc[fastest, "average"]
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
            numbers, kept = measures(run.steps), run.exemplars
            rows.append(
                {
                    "method": group.label,
                    "seed": run.seed,
                    **{name: 100 * numbers[name] for name in PERCENT},
                    "images": int(run.steps["images"].iloc[-1]),
                    "seconds": numbers["seconds"],
                    "exemplars": 0 if kept is None else int((kept["step"] == run.last_step).sum()),
                    "megabytes": math.nan if size is None else size / 1e6,
                }
            )
    return pd.DataFrame(rows)


def fallen_classes(group: Group) -> pd.Series:
    """Points that each class has fallen below its best accuracy, the largest first: the mean over
    the seeds in which it arrived before the last step. Classes that did not fall are left out.
    """
    falling = []
    for run in group.runs:
        table = class_table(run)
        if table is not None:
            earlier = table[table.index.get_level_values("brought_in") < run.last_step]
            fell = falls(earlier).set_index("name")["fall"]
            falling.append(fell.reindex(earlier.index.get_level_values("name"), fill_value=0.0))
    means = 100 * pd.concat([pd.Series(dtype=float), *falling]).groupby(level=0).mean()
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
    return make_report(folders, summary=summary)._replace(title=title)


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
    usage: list = [f"{decision.method} keeps no weights, so that hfc predict cannot use it."]
    if command is not None:
        usage = [f"To classify images with {decision.method}:", Command(command)]
    table = _table(comparison, rows, decision)
    return [*decision.sentences, *remarks, *usage, table]


def _table(comparison: Comparison, rows: pd.DataFrame, decision: Verdict) -> Table:
    methods = rows.drop(columns="seed").groupby("method")
    means, errors = methods.mean(), methods.sem()
    several = rows["seed"].nunique() > 1
    lines = []
    for _, group, colour in comparison:
        name = group.label
        values, error = means.loc[name], errors.loc[name]
        behind = paired(rows, decision.highest, name)
        is_highest, is_used = name == decision.highest, name == decision.method
        none = "not certain" if several and not is_highest and behind.none else ""
        average, last, forgetting = (spread(values[column], error[column]) for column in PERCENT)
        size = values["megabytes"]
        lines.append(
            [
                Cell(name, "use this one" if is_used else "", colour),
                Cell(average, best=is_used),
                Cell(NOTHING if is_highest else _points(behind), none),
                *map(Cell, (last, forgetting, duration(values["seconds"]))),
                Cell(f"{values['exemplars']:.0f}"),
                Cell(NOTHING if pd.isna(size) else f"{size:.1f} MB"),
            ]
        )
    chance = 100 * chance_levels(comparison.groups[0].runs[0].steps)
    over = f"Mean ± standard error over seeds; not certain: not found by {TEST}."
    caption = (
        f"{over if several else 'One seed.'} "
        "In each seed all methods have the same images, class order and exemplars per class. "
        f"Chance level: average {number(chance.mean())} %, last {number(chance.iloc[-1])} %."
    )
    return Table(HEAD, lines, caption)


def spoken(report: Report) -> str:
    """The verdict of a report as lines of text."""
    blocks = report.sections[0].blocks
    texts = (block.text if isinstance(block, Command) else block for block in blocks)
    return "\n".join(text for text in texts if isinstance(text, str))
