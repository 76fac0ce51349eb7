"""Analysis: intervals, leave-one-seed-out differences, ranks and the headline, against numbers by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from r2mae.compare.analysis import analyse, choose_best_fixed, scores_by_seed
from r2mae.compare.comparison import Comparison
from r2mae.compare.wording import BEST_FIXED, decimals, difference_places, edge_warning, interval, listing, number
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric

Make = Callable[..., Comparison]


def test_summary_holds_t_intervals(tiny: Make) -> None:
    found = analyse(tiny({"r2mae": [1.0, 2.0, 6.0], "mdlm": [2.0, 2.0, 2.0]}))
    row = found.interval("r2mae", "score")
    low, high = stats.t.interval(0.95, 2, loc=3.0, scale=stats.sem([1.0, 2.0, 6.0]))
    assert (row["mean"], row["n"], row["method"]) == (3.0, 3, "t")
    np.testing.assert_allclose([row["low"], row["high"]], [low, high])
    assert found.interval("mdlm", "score")["low"] == 2.0  # no spread: no width


def test_best_fixed_is_chosen_on_the_other_seeds(tiny: Make) -> None:
    # By seed, the means over the other two seeds: 0.50 → 5.5, 3.5, 5; 0.70 → 3, 5, 5.
    scores = {"fixed 0.50": [3.0, 7.0, 4.0], "fixed 0.70": [7.0, 3.0, 3.0], "r2mae": [6.0, 6.0, 5.0]}
    found = analyse(tiny(scores))
    choice = found.best_fixed["score"]
    assert choice.labels == {0: "fixed 0.50", 1: "fixed 0.70", 2: "fixed 0.50"}
    assert choice.scores == {0: 3.0, 1: 3.0, 2: 4.0}
    assert choice.held_out
    difference = found.difference("r2mae", "score")
    assert difference is not None
    expected = np.array([6.0, 6.0, 5.0]) - [3.0, 3.0, 4.0]
    np.testing.assert_allclose(difference["mean"], expected.mean())
    # Without seed 0 the best of the other seed scores 7 and 4; without seed 1 it is 3 and 3; without seed 2 also.
    without = np.array([np.mean([7.0, 4.0]), np.mean([3.0, 3.0]), np.mean([3.0, 3.0])])
    pseudo = -2 * (without - without.mean()) + np.mean([3.0, 3.0, 4.0])
    spread = stats.sem([6.0, 6.0, 5.0] - pseudo)
    low, high = stats.t.interval(0.95, 2, loc=expected.mean(), scale=spread)
    np.testing.assert_allclose([difference["low"], difference["high"]], [low, high])
    assert difference["verdict"] == "undecided"


def test_lower_is_better_turns_choice_leader_and_verdict(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 1.1, 0.9], "fixed 0.70": [2.0, 2.1, 1.9], "r2mae": [0.5, 0.62, 0.41]}
    found = analyse(tiny(scores, higher_is_better=False))
    assert set(found.best_fixed["score"].labels.values()) == {"fixed 0.50"}
    difference = found.difference("r2mae", "score")
    assert difference is not None
    assert difference["verdict"] == "better"
    assert difference["mean"] < 0
    assert found.leaders("score") == {"r2mae"}
    assert found.headline.startswith("r2mae has the best mean the score: 0.51")
    assert "It beats the best fixed ratio by 0.49" in found.headline
    assert found.average_rank("r2mae") == 1
    assert found.average_rank("fixed 0.70") == 3


def test_a_ratio_that_is_best_under_every_seed_is_not_compared_with_itself(tiny: Make) -> None:
    found = analyse(tiny({"fixed 0.50": [1.0, 1.0], "fixed 0.70": [2.0, 2.1], "r2mae": [1.0, 1.5]}))
    own = found.difference("fixed 0.70", "score")
    other = found.difference("fixed 0.50", "score")
    assert own is not None and own["verdict"] == "same"
    assert other is not None and other["verdict"] != "same"
    assert "fixed 0.70 has the best mean" in found.headline
    assert "Of the other schemes r2mae comes nearest" in found.headline


def test_differences_from_the_default_ratio(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 1.2], "fixed 0.70": [0.5, 0.6], "r2mae": [2.0, 2.3]}
    found = analyse(tiny(scores, default_fixed_label="fixed 0.70"))
    assert found.against == (BEST_FIXED, "fixed 0.70")
    difference = found.difference("r2mae", "score", "fixed 0.70")
    assert difference is not None
    np.testing.assert_allclose(difference["mean"], 1.6)
    assert found.difference("fixed 0.70", "score", "fixed 0.70") is None
    assert analyse(tiny(scores, default_fixed_label="fixed 0.40")).against == (BEST_FIXED,)


def test_the_headline_compares_with_a_named_ratio(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 1.2, 1.1], "fixed 0.70": [0.5, 0.6, 0.7], "a": [0.9, 1.1, 1.01], "b": [0.5, 0.6, 0.8]}
    by_best, found = analyse(tiny(scores)), analyse(tiny(scores, against="fixed 0.70"))
    assert found.against == ("fixed 0.70", BEST_FIXED) and found.rivals == ("a", "b")
    assert "Of the other schemes a comes nearest; it is worse than the best fixed ratio by 0.1" in by_best.headline
    assert "it beats fixed 0.70 by 0.4" in found.headline
    rows = found.differences.set_index(["against", "label"])
    p = rows.loc["fixed 0.70", "p"][["a", "b"]]
    expected = np.minimum(multipletests(p, method="holm")[1] / 0.8, 1)
    np.testing.assert_allclose(rows.loc["fixed 0.70", "p_corrected"][["a", "b"]], expected)
    assert rows.loc[BEST_FIXED, "p_corrected"].isna().all(), "only the headline is corrected"
    pd.testing.assert_frame_equal(
        rows.loc[[BEST_FIXED]].drop(columns="p_corrected"),
        by_best.differences.set_index(["against", "label"]).drop(columns="p_corrected"),
    )
    assert any("is chosen on the other 2 seeds" in note for note in by_best.notes)
    assert not any("--against" in note for note in found.notes), "which is given already"


def test_the_headline_compares_with_a_named_scheme(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 1.2, 1.1], "fixed 0.70": [0.5, 0.6, 0.7], "a": [0.9, 1.1, 1.01]}
    found = analyse(tiny(scores, against="a"))
    assert found.rivals == ("fixed 0.50", "fixed 0.70")
    assert "It beats a by" in found.headline
    missing = analyse(tiny(scores, against="c"))
    assert missing.reference is None and "has no seed in common with c" in missing.headline


def test_unfinished_cells_are_left_out_of_pairs(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 2.0, None], "fixed 0.70": [0.0, 0.0, 9.0], "r2mae": [None, 3.0, 5.0]}
    found = analyse(tiny(scores))
    assert list(found.best_fixed["score"].scores) == [0, 1]
    difference = found.difference("r2mae", "score")
    assert difference is not None
    assert (difference["n"], difference["mean"]) == (1, 1.0)
    assert found.interval("r2mae", "score")["n"] == 2
    assert "r2mae has no the score for seed 0: means and pairs omit the missing runs." in found.notes


def test_a_fixed_ratio_without_values_does_not_stop_the_others(tiny: Make) -> None:
    scores = {"fixed 0.50": [np.nan, np.nan], "fixed 0.70": [1.0, 1.5], "r2mae": [2.0, 2.0]}
    found = analyse(tiny(scores))
    assert found.best_fixed["score"].labels == {0: "fixed 0.70", 1: "fixed 0.70"}
    assert found.interval("fixed 0.50", "score")["n"] == 0
    assert np.isnan(found.average_rank("fixed 0.50"))


def test_one_seed_gives_no_interval_and_no_verdict(make_comparison: Make) -> None:
    found = analyse(make_comparison(seeds=1))
    assert found.summary["method"].eq("none").all()
    assert set(found.differences["verdict"]) == {"undecided", "same"}
    assert not found.best_fixed["probe_accuracy"].held_out
    assert "one seed: no interval" in found.headline
    assert "decides nothing" in found.headline
    assert any("chosen on the seed that it is compared on" in note for note in found.notes)


def test_without_fixed_rows_there_is_nothing_to_beat(make_comparison: Make) -> None:
    found = analyse(make_comparison(ratios=()))
    assert not found.best_fixed
    assert found.differences.empty
    assert "There is no fixed ratio to compare with" in found.headline


def test_equal_differences_of_two_seeds_have_no_interval(tiny: Make) -> None:
    found = analyse(tiny({"fixed 0.50": [1.0, 2.0], "r2mae": [1.5, 2.5]}))
    difference = found.difference("r2mae", "score")
    assert difference is not None
    assert (difference["mean"], difference["verdict"], difference["method"]) == (0.5, "undecided", "none")
    assert np.isnan(difference["low"])
    assert "under each of 2 seeds, which shows no spread and decides nothing: use more seeds" in found.headline
    assert not any("Intervals" in note for note in found.notes)


def test_only_fixed_rows(make_comparison: Make) -> None:
    assert "There are only fixed ratios" in analyse(make_comparison(schemes=())).headline


def test_equal_values_are_undecided_and_share_the_lead(tiny: Make) -> None:
    found = analyse(tiny({"fixed 0.50": [0.9, 0.9], "r2mae": [0.9, 0.9], "mdlm": [0.9, 0.9]}))
    assert found.headline.startswith("fixed 0.50, r2mae and mdlm share the best mean the score: 0.9")
    difference = found.difference("r2mae", "score")
    assert difference is not None and difference["verdict"] == "undecided"
    assert found.average_rank("r2mae") == found.average_rank("mdlm")


def test_a_metric_without_values_gives_way(comparison: Comparison) -> None:
    without = replace(comparison, table=comparison.table.assign(probe_accuracy=np.nan))
    dropped = replace(comparison, table=comparison.table.drop(columns="probe_accuracy"))
    for found in (analyse(without), analyse(dropped)):
        assert found.primary.name == "masked_mse"
        assert "probe_accuracy" not in set(found.summary["metric"])
        assert any("No run has a value of linear probe accuracy" in note for note in found.notes)
        assert "masked reconstruction error" in found.headline


def test_nothing_scored_is_one_clear_error(tiny: Make) -> None:
    with pytest.raises(UserError, match="no value of score"):
        analyse(tiny({"r2mae": [np.nan, np.nan]}))


def test_the_headline_says_if_a_verdict_survives_the_correction(tiny: Make) -> None:
    rng = np.random.default_rng(0)
    scores = {"fixed 0.50": rng.normal(0, 1, 12).tolist(), "r2mae": rng.normal(3, 1, 12).tolist()}
    found = analyse(tiny(scores))
    assert set(found.summary["method"]) == {"t"}
    assert "beats the best fixed ratio" in found.headline and found.headline.endswith("so it is decided.")
    two = analyse(tiny({**scores, "mdlm": rng.normal(2, 1, 12).tolist()}))
    assert two.headline.endswith("of schemes and of looks, p is below 0.001, so it is decided.")
    assert any("Corrected for 2 schemes (Holm), these are still decided: r2mae and mdlm" in note for note in two.notes)


def test_corrected_p_values_count_schemes_and_looks(tiny: Make) -> None:
    rng = np.random.default_rng(1)
    scores = {name: rng.normal(mean, 1, 5).tolist() for name, mean in (("fixed 0.50", 0), ("a", 2), ("b", 0), ("c", 0))}
    first = analyse(tiny(scores))
    again = analyse(replace(tiny(scores), looks=dict.fromkeys("abc", 3)))
    rows = first.differences[first.differences["against"] == BEST_FIXED].set_index("label")
    assert rows["p_corrected"].notna().to_dict() == {"fixed 0.50": False, "a": True, "b": True, "c": True}
    expected = multipletests(rows.loc[["a", "b", "c"], "p"], method="holm")[1] / 0.8
    np.testing.assert_allclose(rows.loc[["a", "b", "c"], "p_corrected"], np.minimum(expected, 1))
    later = again.differences[again.differences["against"] == BEST_FIXED].set_index("label")
    assert later.loc["a", "p_corrected"] == pytest.approx(min(1, rows.loc["a", "p_corrected"] * 0.8 / 0.05))
    assert any("3 schemes (Holm) and 3 looks," in note for note in again.notes)


def test_scores_by_seed_keeps_the_order_of_display(comparison: Comparison) -> None:
    scores = scores_by_seed(comparison, "masked_mse")
    assert list(scores.columns) == comparison.labels
    run = comparison.table.query("label == 'cl' and seed == 2")
    assert scores.loc[2, "cl"] == run["masked_mse"].item()


@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=2, max_size=6))
def test_choosing_without_the_seed_never_flatters_the_fixed_ratios(rows: list[list[float]]) -> None:
    """Seed by seed, the ratio chosen on the others is at most as good as the one that is best in hindsight."""
    table = pd.DataFrame(np.round(rows, 3), columns=["a", "b", "c"])
    choice = choose_best_fixed(Metric("score", "score"), table, ["a", "b", "c"])
    assert choice is not None
    best = table[table.mean().idxmax()]
    assert (np.array([*choice.scores.values()]) <= best.to_numpy() + 1e-9).all()


@pytest.mark.parametrize(
    ("means", "halves", "places"),
    [([0.97, 0.96], [0.0021, 0.003], 4), ([154.3], [12.3], 0), ([0.9, 0.91], [np.nan] * 2, 4), ([0.0], [0.0], 1)],
)
def test_decimals_follow_the_uncertainty(means: list[float], halves: list[float], places: int) -> None:
    assert decimals(means, halves) == places


def test_numbers_in_words() -> None:
    assert number(-0.00123, 3) == "−0.001"  # noqa: RUF001
    assert number(-0.0001, 2, signed=True) == "0.00"
    assert number(0.25, 1, signed=True) == "+0.2"
    assert interval(float("nan"), 1.0, 2) == ""
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert difference_places(0.79, 0.008, 1.579, 1) == 3  # decided: 0 must be seen to be outside
    assert difference_places(0.79, -0.008, 1.579, 1) == 1


def test_a_metric_that_describes_is_shown_and_not_judged(comparison: Comparison) -> None:
    analysis = analyse(comparison)
    assert [metric.name for metric in analysis.judged_metrics] == ["probe_accuracy", "masked_mse", "clean_mse"]
    assert np.isfinite(analysis.interval("r2mae", "effective_rank")["mean"])
    assert analysis.leaders("effective_rank") == set()
    assert "effective_rank" not in analysis.best_fixed
    assert "effective_rank" not in set(analysis.differences["metric"])
    assert "effective_rank" not in analysis.ranks


@pytest.mark.parametrize(
    ("scores", "up", "said"),
    [
        ((0.9, 0.8, 0.7), True, ("0.5, is the lowest that ran", "--ratios 0.1 0.3 0.5 0.7 0.9")),
        ((0.7, 0.8, 0.9), True, ("0.9, is the highest that ran", "--ratios 0.5 0.7 0.9 0.94 0.98")),
        ((0.7, 0.8, 0.9), False, ("0.5, is the lowest that ran", "--ratios 0.1 0.3 0.5 0.7 0.9")),
        ((0.8, 0.9, 0.7), True, ()),
        ((0.9, 0.9, 0.9), True, ()),
    ],
)
def test_a_best_fixed_ratio_at_the_edge_is_told(
    tiny: Make, scores: tuple[float, ...], up: bool, said: tuple[str, ...]
) -> None:
    rows = {f"fixed {ratio:.2f}": [score] * 2 for ratio, score in zip((0.5, 0.7, 0.9), scores, strict=True)}
    comparison = tiny({**rows, "r2mae": [0.5, 0.6]}, higher_is_better=up)
    notes = [note for note in analyse(comparison).notes if "--ratios" in note]
    assert len(notes) == bool(said)
    for words in said:
        assert words in notes[0]


def test_one_fixed_ratio_has_no_edge(tiny: Make) -> None:
    assert not any("--ratios" in note for note in analyse(tiny({"fixed 0.50": [1.0], "r2mae": [2.0]})).notes)


def test_a_grid_can_be_refined_towards_its_end() -> None:
    assert "--ratios 0.02 0.06 0.1 0.5" in str(edge_warning({0.1: 2.0, 0.5: 1.0}, up=True))
    assert edge_warning({0.1: np.nan, 0.5: 1.0}, up=True) is None


def test_a_baseline_without_a_score_is_blank(comparison: Comparison, make_comparison: Make) -> None:
    table = make_comparison().table
    baseline = table[table["label"] == "r2mae"].assign(label="mean", scheme="baseline", probe_accuracy=np.nan)
    pixels = table[table["label"] == "mdlm"].assign(label="pixels", scheme="baseline", masked_mse=np.nan)
    pixels["probe_accuracy"] += 0.5
    table = pd.concat([table, pixels, baseline], ignore_index=True)
    table.loc[table["scheme"] == "baseline", ["ratio", "low", "high"]] = np.nan
    found = analyse(replace(comparison, table=table))
    assert not any("mean has no" in note for note in found.notes)
    assert "the baseline pixels (1.4" in found.headline
    assert "is ahead" in found.headline
    assert np.isnan(found.average_rank("mean"))
    assert found.seeds("mean") == found.seeds("r2mae") == 3


def test_it_is_said_where_models_were_given_the_mask(tiny: Make) -> None:
    scores: dict[str, list[float | None]] = {"fixed 0.50": [1.0, 2.0], "r2mae": [2.0, 3.0]}
    for told in (True, False):
        notes = analyse(tiny(scores, mask_input=told)).notes
        assert any("mask_input" in note for note in notes) == told
