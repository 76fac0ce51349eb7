from io import StringIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2mae.evaluation.statistics import best_fixed, mean_interval, paired_difference, rank_table

scores_of = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9)

# Table 4 of the paper (SEA-AD): six metrics, then the printed average score and rank.
SEA_AD = """\
method,bacc,f1,cell_auroc,donor_auroc,cell_r,donor_r,score,rank
Normalized exp.,0.798,0.738,0.571,0.611,0.129,0.511,0.560,9.00
scGPT,0.784,0.693,0.549,0.556,0.065,0.272,0.486,12.67
scVI,0.826,0.740,0.631,0.731,0.201,0.502,0.605,7.00
MAE (MR 25%),0.841,0.737,0.667,0.699,0.483,0.575,0.667,4.33
MR 10%,0.837,0.726,0.543,0.536,0.449,0.399,0.582,10.67
MR 50%,0.839,0.738,0.574,0.591,0.516,0.536,0.632,6.17
MDLM,0.831,0.719,0.667,0.686,0.543,0.622,0.678,6.83
Dynamic MR,0.838,0.735,0.662,0.694,0.444,0.446,0.636,7.50
CL-MAE,0.838,0.729,0.687,0.722,0.462,0.484,0.654,5.83
R2MAE,0.840,0.737,0.687,0.716,0.572,0.628,0.697,2.17
+ Dynamic MR,0.834,0.735,0.642,0.682,0.551,0.545,0.665,6.67
+ CL,0.836,0.730,0.684,0.719,0.570,0.559,0.683,4.83
+ CL (k=0),0.837,0.734,0.676,0.707,0.511,0.506,0.662,6.17
"""
# Table 2 (GLUE), RoBERTa-base: four metrics and the printed rank.
GLUE = """\
method,mnli,qqp,sst2,qnli,rank
MLM default,81.5,90.7,91.7,87.8,3.00
Fixed MR 0.4,81.7,90.7,91.2,88.5,3.25
MDLM,80.3,90.3,91.4,87.7,4.50
Dynamic MR,81.8,90.7,91.4,89.1,2.00
R2MAE,81.9,90.8,91.9,88.6,1.25
"""


class TestMeanInterval:
    @pytest.mark.parametrize("n", [2, 5, 10, 40])
    def test_it_is_the_t_interval(self, n):
        values = np.random.default_rng(0).standard_normal(n)
        interval = mean_interval(values, confidence=0.9)
        expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
        assert (interval.method, interval.n) == ("t", n)
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))

    def test_one_value_has_no_interval(self):
        interval = mean_interval([0.5])
        assert (interval.mean, interval.n, interval.method) == (0.5, 1, "none")
        assert np.isnan(interval.low) and np.isnan(interval.high)

    @pytest.mark.parametrize("n", [2, 9, 10, 30])
    def test_equal_values_have_no_width(self, n):
        interval = mean_interval(np.full(n, 0.1))
        assert interval.low == interval.mean == interval.high == 0.1

    @pytest.mark.parametrize("outlier", [1e-15, 1.0, 1e6])
    def test_one_value_apart_from_equal_others(self, outlier):
        values = np.r_[np.full(11, 0.7), 0.7 + outlier]
        interval = mean_interval(values)
        assert interval.low <= interval.mean <= interval.high

    def test_what_summing_leaves_of_zero_is_zero(self):
        values = np.array([0.1, 0.2, -0.3])
        assert values.mean() != 0
        interval = mean_interval(values)
        assert interval.mean == 0
        assert interval.low == pytest.approx(-interval.high)
        assert mean_interval([1e-17, 2e-17]).mean == pytest.approx(1.5e-17), "small numbers are numbers"

    @pytest.mark.parametrize("values", [[], [[1.0]], [1.0, np.nan], [np.inf, 0.0]])
    def test_bad_values(self, values):
        with pytest.raises(ValueError, match="values"):
            mean_interval(values)


class TestPairedDifference:
    def test_pairs_by_position(self):
        rng = np.random.default_rng(0)
        seeds = rng.normal(0, 10, 5)
        a, b = seeds + 1 + rng.normal(0, 0.1, 5), seeds
        difference = paired_difference(a, b)
        expected = stats.ttest_rel(a, b).confidence_interval()
        assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
        assert (difference.n, difference.method, difference.verdict) == (5, "t", "better")
        assert paired_difference(a, b, higher_is_better=False).verdict == "worse"

    @given(a=scores_of, data=st.data())
    def test_exchanging_the_two_exchanges_the_verdict(self, a, data):
        b = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=len(a), max_size=len(a)))
        forth, back = paired_difference(a, b), paired_difference(b, a)
        opposite = {"better": "worse", "worse": "better", "undecided": "undecided"}
        assert back.verdict == opposite[forth.verdict]
        assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low), nan_ok=True)
        if forth.low <= 0 <= forth.high:
            assert forth.verdict == "undecided"
        elif forth.high - forth.low > 1e-3:
            assert forth.verdict != "undecided"

    @pytest.mark.parametrize("n", [3, 12])
    @pytest.mark.parametrize(("shift", "verdict"), [(0.5, "better"), (-0.5, "worse"), (0.0, "undecided")])
    def test_equal_differences(self, n, shift, verdict):
        b = np.arange(n, dtype=float)
        difference = paired_difference(b + shift, b)
        ends = (difference.low, difference.high)
        assert difference.mean == shift
        assert ends == pytest.approx((shift, shift) if n >= 10 or not shift else (np.nan, np.nan), nan_ok=True)
        assert difference.verdict == (verdict if n >= 10 else "undecided")

    def test_a_few_differences_equal_up_to_round_off_decide_nothing(self):
        b = np.array([0.1, 0.9610, 0.3])
        a = b + 0.0028
        assert 0 < np.ptp(a - b) < 1e-12
        assert paired_difference(a, b).verdict == "undecided"

    def test_one_seed_decides_nothing(self):
        assert paired_difference([0.9], [0.1]).verdict == "undecided"

    def test_unequal_lengths(self):
        with pytest.raises(ValueError, match="got 2 and 3"):
            paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])


class TestBestFixed:
    def test_the_ratio_is_chosen_on_the_other_seeds(self):
        scores = np.array([[0.9, 0.1, 0.5], [0.3, 0.2, 0.6], [0.4, 0.3, 0.5]])
        best = best_fixed(scores)
        # Seed 0 alone favours ratio 0, so it is chosen for the others only.
        np.testing.assert_array_equal(best.chosen, [2, 0, 0])
        np.testing.assert_array_equal(best.scores, [0.5, 0.3, 0.4])

    def test_lower_can_be_better(self):
        scores = np.random.default_rng(0).standard_normal((4, 5))
        high, low = best_fixed(scores), best_fixed(-scores, higher_is_better=False)
        np.testing.assert_array_equal(high.chosen, low.chosen)
        np.testing.assert_array_equal(high.scores, -low.scores)

    @given(seed=st.integers(0, 1000), row=st.integers(0, 3))
    def test_a_seeds_own_scores_do_not_choose(self, seed, row):
        rng = np.random.default_rng(seed)
        scores = rng.standard_normal((4, 6))
        before = best_fixed(scores).chosen[row]
        scores[row] = rng.standard_normal(6)
        assert best_fixed(scores).chosen[row] == before

    def test_ratios_that_do_not_differ_gain_nothing(self):
        rng = np.random.default_rng(0)
        gains = [best_fixed(rng.standard_normal((3, 9))).scores.mean() for _ in range(500)]
        assert abs(np.mean(gains)) < 4 * np.std(gains) / np.sqrt(500)

    def test_with_a_clear_winner_pseudo_values_are_its_scores(self):
        scores = np.random.default_rng(0).standard_normal((5, 3)) + np.array([0.0, 100.0, 0.0])
        best = best_fixed(scores)
        np.testing.assert_allclose(best.pseudo, scores[:, 1])

    @given(seed=st.integers(0, 1000), n=st.integers(2, 6))
    def test_pseudo_values_have_the_mean_of_the_scores_and_widen_alone(self, seed, n):
        rng = np.random.default_rng(seed)
        best, mine = best_fixed(rng.standard_normal((n, 3))), rng.standard_normal(n)
        assert best.pseudo.mean() == pytest.approx(best.scores.mean())
        partner = best.partner(mine)
        assert any(partner is one for one in (best.scores, best.pseudo))
        assert np.std(mine - partner) >= np.std(mine - best.scores)
        if n == 2:
            np.testing.assert_array_equal(best.pseudo, best.scores)

    def test_pseudo_values_are_those_of_the_jackknife(self):
        scores = np.random.default_rng(3).standard_normal((5, 4))
        best = best_fixed(scores)
        without = np.array([best_fixed(np.delete(scores, seed, 0)).scores.mean() for seed in range(5)])
        error = np.sqrt(4 / 5 * ((without - without.mean()) ** 2).sum())
        assert best.pseudo.std(ddof=1) / np.sqrt(5) == pytest.approx(error)

    def test_one_seed_is_refused(self):
        with pytest.raises(ValueError, match="two or more seeds"):
            best_fixed([[0.1, 0.2]])


class TestRankTable:
    def test_table_4_of_the_paper(self):
        table = pd.read_csv(StringIO(SEA_AD), index_col="method")
        metrics = table.drop(columns=["score", "rank"])
        ranked = rank_table(metrics, dict.fromkeys(metrics, True))
        np.testing.assert_allclose(ranked["average score"], table["score"], atol=0.00051)
        np.testing.assert_allclose(ranked["average rank"], table["rank"], atol=0.0051)
        pd.testing.assert_frame_equal(ranked[metrics.columns], metrics)

    def test_table_2_of_the_paper(self):
        table = pd.read_csv(StringIO(GLUE), index_col="method")
        metrics = table.drop(columns="rank")
        ranked = rank_table(metrics, dict.fromkeys(metrics, True))
        np.testing.assert_allclose(ranked["average rank"], table["rank"])

    def test_ties_can_share_the_average(self):
        table = pd.DataFrame({"accuracy": [0.9, 0.9, 0.5]}, index=["a", "b", "c"])
        assert list(rank_table(table, {"accuracy": True})["average rank"]) == [1, 1, 3]

    def test_directions(self):
        table = pd.DataFrame({"accuracy": [0.9, 0.8], "mse": [0.1, 0.3]}, index=["a", "b"])
        ranked = rank_table(table, {"accuracy": True, "mse": False})
        assert list(ranked["average rank"]) == [1, 2]
        assert ranked["average score"].isna().all()

    def test_bad_tables(self):
        with pytest.raises(ValueError, match="NaN"):
            rank_table(pd.DataFrame({"accuracy": [0.9, np.nan]}), {"accuracy": True})
        with pytest.raises(ValueError, match="no entry for mse"):
            rank_table(pd.DataFrame({"mse": [0.9]}), {"accuracy": True})
