"""Corrections for schemes and looks: Holm against statsmodels (their error in whole comparisons: coverage.py)."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from r2mae.evaluation import corrected_p_values, holm, level_of_look, mean_interval, paired_difference

CHANCES = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=12)


@given(CHANCES)
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    np.testing.assert_allclose(holm(p_values), multipletests(p_values, method="holm")[1])


def test_all_looks_together_take_the_error() -> None:
    levels = [level_of_look(look) for look in range(1, 60)]
    assert levels[0] == pytest.approx(0.04) and all(a > b for a, b in pairwise(levels))
    assert sum(levels) == pytest.approx(0.05)


def test_the_p_value_is_that_of_the_interval() -> None:
    values = [0.1, 0.4, 0.2, 0.5]
    assert mean_interval(values).p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert paired_difference(values, [0.0, 0.1, 0.3, 0.2]).p == pytest.approx(
        stats.ttest_rel(values, [0.0, 0.1, 0.3, 0.2]).pvalue
    )
    assert np.isnan(mean_interval([0.1]).p)


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="p-values contains NaN"):
        holm([0.1, np.nan])
    with pytest.raises(ValueError, match="counted from 1"):
        corrected_p_values([0.1], looks=0)
