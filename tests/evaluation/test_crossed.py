"""Intervals over seeds and items: against the analysis of variance by hand, and how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2mae.evaluation import Difference, crossed_difference, mean_interval
from r2mae.evaluation.pairing import components


def table(seeds: int, items: int, sds: tuple[float, float, float], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a, b, e = (
        sd * rng.normal(size=shape) for sd, shape in zip(sds, ((seeds, 1), (1, items), (seeds, items)), strict=True)
    )
    return np.asarray(a + b + e)


def crossed_interval(scores: np.ndarray) -> Difference:
    return crossed_difference(scores, np.zeros_like(scores))


def test_components_are_those_of_the_analysis_of_variance() -> None:
    scores = np.array([[1.0, 3.0, 2.0], [2.0, 6.0, 4.0]])
    # By hand: mean 3; rows 2, 4; columns 1.5, 4.5, 3. Mean squares: 3·2 = 6, 2·2.25 = 4.5, rest 1/2 = 0.5.
    found = components(scores)
    assert found.seeds == pytest.approx((6 - 0.5) / 6)
    assert found.items == pytest.approx((4.5 - 0.5) / 6)
    assert found.rest == pytest.approx(0.5 / 6)
    assert found.variance == pytest.approx(10 / 6)
    assert found.df == pytest.approx(10**2 / (6**2 / 1 + 4.5**2 / 2 + 0.5**2 / 2))


def test_with_equal_items_it_is_the_interval_over_seeds() -> None:
    scores = np.repeat([[1.0], [2.0], [6.0]], 500, axis=1)
    over, alone = crossed_interval(scores), mean_interval([1.0, 2.0, 6.0])
    np.testing.assert_allclose([over.mean, over.low, over.high], [alone.mean, alone.low, alone.high])
    assert (over.n, over.method) == (3, "crossed t")


def test_with_equal_seeds_it_is_the_interval_over_items() -> None:
    items = np.random.default_rng(0).normal(size=400)
    found = crossed_interval(np.repeat(items[None], 3, axis=0))
    low, high = stats.t.interval(0.95, 399, loc=items.mean(), scale=stats.sem(items))
    np.testing.assert_allclose([found.low, found.high], [low, high])


@given(st.integers(2, 5), st.integers(2, 30), st.integers(0, 99), st.floats(-5, 5), st.floats(0.1, 10))
def test_intervals_are_equivariant(seeds: int, items: int, seed: int, shift: float, scale: float) -> None:
    scores = table(seeds, items, (1.0, 2.0, 3.0), seed)
    one, other = crossed_interval(scores), crossed_interval(shift + scale * scores)
    ends = [one.mean, one.low, one.high]
    np.testing.assert_allclose([other.mean, other.low, other.high], shift + scale * np.array(ends), atol=1e-8)
    flipped = crossed_interval(scores[::-1, ::-1])
    np.testing.assert_allclose([flipped.mean, flipped.low, flipped.high], ends, atol=1e-9)
    parts = components(scores)
    assert parts.variance >= max(np.var(scores.mean(1), ddof=1) / seeds, np.var(scores.mean(0), ddof=1) / items) - 1e-12
    assert parts.df >= seeds - 1


def test_a_difference_is_paired_by_seeds_and_items() -> None:
    both = table(3, 800, (1.0, 1.0, 0.05))
    a = both + 0.01 + 0.002 * table(3, 800, (0.0, 0.0, 1.0), 1)
    found = crossed_difference(a, both)
    assert found.verdict == "better"
    assert crossed_difference(a, both, higher_is_better=False).verdict == "worse"
    assert found.mean == pytest.approx(0.01, abs=1e-3)
    assert crossed_difference(both, both).verdict == "undecided"
    equal = crossed_difference(both + 1.0, both)  # no spread is known
    assert (equal.verdict, equal.method) == ("undecided", "none") and np.isnan(equal.low)


@pytest.mark.parametrize(
    ("a", "b"),
    [(np.ones((1, 5)), np.ones((1, 5))), (np.ones((3, 5)), np.ones((3, 6))), (np.ones(5), np.ones(5)),
     (np.full((3, 5), np.nan), np.ones((3, 5)))],
)  # fmt: skip
def test_wrong_tables_are_refused(a: np.ndarray, b: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"seeds|NaN|dimension"):
        crossed_difference(a, b)


def test_coverage_for_right_and_wrong_answers() -> None:
    """Differences of correctness are −1, 0 and 1, and far from normal."""
    rng = np.random.default_rng(4)
    hard, inside, draws = rng.normal(0, 1.5, (400, 1, 300)), 0, 400
    for draw in range(draws):
        items = hard[draw]
        seed_effect = 0.1 * rng.normal(size=(2, 4, 1))
        right = rng.random((2, 4, 300)) < 1 / (1 + np.exp(-(1 + items + seed_effect)))
        found = crossed_difference(right[0].astype(float), right[1].astype(float))
        inside += found.low <= 0 <= found.high
    assert 0.93 <= inside / draws <= 1.0
