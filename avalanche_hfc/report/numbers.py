"""What a report says, as numbers: pure functions of a run's data frames. Accuracies are fractions
in [0, 1].
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from avalanche_hfc._types import Json
from avalanche_hfc.lab.read import Group, RunData
from avalanche_hfc.lab.run_folder import LOSS

NO_DIFFERENCE = "(none)"
TEST = "a paired t-test at the 5 % level"
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
    if (
        run.classes is None
        or "correct_nme" not in run.classes
        or run.classes["correct_nme"].isna().all()
    ):
        return False
    sums = run.classes.groupby("step")[["correct", "correct_nme", "total"]].sum()
    reported = run.steps.set_index("step")["accuracy"].reindex(sums.index)
    head, means = (
        (sums[column] / sums["total"] - reported).abs().max()
        for column in ("correct", "correct_nme")
    )
    return bool(means < head)


def class_table(run: RunData) -> pd.DataFrame | None:
    """Accuracy, a row per class in the order of arrival, a column per step; nan before a class
    arrives. Index: brought_in, class, name.
    """
    if run.classes is None:
        return None
    column = "correct_nme" if predicts_by_means(run) else "correct"
    rows = run.classes[run.classes["total"] > 0].copy()
    rows["accuracy"] = rows[column] / rows["total"]
    rows["name"] = rows["name"].fillna(rows["class"]).astype(str)
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
    steps, values = table.columns.to_numpy(), table.to_numpy()
    rows = table.index.to_frame(index=False)
    rows["best"] = table.max(axis=1).to_numpy()
    rows["best_step"] = steps[::-1][
        (values == rows["best"].to_numpy()[:, None])[:, ::-1].argmax(axis=1)
    ]
    rows["last"] = values[:, -1]
    rows["fall"] = rows["best"] - rows["last"]
    rows = rows[rows["fall"] > 0]
    rows = rows.assign(fall_per_step=rows["fall"] / (steps[-1] - rows["best_step"]))
    return rows.sort_values(
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
    known = [run for run in runs if run.confusion is not None and run.classes is not None]
    counts = pd.concat([run.confusion for run in known]) if known else pd.DataFrame({"step": []})
    counts = counts[counts["step"] == step]
    if counts.empty:
        return None
    classes = pd.concat([run.classes for run in known])
    classes = classes[(classes["step"] == step) & (classes["total"] > 0)].drop_duplicates("class")
    if by_step:
        arrival = classes.set_index("class")["brought_in"]
        counts = counts.assign(
            **{side: counts[side].map(arrival) for side in ("class", "predicted")}
        )
        steps = sorted(set(arrival))
        rows = [(arrived, arrived, f"from step {arrived + 1}") for arrived in steps]
    else:
        ordered = classes.sort_values(["brought_in", "class"])
        names = ordered["name"].fillna(ordered["class"]).astype(str)
        rows = list(zip(ordered["brought_in"], ordered["class"], names, strict=True))
    ids = [class_id for _, class_id, _ in rows]
    images = counts.pivot_table(
        index="class", columns="predicted", values="count", aggfunc="sum", fill_value=0
    )
    shares = images.div(images.sum(axis=1), axis=0).reindex(index=ids, columns=ids, fill_value=0.0)
    shares.index = pd.MultiIndex.from_tuples(rows, names=["brought_in", "class", "name"])
    return shares


class LearnedStep(NamedTuple):
    """Accuracies on both sides of a step: of the old classes before and after it, and of the new
    ones.
    """

    num_new: int
    old_before: float
    old_after: float
    new: float


def learned_step(run: RunData, step: int) -> LearnedStep | None:
    """What a step added to a run and what it cost.

    Args:
        run: The run.
        step: As in the CSV files, not the first.

    Returns:
        None if the run has no counts of classes.
    """
    if run.classes is None:
        return None
    column = "correct_nme" if predicts_by_means(run) else "correct"
    new = run.classes["brought_in"] == step
    after, before = (run.classes["step"] == at for at in (step, step - 1))
    accuracies = []
    for rows in (before & ~new, after & ~new, after & new):
        sums = run.classes.loc[rows, [column, "total"]].sum()
        accuracies.append(float(sums[column] / sums["total"]))
    return LearnedStep(int((after & new).sum()), *accuracies)


def predicted_as(
    runs: Sequence[RunData], class_id: int, step: int, most: int = 3
) -> list[tuple[str, float]]:
    """(name, share of the class's images) of the wrong classes that its images are most often
    predicted as, after a step; all seeds together.
    """
    counts = pd.concat(
        [run.confusion for run in runs if run.confusion is not None]
        or [pd.DataFrame(columns=["step", "class"])]
    )
    of_class = counts[(counts["step"] == step) & (counts["class"] == class_id)]
    if of_class.empty:
        return []
    images = of_class.groupby("predicted")["count"].sum()
    wrong = images.drop(class_id, errors="ignore").sort_values(ascending=False, kind="stable")
    named = [run.classes for run in runs if run.classes is not None]
    names = {
        key: name
        for classes in named
        for key, name in zip(classes["class"], classes["name"], strict=True)
    }
    return [
        (str(names.get(key, key)), float(count / images.sum()))
        for key, count in wrong.head(most).items()
    ]


def loss_terms(train: pd.DataFrame) -> list[str]:
    """The columns of train.csv that are loss terms and hold a number."""
    return [
        column for column in train if str(column).startswith(LOSS) and train[column].notna().any()
    ]


def activity(train: pd.DataFrame) -> dict[str, Json]:
    """Whether GFC and GRD act: `spread`, `alone` and `relation`, each with its column and its mean
    from the second step on.

    What the run did not write is left out; the mean is nan where there is no second step.
    """
    later = train[train["step"] > train["step"].min()]
    relation = next((column for column in loss_terms(train) if "relation" in column), "")
    columns = {"spread": "weight_spread", "alone": "alone_fraction", "relation": relation}
    present = {
        word: column
        for word, column in columns.items()
        if column in train and train[column].notna().any()
    }
    return {
        word: {"column": column, "mean": float(later[column].mean())}
        for word, column in present.items()
    }


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
