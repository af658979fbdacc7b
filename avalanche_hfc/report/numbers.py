"""What runs say, as numbers: which of them may be compared, and measures over seeds, steps and
classes. Accuracies are fractions in [0, 1].
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from avalanche_hfc._names import counted
from avalanche_hfc._types import Json, Record
from avalanche_hfc.lab.read import Group, RunData, group_runs, is_continued
from avalanche_hfc.lab.run_folder import LOSS
from avalanche_hfc.report.figures import LineKey, assign_colours

NO_DIFFERENCE = "(none)"
TEST = "a paired t-test at the 5 % level"
SIDES = ("class", "predicted")  # of confusion.csv
ONE_SEED = "A difference of one seed is not tested."
LEVEL = 0.05


class Difference(NamedTuple):
    """By how much one method is above another, over the seeds that both have.

    Attributes:
        mean: Mean over the seeds.
        error: Its standard error; nan for one seed.
        num_seeds: Number of seeds.
    """

    mean: float
    error: float
    num_seeds: int

    @classmethod
    def of(cls, each: pd.Series) -> "Difference":
        """The difference of which `each` has a value for each seed.

        Example:
            >>> Difference.of(pd.Series([2.0, 4.0]))
            Difference(mean=3.0, error=1.0, num_seeds=2)
        """
        return cls(float(each.mean()), float(each.sem()), len(each))

    @property
    def none(self) -> bool:
        """Whether it cannot be distinguished from 0 by a paired t-test at the 5 % level. False for
        one seed, of which nothing can be said.

        Example:
            >>> Difference(1.0, 0.4, 3).none, Difference(1.0, 0.2, 3).none
            (True, False)
            >>> Difference(1.0, 0.4, 20).none, Difference(1.0, float("nan"), 1).none
            (False, False)
        """
        return self.mean == 0 or bool(abs(self.mean) < critical(self.num_seeds) * self.error)

    @property
    def mark(self) -> str:
        """What a table has behind it: `NO_DIFFERENCE`, or nothing; nothing for one seed, which is
        not tested.
        """
        return f" {NO_DIFFERENCE}" if self.num_seeds > 1 and self.none else ""

    @property
    def sign(self) -> int:
        """1 or -1; 0 for none."""
        return 0 if self.none else 1 if self.mean > 0 else -1


def critical(num_seeds: int) -> float:
    """How many standard errors a difference over some seeds must have: the two-sided quantile of
    Student's t; nan for one seed.

    Example:
        >>> [round(critical(num_seeds), 2) for num_seeds in (2, 3, 5, 20)]
        [12.71, 4.3, 2.78, 2.09]
    """
    from scipy.special import stdtrit  # here: the list of recipes does not need it

    return float(stdtrit(num_seeds - 1, 1 - LEVEL / 2)) if num_seeds > 1 else float("nan")


@dataclass(frozen=True)
class Comparison:
    """Recipes trained on the same data in the same steps, the best first.

    Attributes:
        title: The protocol in words.
        groups: The recipes with their runs.
        colours: Colour of each recipe.
        name: Appended to the names of figures; empty for the first comparison of a report.
        paper: (index of the recipe, column of the paper's table) to our number beside the paper's.
    """

    title: str
    groups: Sequence[Group]
    colours: Sequence[int]
    name: str = ""
    paper: Mapping[tuple[int, str], pd.Series] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[int, Group, int]]:
        """Index, recipe and colour."""
        yield from zip(range(len(self.groups)), self.groups, self.colours, strict=True)

    @property
    def num_steps(self) -> int:
        return max(group.last_step for group in self.groups) + 1


def comparisons_of(runs: Iterable[RunData]) -> list[Comparison]:
    """Sort runs into comparisons.

    A run that learned more classes later contains the steps of the run it continues. Where that
    one has no rival it is left out: both are one line.

    Args:
        runs: All runs of a report.

    Returns:
        A comparison for each protocol, in the order met; those that learned more later behind.

    Raises:
        ValueError: If a seed of a recipe is given more than once.
    """
    protocols: dict[tuple, list[RunData]] = {}
    for run in runs:
        protocols.setdefault(_protocol(run), []).append(run)
    ranked = sorted(
        (_ranked(group_runs(same)) for same in protocols.values()),
        key=lambda groups: len(folders_learned(groups[0].recipe)),
    )
    everyone = [group for groups in ranked for group in groups]
    kept = [
        groups
        for groups in ranked
        if len(groups) > 1 or not any(_continues(other, groups[0]) for other in everyone)
    ]
    keys = [_line_keys(groups) for groups in kept]
    colours = assign_colours(key for of_groups in keys for key in of_groups)
    return [
        Comparison(
            _protocol_in_words(groups[0]),
            groups,
            [colours[key] for key in of_groups],
            f"-{index + 1}" if index else "",
        )
        for index, (groups, of_groups) in enumerate(zip(kept, keys, strict=True))
    ]


def folders_learned(recipe: Record) -> list[str]:
    """Names of the folders that a run learned after the steps of its recipe, in order."""
    return [Path(folder).name for folder in recipe.get("own", {}).get("learn", ())]


def _continues(later: Group, earlier: Group) -> bool:
    return all(any(is_continued(run, before) for run in later.runs) for before in earlier.runs)


def _protocol(run: RunData) -> tuple:
    data = run.recipe.get("data", {})
    values = [data.get(name) for name in ("dataset", "base_fraction", "num_steps", "class_order")]
    source = run.data_sha256 or run.recipe.get("own", {}).get("data")
    return (*map(str, values), source, *folders_learned(run.recipe))


def _protocol_in_words(group: Group) -> str:
    data, learned = group.recipe.get("data", {}), folders_learned(group.recipe)
    words = [str(data.get("dataset") or group.label)]
    if data.get("base_fraction") is not None:
        words.append(f"B = {data['base_fraction']:.0%}")
    words.append(counted(data.get("num_steps", group.last_step + 1), "step"))
    if data.get("class_order") not in (None, "paper", "seed"):
        words.append("classes in a given order")
    if learned:
        words.append(f"then {', '.join(learned)}")
    return ", ".join(words)


def _ranked(groups: list[Group]) -> list[Group]:
    """Best first; those with fewer steps behind those with all."""
    end = max(group.last_step for group in groups)
    means = {group.label: over_seeds(group)["mean"] for group in groups}
    measure = ranking_measure([means[group.label] for group in groups if group.last_step == end])
    return sorted(
        groups, key=lambda group: (group.last_step < end, -means[group.label].fillna(0)[measure])
    )


def ranking_measure(means: Sequence[pd.Series]) -> str:
    """`average`, or `last` where one of the recipes has no average over steps."""
    return "average" if all(mean.notna()["average"] for mean in means) else "last"


def _line_keys(groups: Sequence[Group]) -> list[LineKey]:
    keys: list[LineKey] = []
    for group in groups:
        method = group.recipe.get("method", {})
        key = LineKey(str(method.get("name", group.label)), str(method.get("losses", "host")))
        twins = sum(known[:2] == key[:2] for known in keys)
        keys.append(key._replace(variant=str(twins or "")))
    return keys


UNITS = {"average": 100, "last": 100, "last_nme": 100, "forgetting": 100, "fh": 1000, "seconds": 1}
HIGHEST_IS_BEST = {
    "average": True,
    "last": True,
    "last_nme": True,
    "forgetting": False,
    "fh": False,
}  # the measures that have a best value; the time depends on the machine


def measures(steps: pd.DataFrame) -> dict[str, float]:
    """The numbers of one run.

    Args:
        steps: its steps.csv; `average`, `accuracy_nme`, `forgetting`, `fh` and `seconds` may be
            missing.

    Returns:
        `average`, `last` (the accuracy), `last_nme` and `forgetting` as of the last step; `fh`,
        the mean over steps; `seconds`, their sum. nan for what is missing.

    Example:
        >>> rows = {"step": [0, 1], "accuracy": [1.0, 0.5], "average": [1.0, 0.75]}
        >>> numbers = measures(pd.DataFrame(rows | {"fh": [0.0, 0.25]}))
        >>> numbers["average"], numbers["last"], numbers["fh"]
        (0.75, 0.5, 0.125)
    """
    steps = steps.sort_values("step", kind="stable")
    end = steps.iloc[-1]
    nothing = pd.Series([np.nan])
    numbers = {
        "average": end.get("average", np.nan),
        "last": end["accuracy"],
        "last_nme": end.get("accuracy_nme", np.nan),
        "forgetting": end.get("forgetting", np.nan),
        "fh": steps.get("fh", nothing).mean(),
        "seconds": math.fsum(steps.get("seconds", nothing)),
    }
    return {name: float(value) for name, value in numbers.items()}


def per_run(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """`measures` of every run of many: a row per combination of the keys, in the order met.

    Args:
        rows: the rows of steps.csv of all runs.
        keys: the columns that tell the runs apart, such as method and seed.

    Returns:
        The keys and the measures.
    """
    runs = rows.groupby(list(keys), sort=False)
    return pd.DataFrame([dict(zip(keys, key, strict=True)) | measures(run) for key, run in runs])


def over_seeds(group: Group) -> pd.DataFrame:
    """Mean and standard deviation (n - 1; nan for one seed) of each measure over the finished runs
    of a recipe.
    """
    runs = pd.DataFrame([measures(run.steps) for run in group.runs], columns=list(UNITS))
    return pd.DataFrame({"mean": runs.mean(), "std": runs.std(), "num_seeds": runs.notna().sum()})


class Best(NamedTuple):
    """The best value of a measure among recipes.

    Attributes:
        first: Index of the best recipe.
        second: Index of the recipe after it.
        margin: How far the best is ahead of the second; above 0.
        spread: The larger standard deviation over seeds of the two; nan if one has a single seed.
    """

    first: int
    second: int
    margin: float
    spread: float


def best_of(numbers: Sequence[pd.DataFrame], measure: str) -> Best | None:
    """Find the best recipe by a measure.

    Args:
        numbers: `over_seeds` of each recipe.
        measure: A key of `HIGHEST_IS_BEST`.

    Returns:
        None if fewer than two recipes have a value, or two share the best.

    Example:
        >>> a = pd.DataFrame({"mean": [0.8], "std": [0.01]}, index=["last"])
        >>> b = pd.DataFrame({"mean": [0.5], "std": [0.02]}, index=["last"])
        >>> best = best_of([b, a], "last")
        >>> best.first, round(best.margin, 3), best.spread
        (1, 0.3, 0.02)
    """
    means = pd.Series(
        [of_recipe.loc[measure, "mean"] for of_recipe in numbers], dtype=float
    ).dropna()
    order = means.sort_values(ascending=not HIGHEST_IS_BEST[measure], kind="stable").index
    if len(order) < 2 or means[order[0]] == means[order[1]]:
        return None
    spreads = [float(numbers[place].loc[measure, "std"]) for place in order[:2]]
    margin = abs(means[order[0]] - means[order[1]])
    return Best(int(order[0]), int(order[1]), float(margin), float(np.max(spreads)))


def chance_levels(steps: pd.DataFrame) -> pd.Series:
    """Accuracy of guessing among the classes seen, 1 / their number, at each step.

    Args:
        steps: A run's steps.csv.

    Returns:
        Accuracies indexed by step.

    Example:
        >>> chance_levels(pd.DataFrame({"step": [0, 1], "classes": [2, 4]})).tolist()
        [0.5, 0.25]
    """
    return 1 / steps.set_index("step")["classes"].sort_index()


def per_step(runs: Sequence[RunData], column: str) -> pd.DataFrame:
    """Mean, std and number of seeds of a column of steps.csv at each step; no rows where no run has
    the column.
    """
    rows = [run.steps[["step", column]].dropna() for run in runs if column in run.steps]
    if not rows:
        return pd.DataFrame(columns=["mean", "std", "num_seeds"], dtype=float)
    values = pd.concat(rows).groupby("step")[column]
    return pd.DataFrame({"mean": values.mean(), "std": values.std(), "num_seeds": values.size()})


def predicts_by_means(run: RunData) -> bool:
    """Whether the accuracy in steps.csv is that of the nearest class means: then the counts of the
    head are not the ones to show.
    """
    if run.classes is None or run.classes.get("correct_nme", pd.Series()).isna().all():
        return False
    sums = run.classes.groupby("step")[["correct", "correct_nme", "total"]].sum()
    accuracies = sums[["correct", "correct_nme"]].div(sums["total"], axis=0)
    reported = run.steps.set_index("step")["accuracy"].reindex(sums.index)
    off = accuracies.sub(reported, axis=0).abs().max()
    return bool(off["correct_nme"] < off["correct"])


def class_table(run: RunData) -> pd.DataFrame | None:
    """Accuracy, a row per class in the order of arrival, a column per step; nan before a class
    arrives. Index: brought_in, class, name.
    """
    if run.classes is None:
        return None
    column = "correct_nme" if predicts_by_means(run) else "correct"
    rows = run.classes[run.classes["total"] > 0].copy()
    rows["accuracy"] = rows[column] / rows["total"]
    rows["name"] = _names(rows)
    table = rows.pivot_table(
        index=["brought_in", "class", "name"], columns="step", values="accuracy"
    )
    return table.sort_index()


def shared_class_table(runs: Sequence[RunData]) -> tuple[pd.DataFrame | None, list[int]]:
    """(mean over seeds of `class_table`, the seeds in it). Seeds whose classes arrive in another
    order than the first's are left out.
    """
    tables = {run.seed: table for run in runs if (table := class_table(run)) is not None}
    if not tables:
        return None, []
    first = next(iter(tables.values()))
    alike = {seed: table for seed, table in tables.items() if table.index.equals(first.index)}
    return sum(alike.values()) / len(alike), list(alike)


def falls(table: pd.DataFrame) -> pd.DataFrame:
    """The classes that fell, fastest first: best accuracy, when, the last one, the fall, and the
    fall per step since the best.

    The best is the latest of equals. Columns brought_in, class, name, best, best_step, last, fall,
    fall_per_step; steps as in the CSV.
    """
    best = table.max(axis=1)
    rows = pd.DataFrame(
        {
            "best": best,
            "best_step": table.eq(best, axis=0).iloc[:, ::-1].idxmax(axis=1),
            "last": table.iloc[:, -1],
        }
    ).reset_index()
    rows["fall"] = rows["best"] - rows["last"]
    rows["fall_per_step"] = rows["fall"] / (table.columns[-1] - rows["best_step"])
    return rows[rows["fall"] > 0].sort_values(
        ["fall_per_step", "fall"], ascending=False, kind="stable", ignore_index=True
    )


def never_learned(table: pd.DataFrame, chance: pd.Series) -> list[str]:
    """Names of the classes whose accuracy was never above chance since they arrived.

    Args:
        table: Accuracies, see `class_table`.
        chance: See `chance_levels`.

    Returns:
        The names, in the order of arrival.
    """
    above = table.gt(chance.reindex(table.columns), axis=1).any(axis=1)
    return [str(name) for _, _, name in table.index[~above]]


def confusion_shares(
    runs: Sequence[RunData], step: int, *, by_step: bool = False
) -> pd.DataFrame | None:
    """What the images of each class were predicted as after a step, over all seeds.

    Args:
        runs: Runs whose classes arrive in the same order.
        step: As in the CSV files.
        by_step: Count the classes that arrived together as one.

    Returns:
        Shares of a row's images. Rows as in `class_table`; a column for each row, in the same
        order. None if no run has counts for this step.
    """
    files = [
        (run.confusion, run.classes)
        for run in runs
        if run.confusion is not None and run.classes is not None
    ]
    if not files:
        return None
    counts, classes = map(pd.concat, zip(*files, strict=True))
    counts, classes = (rows[rows["step"] == step] for rows in (counts, classes))
    if counts.empty:
        return None
    classes = classes[classes["total"] > 0].drop_duplicates("class")
    classes = classes.sort_values(["brought_in", "class"])
    rows = classes[["brought_in", "class"]].assign(name=_names(classes), id=classes["class"])
    if by_step:
        arrival = classes.set_index("class")["brought_in"]
        counts = counts.assign(**{side: counts[side].map(arrival) for side in SIDES})
        rows = rows.assign(**{"class": rows["brought_in"], "id": rows["brought_in"]})
        rows["name"] = [f"from step {step + 1}" for step in rows["brought_in"]]
        rows = rows.drop_duplicates("id")
    images = counts.groupby(list(SIDES))["count"].sum().unstack(fill_value=0)
    shares = images.div(images.sum(axis=1), axis=0)
    shares = shares.reindex(index=rows["id"], columns=rows["id"], fill_value=0.0)
    return shares.set_axis(pd.MultiIndex.from_frame(rows[["brought_in", "class", "name"]]))


def _names(classes: pd.DataFrame) -> pd.Series:
    return classes["name"].fillna(classes["class"]).astype(str)


def predicted_as(shares: pd.DataFrame, class_id: int, most: int = 3) -> list[tuple[str, float]]:
    """(name, share of its images) of the wrong classes that a class is most often predicted as.

    Args:
        shares: `confusion_shares` by class.
        class_id: The class.
        most: How many to name.
    """
    names = dict(zip(shares.columns, shares.index.get_level_values("name"), strict=True))
    row = shares.xs(class_id, level="class").iloc[0].drop(class_id).sort_index()
    wrong = row[row > 0].sort_values(ascending=False, kind="stable").head(most)
    return [(names[other], float(share)) for other, share in wrong.items()]


def learned_step(run: RunData, step: int) -> Json | None:
    """What a step added to a run and what it cost: the number of new classes, and the accuracies
    of the old ones before and after it and of the new ones. None if the run has no counts of
    classes.
    """
    if run.classes is None:
        return None
    column = "correct_nme" if predicts_by_means(run) else "correct"
    new = run.classes["brought_in"] == step
    after, before = (run.classes["step"] == at for at in (step, step - 1))
    sums = {
        name: run.classes.loc[rows, [column, "total"]].sum()
        for name, rows in (
            ("old_before", before & ~new),
            ("old_after", after & ~new),
            ("new", after & new),
        )
    }
    accuracies = {name: float(sums[name][column] / sums[name]["total"]) for name in sums}
    return {"num_new": int((after & new).sum()), **accuracies}


def training_columns(train: pd.DataFrame) -> list[str]:
    """The columns of train.csv that are loss terms, or are about the weights of GFC, and hold a
    number.
    """
    about_weights = ("weight_spread", "alone_fraction")
    return [
        column
        for column in map(str, train)
        if (column.startswith(LOSS) or column in about_weights) and train[column].notna().any()
    ]


def over_epochs(runs: Sequence[RunData], column: str) -> pd.DataFrame:
    """Mean and std over seeds of a column of train.csv at each row of training, counted through the
    run; with the step of each.
    """
    rows = [
        run.train.reset_index(names="row")[["row", "step", column]]
        for run in runs
        if run.train is not None and column in run.train
    ]
    values = pd.concat(rows).groupby("row")
    return pd.DataFrame(
        {"step": values["step"].first(), "mean": values[column].mean(), "std": values[column].std()}
    )
