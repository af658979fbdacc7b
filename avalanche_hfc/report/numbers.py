"""What a report says, as numbers: pure functions of a run's data frames. Accuracies are fractions
in [0, 1].
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from avalanche_hfc._types import Json
from avalanche_hfc.store.read import Group, RunData
from avalanche_hfc.store.run_folder import LOSS

UNITS = {"average": 100, "last": 100, "last_nme": 100, "forgetting": 100, "fh": 1000, "seconds": 1}


def measures(steps: pd.DataFrame) -> dict[str, float]:
    """The numbers of one run.

    Args:
        steps: its steps.csv; `average`, `accuracy_nme`, `forgetting`, `fh` and `seconds` may be
            missing.

    Returns:
        `average`, the mean over steps; `last`, the accuracy after the last step; `last_nme` and
        `forgetting` after the last step; `fh`, the mean over steps; `seconds`, their sum. nan for
        what is missing.

    Example:
        >>> rows = pd.DataFrame({"step": [0, 1], "accuracy": [1.0, 0.5], "fh": [0.0, 0.25]})
        >>> measures(rows)["average"], measures(rows)["last"], measures(rows)["fh"]
        (0.75, 0.5, 0.125)
    """
    steps = steps.sort_values("step", kind="stable")
    end = steps.iloc[-1]
    nothing = pd.Series([np.nan])
    numbers = {
        "average": end.get("average", steps["accuracy"].mean()),
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
    told = run.steps.set_index("step")["accuracy"].reindex(sums.index)
    head, means = (
        (sums[column] / sums["total"] - told).abs().max() for column in ("correct", "correct_nme")
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
    own = counts[(counts["step"] == step) & (counts["class"] == class_id)]
    if own.empty:
        return []
    images = own.groupby("predicted")["count"].sum()
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
    found = {
        word: column
        for word, column in columns.items()
        if column in train and train[column].notna().any()
    }
    return {
        word: {"column": column, "mean": float(later[column].mean())}
        for word, column in found.items()
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
