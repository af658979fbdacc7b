"""Which differences are none: those that scipy's paired t-test does not find."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from avalanche_hfc.report.numbers import Difference


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 12])
def test_a_difference_is_none_where_a_paired_t_test_does_not_find_it(num_seeds):
    random = np.random.default_rng(num_seeds)
    found = []
    for _ in range(200):
        first, second = random.normal(size=(2, num_seeds))
        first += random.uniform(0, 8 / math.sqrt(num_seeds))
        own = Difference.of(pd.Series(first - second))
        assert own.mean == pytest.approx(first.mean() - second.mean())
        found.append(own.none)
        assert own.none == (ttest_rel(first, second).pvalue > 0.05)
        assert own.sign == (not own.none) * np.sign(own.mean)
    assert 10 < sum(found) < 190  # both are met


def test_zero_is_no_difference_and_of_one_seed_nothing_is_said():
    assert Difference(0.0, 0.0, 3).none and not Difference(0.1, 0.0, 3).none
    assert not Difference.of(pd.Series([0.1])).none
    assert math.isnan(Difference.of(pd.Series([0.1])).error)
