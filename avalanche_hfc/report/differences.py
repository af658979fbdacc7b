"""Differences between methods, paired by seed, and which of them are none."""

from typing import NamedTuple

import pandas as pd

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
