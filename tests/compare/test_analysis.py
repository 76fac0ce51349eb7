"""Analysis and answers: intervals, leave-one-seed-out differences, ranks and the headline, against numbers by hand."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from r2mae.compare.analysis import analyse, choose_best_fixed, power_of, scores_by_seed
from r2mae.compare.answers import Answers, answers, edge_warning
from r2mae.compare.comparison import Comparison
from r2mae.compare.wording import BEST_FIXED, decimals, difference_places, interval, listing, number
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric

Make = Callable[..., Comparison]


def told(comparison: Comparison) -> Answers:
    return answers(comparison, analyse(comparison), Path("runs/a"))


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
    (answer,) = told(tiny(scores, higher_is_better=False)).questions
    assert "Yes" in answer and "(0.50): r2mae −0.49" in answer  # noqa: RUF001
    assert found.average_rank("r2mae") == 1
    assert found.average_rank("fixed 0.70") == 3


def test_a_ratio_that_is_best_under_every_seed_is_not_compared_with_itself(tiny: Make) -> None:
    found = analyse(tiny({"fixed 0.50": [1.0, 1.0], "fixed 0.70": [2.0, 2.1], "r2mae": [1.0, 1.5]}))
    own = found.difference("fixed 0.70", "score")
    other = found.difference("fixed 0.50", "score")
    assert own is not None and own["verdict"] == "same"
    assert other is not None and other["verdict"] != "same"


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
    assert "No, every scheme is worse than the best fixed ratio (0.50)." in told(tiny(scores)).questions[0]
    assert "Yes, against fixed 0.70: a +0.40" in told(tiny(scores, against="fixed 0.70")).questions[0]
    rows = found.differences.set_index(["against", "label"])
    p = rows.loc["fixed 0.70", "p"][["a", "b"]]
    expected = np.minimum(multipletests(p, method="holm")[1] / 0.8, 1)
    np.testing.assert_allclose(rows.loc["fixed 0.70", "p_corrected"][["a", "b"]], expected)
    assert rows.loc[BEST_FIXED, "p_corrected"].isna().all(), "only the headline is corrected"
    pd.testing.assert_frame_equal(
        rows.loc[[BEST_FIXED]].drop(columns="p_corrected"),
        by_best.differences.set_index(["against", "label"]).drop(columns="p_corrected"),
    )


def test_the_headline_compares_with_a_named_scheme(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 1.2, 1.1], "fixed 0.70": [0.5, 0.6, 0.7], "a": [0.9, 1.1, 1.01]}
    found = analyse(tiny(scores, against="a"))
    assert found.rivals == ("fixed 0.50", "fixed 0.70")
    assert "against a: fixed 0.50" in told(tiny(scores, against="a")).questions[0]
    missing = tiny(scores, against="c")
    assert not analyse(missing).references and "no scheme has a seed in common with c" in told(missing).questions[0]


def test_unfinished_cells_are_left_out_of_pairs(tiny: Make) -> None:
    scores = {"fixed 0.50": [1.0, 2.0, None], "fixed 0.70": [0.0, 0.0, 9.0], "r2mae": [None, 3.0, 5.0]}
    found = analyse(tiny(scores))
    assert list(found.best_fixed["score"].scores) == [0, 1]
    difference = found.difference("r2mae", "score")
    assert difference is not None
    assert (difference["n"], difference["mean"]) == (1, 1.0)
    assert found.interval("r2mae", "score")["n"] == 2
    assert any(one.startswith("r2mae has no the score for seed 0: ") for one in told(tiny(scores)).warnings)


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
    one = told(make_comparison(seeds=1))
    assert "Undecided: with 1 seed" in one.questions[0] and "3 seeds" in one.next
    assert any("chosen on the seed that it is compared on" in warning for warning in one.warnings)


def test_without_fixed_rows_there_is_nothing_to_beat(make_comparison: Make) -> None:
    found = analyse(make_comparison(ratios=()))
    assert not found.best_fixed
    assert found.differences.empty
    assert "Add fixed to --schemes" in told(make_comparison(ratios=())).questions[0]


def test_equal_differences_of_two_seeds_have_no_interval(tiny: Make) -> None:
    found = analyse(tiny({"fixed 0.50": [1.0, 2.0], "r2mae": [1.5, 2.5]}))
    difference = found.difference("r2mae", "score")
    assert difference is not None
    assert (difference["mean"], difference["verdict"], difference["method"]) == (0.5, "undecided", "none")
    assert np.isnan(difference["low"])
    assert "Undecided" in told(tiny({"fixed 0.50": [1.0, 2.0], "r2mae": [1.5, 2.5]})).questions[0]


def test_only_fixed_rows(make_comparison: Make) -> None:
    assert "only fixed ratios" in told(make_comparison(schemes=())).questions[0]


def test_equal_values_are_undecided_and_share_the_lead(tiny: Make) -> None:
    found = analyse(tiny({"fixed 0.50": [0.9, 0.9], "r2mae": [0.9, 0.9], "mdlm": [0.9, 0.9]}))
    assert found.leaders("score") == {"fixed 0.50", "r2mae", "mdlm"}
    difference = found.difference("r2mae", "score")
    assert difference is not None and difference["verdict"] == "undecided"
    assert found.average_rank("r2mae") == found.average_rank("mdlm")


def test_a_metric_without_values_gives_way(comparison: Comparison) -> None:
    without = replace(comparison, table=comparison.table.assign(probe_accuracy=np.nan))
    dropped = replace(comparison, table=comparison.table.drop(columns="probe_accuracy"))
    for one in (without, dropped):
        found = analyse(one)
        assert found.primary.name == "masked_mse"
        assert "probe_accuracy" not in set(found.summary["metric"])
        assert told(one).warnings == ("No run has a value of linear probe accuracy.",)
        assert "masked reconstruction error" in told(one).questions[0]


def test_nothing_scored_is_one_clear_error(tiny: Make) -> None:
    with pytest.raises(UserError, match="no value of score"):
        analyse(tiny({"r2mae": [np.nan, np.nan]}))


def test_an_answer_is_decided_only_if_it_survives_the_correction(tiny: Make) -> None:
    scores = {"fixed 0.50": [0.0] * 4, "a": [0.2, 0.15, 0.3, 0.1]}
    assert "Yes" in told(tiny(scores)).questions[0] and not told(tiny(scores)).next
    many = tiny({**scores, **{name: [0.1, -0.2, 0.3, -0.1] for name in "bcdef"}})
    line = analyse(many).difference("a", "score")
    assert line is not None and line["verdict"] == "better" and line["p_corrected"] > 0.05
    assert "Undecided" in told(many).questions[0] and told(many).next


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=5),
    st.sampled_from([None, "fixed 0.50"]),
)
def test_no_undecided_comparison_names_a_winner_and_no_size_is_impossible(
    rows: list[list[float]], against: str | None
) -> None:
    labels = ["fixed 0.50", "a", "b"]
    table = pd.DataFrame(
        [
            {"label": label, "scheme": label.split()[0], "ratio": 0.5 if "fixed" in label else np.nan, "low": 0.5,
             "high": 0.5, "seed": seed, "seconds": 1.0, "score": row[place]}
            for place, label in enumerate(labels) for seed, row in enumerate(rows)
        ]
    )  # fmt: skip
    curves = pd.DataFrame(columns=["label", "seed", "step", "loss", "validation_loss"])
    metric = Metric("score", "accuracy", bounds=(0, 1))
    comparison = Comparison(
        "set", (metric,), table, curves, config={"against": against, "command": ["r2mae", "compare"]}
    )
    found, analysis = told(comparison), analyse(comparison)
    decided = {label: analysis.decided(label, "score") for label in "ab"}
    assert ("Yes" in found.questions[0]) == ("better" in decided.values())
    assert ("Undecided" in found.questions[0]) == ({*decided.values()} in ({"undecided"}, {"undecided", "worse"}))
    assert bool(found.next) == ("undecided" in decided.values())
    sizes = [row["decides"] for row in power_of(comparison, analysis, metric, 2)]
    assert all(np.isnan(size) or size <= 1 for size in [*sizes, *analysis.differences["decides"]])
    assert all(float(size) <= 1 for size in re.findall(r"(\d\.\d+) for", found.next))


def test_both_questions_are_answered_and_training_that_did_not_pay_leads(make_comparison: Make) -> None:
    comparison = make_comparison()
    metrics = [
        replace(one, question=asked)
        for one, asked in zip(comparison.metrics, ("features", "filling in", "", ""), strict=True)
    ]
    table = comparison.table
    untrained = table[table["label"] == "fixed 0.70"].assign(label="untrained", scheme="baseline", ratio=np.nan)
    untrained["masked_mse"] += 0.1 + 0.001 * untrained["seed"]
    comparison = replace(comparison, metrics=tuple(metrics), table=pd.concat([table, untrained], ignore_index=True))
    found, analysis = told(comparison), analyse(comparison)
    assert [metric.name for metric in analysis.questions] == ["probe_accuracy", "masked_mse"]
    assert found.questions[0].startswith("Better features (linear") and found.questions[1].startswith(
        "Better filling in"
    )
    assert found.lead and found.headline[0].startswith("Training is not shown to pay for features: untrained ")
    assert "Training paid for filling in: untrained +" in found.baselines
    assert comparison.verdict == " ".join(found.headline)
    corrected = analysis.differences.dropna(subset="p_corrected")
    assert {*corrected["metric"]} == {"probe_accuracy", "masked_mse"} and {*corrected["label"]} == {*analysis.rivals}
    bounded = replace(comparison, metrics=tuple(replace(one, bounds=(0, 1)) for one in metrics))
    line, mean = (
        analysis.difference("mdlm", "masked_mse"),
        np.mean([*analysis.references["masked_mse"].scores.values()]),
    )
    assert line is not None and f"mdlm {line['mean'] / mean:+.0%}" in told(bounded).questions[1].replace("\u00a0", "")


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
        ((0.9, 0.8, 0.7), True, ("0.5 is the lowest ratio that ran", "--ratios 0.1 0.3 0.5 0.7 0.9")),
        ((0.7, 0.8, 0.9), True, ("0.9 is the highest ratio that ran", "--ratios 0.5 0.7 0.9 0.94 0.98")),
        ((0.7, 0.8, 0.9), False, ("0.5 is the lowest ratio that ran", "--ratios 0.1 0.3 0.5 0.7 0.9")),
        ((0.8, 0.9, 0.7), True, ()),
        ((0.9, 0.9, 0.9), True, ()),
    ],
)
def test_a_best_fixed_ratio_at_the_edge_is_told(
    tiny: Make, scores: tuple[float, ...], up: bool, said: tuple[str, ...]
) -> None:
    rows = {f"fixed {ratio:.2f}": [score] * 2 for ratio, score in zip((0.5, 0.7, 0.9), scores, strict=True)}
    comparison = tiny({**rows, "r2mae": [0.5, 0.6]}, higher_is_better=up)
    notes = [warning for warning in told(comparison).warnings if "--ratios" in warning]
    assert len(notes) == bool(said)
    for words in said:
        assert words in notes[0]


def test_one_fixed_ratio_has_no_edge(tiny: Make) -> None:
    assert not any("--ratios" in note for note in told(tiny({"fixed 0.50": [1.0], "r2mae": [2.0]})).warnings)


def test_a_grid_can_be_refined_towards_its_end() -> None:
    assert "--ratios 0.02 0.06 0.1 0.5" in str(edge_warning({0.1: 2.0, 0.5: 1.0}, up=True))
    assert edge_warning({0.1: np.nan, 0.5: 1.0}, up=True) == ""


def test_a_baseline_without_a_score_is_blank(comparison: Comparison, make_comparison: Make) -> None:
    table = make_comparison().table
    baseline = table[table["label"] == "r2mae"].assign(label="mean", scheme="baseline", probe_accuracy=np.nan)
    pixels = table[table["label"] == "mdlm"].assign(label="pixels", scheme="baseline", masked_mse=np.nan)
    pixels["probe_accuracy"] += 0.5
    table = pd.concat([table, pixels, baseline], ignore_index=True)
    table.loc[table["scheme"] == "baseline", ["ratio", "low", "high"]] = np.nan
    found = analyse(replace(comparison, table=table))
    words = told(replace(comparison, table=table))
    assert not any("mean has no" in note for note in words.warnings)
    assert "pixels is better, +0.49" in words.baselines
    assert np.isnan(found.average_rank("mean"))
    assert found.seeds("mean") == found.seeds("r2mae") == 3
