"""Gains of rows over others: paired over seeds, pooled over sets, with known answers."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from r2mae_paper.gains import BEST_FIXED, BLIND, best_of, gains_over_fixed, pooled_effect, pooled_rows, sets_at_ceiling

FIXED = ("fixed 0.10", "fixed 0.50", "fixed 0.90")


def runs(sets: dict[str, dict[str, list[float]]]) -> pd.DataFrame:
    lines = [
        {"set": name, "label": label, "seed": seed, "score": score}
        for name, rows in sets.items()
        for label, scores in rows.items()
        for seed, score in enumerate(scores)
    ]
    return pd.DataFrame(lines)


def named(by_set: list[np.ndarray]) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Gains of one row over the blind ratio on sets of some names."""
    return {("mine", BLIND): {str(number): gain for number, gain in enumerate(by_set)}}


def test_gains_are_over_the_best_ratio_of_the_other_seeds_and_over_a_blind_one() -> None:
    table = runs({"a": {"fixed 0.10": [1.0, 2.0, 3.0], "fixed 0.50": [5.0, 1.0, 1.0], "mine": [4.0, 4.0, 4.0]}})
    gains = gains_over_fixed(table, "score", FIXED, "fixed 0.50")
    # The means over the other seeds are, by seed, 2.5 and 1; 2 and 3; 1.5 and 3: each chooses a score of 1. Without
    # the first seed the other two choose 2 and 3, without one of these they choose 1 and 1.
    pseudo = -2 * (np.array([2.5, 1.0, 1.0]) - 1.5) + 1.0
    assert gains["mine", BEST_FIXED]["a"].tolist() == (4.0 - pseudo).tolist()
    assert gains["mine", BLIND]["a"].tolist() == [-1.0, 3.0, 3.0]
    assert ("fixed 0.50", BLIND) not in gains


def test_a_set_without_a_row_or_a_seed_without_a_partner_is_left_out() -> None:
    table = runs({"a": {"fixed 0.10": [1.0, 2.0], "mine": [4.0, 4.0, 4.0]}, "b": {"mine": [1.0, 2.0]}})
    gains = gains_over_fixed(table, "score", FIXED, "fixed 0.10")
    assert {name: gain.tolist() for name, gain in gains["mine", BLIND].items()} == {"a": [3.0, 2.0]}
    assert not any(against == BEST_FIXED for _, against in gains), "one ratio is no choice"
    assert best_of([pd.Series([1.0]), pd.Series([2.0])], pd.Series([3.0]), higher=True) is None


def test_the_pooled_gain_is_that_of_the_model() -> None:
    rng = np.random.default_rng(0)
    by_set = [0.1 + 0.01 * rng.normal(size=6), 0.12 + 0.01 * rng.normal(size=4), np.array([7.0])]
    (row,) = pooled_rows(named(by_set))
    known = pooled_effect(
        [gain.mean() for gain in by_set[:2]], [gain.std(ddof=1) / len(gain) ** 0.5 for gain in by_set[:2]]
    )
    assert (row["gain"], row["low"], row["high"], row["sets"]) == (known.mean, known.low, known.high, 2)
    assert row["is"] == ("better" if row["equal_low"] > 0 else "undecided")
    assert row["left_out"] == ""
    assert row["equal_gain"] == pytest.approx(np.mean([gain.mean() for gain in by_set[:2]]))
    assert row["equal_high"] - row["equal_gain"] == pytest.approx(
        stats.t.ppf(0.975, 1) * stats.sem([gain.mean() for gain in by_set[:2]])
    )
    assert 0.5 <= row["largest_weight"] < 1
    assert pooled_rows(named([np.array([7.0])])) == []
    (worse,) = pooled_rows(named([-gain for gain in by_set[:2]] * 3))
    assert worse["is"] == "worse"
    (alone,) = pooled_rows(named(by_set[:1]))
    over_seeds = stats.ttest_1samp(by_set[0], 0.0).confidence_interval(0.95)
    assert (alone["gain"], alone["low"], alone["high"]) == pytest.approx((by_set[0].mean(), *over_seeds))
    assert (alone["is"], alone["sets"]) == ("better", 1)
    assert np.isnan(alone["between_sets"])
    (equal,) = pooled_rows(named([np.array([0.01, 0.01])]))
    assert equal["is"] == "undecided", "as two seeds that happen to agree are everywhere else"


def test_a_set_at_its_ceiling_is_left_out_of_averages_and_named(caplog: pytest.LogCaptureFixture) -> None:
    rows = {"fixed 0.10": [0.6, 0.62, 0.61], "fixed 0.50": [0.7, 0.69, 0.71], "mine": [0.8, 0.82, 0.79]}
    full = {label: [0.99, 0.995, 0.991] for label in rows}
    table = runs({"a": rows, "b": {label: [one + 0.01 * one**2 for one in scores] for label, scores in rows.items()}})
    both = pd.concat([table, runs({"full": full})])
    ceiling = sets_at_ceiling(both, "score")
    assert ceiling == ["full"] and "averages of score over sets are without full" in caplog.text
    assert sets_at_ceiling(pd.concat([both, runs({"full": {"worse": [0.9]}})]), "score") == []
    with_full, without = (gains_over_fixed(one, "score", FIXED, "fixed 0.10") for one in (both, table))
    found, known = pooled_rows(with_full, ceiling), pooled_rows(without)
    assert found == [{**row, "left_out": "full"} for row in known] and found[0]["sets"] == 2
