"""Power of paired differences: against tables, and how its numbers belong together (by simulation: coverage.py)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.evaluation.power import MOST_SEEDS, detectable, seeds_needed

SDS = st.floats(1e-6, 1e3)


def test_values_of_published_tables() -> None:
    """A paired t test, two-sided at 5 %, power 80 %: 34 pairs for 0.5 standard deviations, 15 for 0.8, 10 for 1."""
    assert [seeds_needed(1.0, size) for size in (0.5, 0.8, 1.0)] == [34, 15, 10]


@given(SDS, st.integers(2, 60), st.floats(0.5, 0.99))
def test_more_seeds_decide_smaller_differences(sd: float, n: int, confidence: float) -> None:
    few, more = detectable(sd, n, confidence=confidence), detectable(sd, n + 1, confidence=confidence)
    assert 0 < more < few
    assert detectable(2 * sd, n, confidence=confidence) == pytest.approx(2 * few)


@given(SDS, st.floats(0.2, 5))
def test_seeds_needed_are_the_fewest_that_decide(sd: float, ratio: float) -> None:
    n = seeds_needed(sd, ratio * sd)
    assert n is not None
    assert detectable(sd, n) <= ratio * sd
    assert n == 2 or detectable(sd, n - 1) > ratio * sd


def test_unknown_spreads_and_single_pairs() -> None:
    assert math.isinf(detectable(1.0, 1))
    assert math.isnan(detectable(0.0, 5)) and math.isnan(detectable(math.nan, 5))
    assert seeds_needed(1.0, 1e-9) is None and detectable(1.0, MOST_SEEDS) > 1e-9
    assert seeds_needed(math.nan, 1.0) is None and seeds_needed(1.0, 0.0) is None
