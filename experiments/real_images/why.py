"""Sentences on what changes the accuracy, and on what FH tells of it."""

import pandas as pd

from avalanche_hfc.report.differences import TEST, Difference

LEAST_ROWS = 4  # of which a rank correlation is worth a sentence


def above(added: pd.DataFrame) -> str:
    """Which changes raise the average of a default.

    Args:
        added: The average of each change minus that of the default: a row per change, a column per
            seed.

    Returns:
        A sentence; empty where a change has one seed, of which nothing can be said.
    """
    found = {name: Difference.of(each.dropna()) for name, each in added.iterrows()}
    if not found or any(own.num_seeds < 2 for own in found.values()):
        return ""
    told = [
        f"{name} ({own.mean:+.1f} ± {own.error:.1f})"
        for name, own in sorted(found.items(), key=lambda entry: -entry[1].mean)
        if own.sign > 0
    ]
    return f"Above the default, by {TEST}: {'; '.join(told) or 'nothing'}.\n"


def fh_alone(numbers: pd.DataFrame) -> str:
    """Whether a low FH goes with a high average: the row with the lowest FH, and the rank
    correlation over rows.

    Args:
        numbers: `average` and `fh` of each row, means over seeds; rows are named by the index.

    Returns:
        A sentence; empty for fewer than `LEAST_ROWS` rows, or where all of them are equal.
    """
    known = numbers[["average", "fh"]].dropna()
    if len(known) < LEAST_ROWS or (known.nunique() == 1).any():
        return ""
    lowest = known["fh"].idxmin()
    place = int(known["average"].rank(ascending=False, method="min")[lowest])
    correlation = known["average"].corr(known["fh"], method="spearman")
    return (
        f"The lowest FH, {known.at[lowest, 'fh']:.1f}, is that of {lowest}, number {place} of "
        f"{len(known)} by the average; the rank correlation of FH and average over these rows is "
        f"{correlation:+.2f}.\n"
    )
