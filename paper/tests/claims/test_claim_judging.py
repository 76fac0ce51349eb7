"""The rules from numbers to verdicts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae_paper.claims.claim import MEANING, Word, summed, typeset
from r2mae_paper.claims.judging import (
    above_lowest,
    largest_fall,
    near_lowest,
    of_difference,
    of_each,
    of_errors,
    of_fit,
    of_level,
    of_most,
    of_none,
    of_share,
    over,
)

NUMBERS = st.floats(-10, 10)
WIDTHS = st.floats(0.001, 5)
NONE = (1.0, math.nan, math.nan)


@given(NUMBERS, WIDTHS, st.none() | NUMBERS, st.booleans())
def test_a_difference_shows_a_claim_only_if_its_interval_does(
    mean: float, half: float, paper: float | None, same: bool
) -> None:
    low, high = mean - half, mean + half
    verdict = of_difference((mean, low, high), "", paper=paper, same=same).verdict
    assert (verdict in ("reproduced", "direction only")) == (low > 0)
    if verdict == "reproduced":
        assert same
        assert paper is None or low <= paper <= high
    if high < 0:
        assert verdict == "not reproduced"
    if low <= 0 <= high:
        excluded = same and paper is not None and not low <= paper <= high
        assert verdict == ("not reproduced" if excluded else "undecided")


@given(NUMBERS, WIDTHS, st.floats(0.01, 2), st.booleans())
def test_no_difference_holds_if_the_whole_interval_is_small(
    mean: float, half: float, margin: float, same: bool
) -> None:
    low, high = mean - half, mean + half
    verdict = of_none((mean, low, high), "", margin=margin, same=same).verdict
    assert (verdict in ("reproduced", "direction only")) == (-margin <= low and high <= margin)
    assert (verdict == "not reproduced") == (low > margin or high < -margin)
    assert same or verdict != "reproduced"


def test_a_level_is_compared_where_data_are_the_papers_alone() -> None:
    assert of_level((0.5, 0.4, 0.6), "", paper=0.55, precise=0.2).verdict == "reproduced"
    assert of_level((0.5, 0.4, 0.6), "", paper=0.65, precise=0.2).verdict == "not reproduced"
    assert of_level((0.5, 0.4, 0.6), "", paper=0.55, precise=0.2, same=False).verdict == "undecided"
    assert of_level(NONE, "", paper=1.0, precise=0.2).verdict == "undecided"
    wide = of_level((0.5, 0.4, 0.6), "", paper=0.55, precise=0.05)
    assert (wide.verdict, "too wide" in wide.reason) == ("undecided", True)


def test_where_no_gain_is_claimed_a_loss_is_as_good_as_none() -> None:
    for found, word in (
        ((-1.0, -2.0, 0.0), "reproduced"),
        ((0.0, -0.1, 0.3), "undecided"),
        ((1.0, 0.5, 2.0), "not reproduced"),
    ):
        assert of_none(found, "", margin=0.2, one_sided=True).verdict == word
    assert of_none((-1.0, -2.0, -0.5), "", margin=0.2).verdict == "not reproduced"


def test_without_an_interval_nothing_is_decided() -> None:
    assert of_difference(NONE, "").verdict == "undecided"
    assert of_none(NONE, "", margin=2).verdict == "undecided"
    for values in ([0.1], [0.1, 0.1, 0.1]):
        mean, low, high = over(values)
        assert (mean, math.isnan(low), math.isnan(high)) == (0.1, True, True), "equal values say nothing of a spread"


def test_a_share_has_its_exact_interval() -> None:
    found = of_share(0, 10, "", paper=0.8)
    assert (found.verdict, found.ours, found.low) == ("not reproduced", 0, 0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 10)), "Clopper and Pearson"
    assert of_share(10, 10, "", paper=0.8).verdict == "reproduced"
    assert of_share(5, 10, "").verdict == "undecided"
    assert of_share(10, 10, "", same=False).verdict == "direction only"


def test_a_formula_fits_by_its_median_and_its_worst_point() -> None:
    predicted = np.ones(20)
    assert of_fit(1.01 * predicted, predicted, "").verdict == "reproduced"
    assert of_fit(1.01 * predicted, predicted, "", same=False).verdict == "direction only"
    worst = np.where(np.arange(20) == 3, 1.2, 1.01)
    assert of_fit(worst, predicted, "").verdict == "not reproduced", "one point is off by a fifth"
    assert of_fit(1.2 * predicted, predicted, "").verdict == "not reproduced"
    assert of_fit(1.01 * predicted, predicted, "").ours == pytest.approx(1)


def test_several_cases_are_as_good_as_the_weakest() -> None:
    good, better, bad = (of_difference((mean, mean - 1, mean + 1), "") for mean in (2.0, 3.0, -2.0))
    assert of_most([better, good], "why").low == good.low
    assert of_most([good, bad, better], "why").verdict == "not reproduced"
    assert of_most([good], "why").reason == "why"


@given(st.lists(NUMBERS, min_size=3, max_size=9))
def test_the_largest_fall_is_negative_unless_the_curve_rises(values: list[float]) -> None:
    curve = np.array(values)
    (fall, low, high), first, last = largest_fall(curve, np.full(len(curve), 0.1))
    assert first < last
    assert fall == pytest.approx(curve[last] - curve[first])
    assert low < fall < high
    assert (fall >= 0) == bool((np.diff(curve) >= 0).all())


def test_more_comparisons_have_wider_intervals() -> None:
    one, many = of_errors(1.0, 0.1), of_errors(1.0, 0.1, comparisons=10)
    assert one[1] == pytest.approx(1 - 0.196, abs=1e-3)
    assert many[1] < one[1] < one[2] < many[2]
    values = [0.1, 0.2, 0.25]
    assert over(values, 5)[1] < over(values)[1]


def test_one_of_several_cases_refutes_by_a_corrected_interval_alone() -> None:
    slightly, clearly = (np.array([-1.0, -1.2, -0.8, -1.1]) + shift for shift in (0.75, 0.0))
    assert [one.verdict for one in of_each([slightly], same=True)] == ["not reproduced"]
    assert [one.verdict for one in of_each([slightly] * 4, same=True)] == ["undecided"] * 4
    assert [one.verdict for one in of_each([slightly], same=True, comparisons=4)] == ["undecided"]
    assert [one.verdict for one in of_each([clearly, -slightly], same=True)] == ["not reproduced", "reproduced"]


def test_a_flat_curve_has_no_lowest_point() -> None:
    """The lowest of many inner points is chosen, and its interval corrected for that."""
    rng = np.random.default_rng(0)
    shown = [above_lowest(rng.normal(size=40), np.ones(40))[1] > 0 for _ in range(1000)]
    assert np.mean(shown) < 0.05


def test_the_lowest_point_of_a_curve() -> None:
    errors = np.full(5, 0.1)
    valley = np.array([3.0, 1.0, 0.9, 2.0, 5.0])
    assert above_lowest(valley, errors)[0] == pytest.approx(2.1), "from the lower end"
    assert above_lowest(np.arange(5.0), errors)[0] == -1, "a rising curve has no inner minimum"
    assert near_lowest(valley, errors).tolist() == [False, True, True, False, False]


WORDS = st.lists(st.sampled_from(sorted(MEANING)), min_size=1, max_size=9)


@given(WORDS)
def test_a_sum_is_reproduced_only_if_all_that_can_be_tested_is(words: list[Word]) -> None:
    tested = [word for word in words if word != "not testable here"]
    verdict = summed(words)
    assert (verdict == "reproduced") == (bool(tested) and set(tested) == {"reproduced"})
    assert (verdict == "not testable here") == (not tested)
    shown = tested.count("reproduced") + tested.count("direction only")
    refuted = tested.count("not reproduced")
    assert (verdict == "not reproduced") == (refuted > 0 and refuted >= shown)
    if verdict == "direction only":
        assert "undecided" not in words
        assert "not run" not in words


def test_minus_signs_are_typeset_before_numbers_alone() -> None:
    minus = "\N{MINUS SIGN}"
    assert typeset("a -0.5 (-1 to -0.2), covid-19, 3-4") == f"a {minus}0.5 ({minus}1 to {minus}0.2), covid-19, 3-4"
