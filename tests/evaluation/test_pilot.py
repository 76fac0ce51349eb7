"""Plans for seeds and items, against simulation and against the interval of the report."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.evaluation.crossed import MeanSquares, components, mean_squares, t_interval, with_verdict
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.pairing import compare_paired
from r2mae.evaluation.pilot import Pilot, pilot_of
from r2mae.evaluation.power import MOST_SEEDS, detectable, seeds_needed, upper_limit

SQUARES = st.floats(1e-6, 1e3)


def rows(seeds: int, items: int, sds: tuple[float, float, float], rng: Any) -> Any:
    """Return differences around 0, seeds × items, with these standard deviations of seeds, items and the rest."""
    noise = sds[2] * rng.normal(size=(seeds, items))
    return sds[0] * rng.normal(size=(seeds, 1)) + sds[1] * rng.normal(size=(1, items)) + noise


def kept(table: Any) -> list[ItemScores | None]:
    return [ItemScores("f", table.shape[1], {"error": row.astype(np.float32)}) for row in table]


def pilot(table: Any) -> Pilot:
    nothing = np.zeros_like(table)
    return pilot_of(table.mean(1), nothing.mean(1), kept(table), kept(nothing), "error")


def test_for_the_pilots_own_seeds_the_plan_is_the_report() -> None:
    table = rows(4, 300, (0.1, 1.0, 0.5), np.random.default_rng(0)).astype(np.float32).astype(np.float64)
    nothing = np.zeros_like(table)
    shown = compare_paired(table.mean(1), nothing.mean(1), kept(table), kept(nothing), "error", higher_is_better=True)
    found = pilot(table)
    assert (found.over(4), shown.over) == (("seeds and items", "shared"), "seeds and items")
    assert found.smallest_detectable(4) == pytest.approx(shown.smallest_detectable)
    assert found.difference == pytest.approx(shown.difference.mean)
    assert found.sd == pytest.approx(table.mean(1).std(ddof=1))


def test_plans_from_many_pilots_predict_what_more_seeds_decide() -> None:
    """Twelve seeds, planned from the mean squares that four have in the mean, decide that difference 4 times in 5."""
    sds, n_items, rng = (0.05, 1.0, 0.5), 200, np.random.default_rng(1)
    expected = MeanSquares(0.25 + 200 * 0.05**2, 0.25 + 4 * 1.0, 0.25, 4, n_items, n_items)
    found = np.mean([
        (one.seeds, one.items, one.rest)
        for one in (mean_squares(rows(4, n_items, sds, rng)) for _ in range(400))
    ], axis=0)  # fmt: skip
    assert found == pytest.approx((expected.seeds, expected.items, expected.rest), rel=0.1)
    size = Pilot(4, 0.0, 0.1, "shared", expected).smallest_detectable(12)
    decided = 0
    for _ in range(400):
        table = size + rows(12, n_items, sds, rng)
        interval = t_interval(float(table.mean()), components(table), 12)
        decided += with_verdict(interval, higher_is_better=True).verdict == "better"
    assert decided / 400 == pytest.approx(0.8, abs=0.06)
    assert expected.items_sd == pytest.approx(1.0 / math.sqrt(n_items))


@given(SQUARES, SQUARES, SQUARES, st.integers(2, 10), st.integers(2, 5000), st.integers(3, 60))
def test_more_seeds_decide_no_larger_differences_but_never_less_than_items_allow(
    seeds: float, items: float, rest: float, n_seeds: int, n_items: int, planned: int
) -> None:
    squares = MeanSquares(seeds, items, rest, n_seeds, n_items, n_items)
    found = Pilot(n_seeds, 0.0, 1.0, "shared", squares)
    few, more = found.smallest_detectable(planned), found.smallest_detectable(planned + 1)
    assert more <= few * 1.01, "degrees of freedom are approximate"
    assert more > found.items_sd * 1.9
    assert found.with_upper_limits(0.8).smallest_detectable(planned) >= few * 0.8, (
        "nearly equal means of the seeds have more degrees"
    )
    assert squares.for_seeds(n_seeds) == squares, "a plan for the pilot's seeds is what the report message"
    needed = found.seeds_needed(1.0)
    assert needed is None or (needed >= 3 and found.smallest_detectable(needed) <= 1.0)
    assert needed is None or needed == 3 or found.smallest_detectable(needed - 1) > 1.0
    assert needed is not None or found.smallest_detectable(MOST_SEEDS) > 1.0


def test_no_number_of_seeds_decides_what_items_hide() -> None:
    table = rows(5, 100, (0.001, 1.0, 0.01), np.random.default_rng(2))
    found = pilot(table)
    assert found.items_sd == pytest.approx(0.1, rel=0.3)
    assert found.seeds_needed(0.1) is None
    assert seeds_needed(found.sd, 0.1) is not None, "seeds alone would say that a few are enough"
    assert found.smallest_detectable(2) == detectable(found.sd, 2), "two seeds have an interval over seeds alone"


def test_a_pilot_of_two_seeds_estimates_the_items_of_three() -> None:
    found = pilot(rows(2, 100, (0.1, 1.0, 0.1), np.random.default_rng(3)))
    assert found.squares is not None
    assert (found.over(2), found.over(3)) == (("seeds", "few seeds"), ("seeds and items", "shared"))
    assert found.smallest_detectable(3) > found.items_sd * 1.9


def test_without_item_scores_the_plan_is_for_seeds_only() -> None:
    a = np.array([0.1, 0.3, 0.2])
    found = pilot_of(a, np.zeros(3), [None] * 3, [None] * 3, "error")
    assert found.over(3) == ("seeds", "not kept") and math.isnan(found.items_sd)
    assert found.smallest_detectable(7) == detectable(found.sd, 7)
    assert found.seeds_needed(0.05) == seeds_needed(found.sd, 0.05)
    assert found.with_upper_limits(0.8).sd == upper_limit(found.sd, 3)
    equal = pilot(np.ones((3, 50)))
    assert math.isnan(equal.smallest_detectable(5)) and equal.seeds_needed(1.0) is None
