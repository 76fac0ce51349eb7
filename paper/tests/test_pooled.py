"""The average effect over sets, against statsmodels (its coverage: tests/evaluation/coverage.py)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.meta_analysis import combine_effects

from r2mae_paper.gains import pooled_effect


@pytest.mark.parametrize("seed", range(6))
def test_equals_statsmodels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    errors = rng.uniform(0.1, 0.4, size=seed + 2)
    effects = rng.normal(1.0, 1.0, size=seed + 2)
    found = pooled_effect(effects, errors)
    expected = combine_effects(effects, errors**2, method_re="iterated", use_t=True, atol=1e-10)
    assert found.between**2 == pytest.approx(expected.tau2, abs=1e-5)
    assert found.mean == pytest.approx(expected.mean_effect_re, abs=1e-5)
    low, high = expected.conf_int(use_t=True)[3]  # random effects, scale estimated (Hartung and Knapp)
    if expected.tau2 > 0:  # else ours is never narrower than the errors within sets allow
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


numbers = st.floats(-3, 3).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(numbers, st.floats(0.01, 2)), min_size=2, max_size=8))
def test_the_deviation_between_sets_solves_its_equation(sets: list[tuple[float, float]]) -> None:
    effects, errors = map(np.array, zip(*sets, strict=True))
    found = pooled_effect(effects, errors)
    weights = 1 / (errors**2 + found.between**2)
    spread = (weights * (effects - np.average(effects, weights=weights)) ** 2).sum()
    assert spread == pytest.approx(len(sets) - 1, rel=1e-3) if found.between > 0 else spread <= len(sets) - 1 + 1e-9
    assert found.low <= found.mean <= found.high


def test_sets_that_agree_by_chance_decide_nothing() -> None:
    found = pooled_effect([1.0, 1.2, 0.9], [5.0, 5.0, 5.0])
    assert found.low < -5 < 5 < found.high


def test_few_sets() -> None:
    one = pooled_effect([0.3], [0.1])
    assert (one.mean, one.sets) == (0.3, 1)
    assert np.isnan(one.low)
    same = pooled_effect([0.5, 0.5, 0.5], [0.0, 0.0, 0.0])
    assert (same.low, same.mean, same.high, same.between) == pytest.approx((0.5, 0.5, 0.5, 0.0))


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=5),
    st.floats(-20, 0).map(lambda power: 10**power),
    st.floats(0, 1e-10),
)
def test_effects_that_differ_only_by_rounding_have_a_result(steps: list[int], size: float, error: float) -> None:
    """As of a row that is another one under a second name."""
    found = pooled_effect([0.1 + size * 1e-3 * step for step in steps], [error * (1 + step) ** 2 for step in steps])
    assert found.low <= found.mean <= found.high
    assert found.mean == pytest.approx(0.1, abs=0.01)


def test_a_set_with_equal_differences_has_a_finite_weight() -> None:
    found = pooled_effect([0.0, 1.0, 2.0], [0.0, 0.5, 0.7])
    default = pooled_effect([0.0, 1.0, 2.0], [0.6, 0.5, 0.7])
    assert (found.mean, found.low, found.high) == pytest.approx((default.mean, default.low, default.high))
