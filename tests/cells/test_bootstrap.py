import numpy as np
import pytest
from scipy import stats

from r2mae.cells.predictions import ClassPredictions, NumberPredictions, cluster_bootstrap


def make_hits(donors: int, cells: int, seed: int = 0) -> ClassPredictions:
    """Make predictions of two equal classes, right in a fraction of each donor's cells that is the donor's own."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(4, 2, donors)
    hit = rng.random((donors, cells)) < rates[:, None]
    truth = np.tile(np.arange(cells) % 2, donors)
    sure = np.where(hit.ravel(), truth, 1 - truth)[:, None] == [0, 1]
    return ClassPredictions("label", truth, np.where(sure, 0.9, 0.1), np.repeat(np.arange(donors), cells), False)


def make_numbers() -> NumberPredictions:
    donors = np.repeat([0, 1, 2, 3, 10, 11], 4)
    rng = np.random.default_rng(0)
    return NumberPredictions("age", donors + 20.0, donors + rng.normal(0, 2, 24), donors, True)


def test_the_interval_is_over_donors_not_cells() -> None:
    one = make_hits(40, 200)
    interval = cluster_bootstrap([one])["label_bacc"]
    rates = np.array([(one.predicted.argmax(axis=1) == one.truth)[one.donors == d].mean() for d in range(40)])
    assert interval.mean == pytest.approx(rates.mean())
    assert interval.n == 40
    # Donors have equal numbers of cells of both classes, so that the balanced accuracy is the mean of their rates.
    half = stats.norm.ppf(0.975) * rates.std() / np.sqrt(40)
    assert interval.low == pytest.approx(rates.mean() - half, abs=0.15 * half)
    assert interval.high == pytest.approx(rates.mean() + half, abs=0.15 * half)


def test_the_interval_covers() -> None:
    covered = 0
    for seed in range(200):
        interval = cluster_bootstrap([make_hits(30, 20, seed)], resamples=200)["label_bacc"]
        covered += interval.low <= 4 / 6 <= interval.high
    assert 0.87 <= covered / 200 <= 0.99


def test_summaries_are_resampled_jointly() -> None:
    one = make_hits(12, 30)
    twice = ClassPredictions("other", one.truth, one.predicted, one.donors, False)
    made = cluster_bootstrap([one, twice], ["label_bacc", "other_bacc"])
    assert made["score"].low == pytest.approx(made["label_bacc"].low)


def test_one_donor_has_no_interval() -> None:
    interval = cluster_bootstrap([make_hits(1, 20)])["label_bacc"]
    assert np.isnan(interval.low)
    assert interval.method == "none"
    assert cluster_bootstrap([]) == {}


def test_undefined_scores_have_no_interval() -> None:
    both = make_hits(5, 20)
    one = ClassPredictions("label", np.zeros_like(both.truth), both.predicted, both.donors, False)
    for interval in cluster_bootstrap([one]).values():
        assert np.isnan(interval.mean)
        assert np.isnan(interval.high)


@pytest.mark.parametrize(("donors", "known"), [(3, False), (5, True)])
def test_a_score_that_most_resamples_lack_has_no_interval(donors: int, known: bool) -> None:
    """A correlation over donors needs three: of three, only the draw of each once has them."""
    codes = np.repeat(np.arange(donors), 20)
    wrong = np.array([0.0, 2.0, 1.0, 4.0, 3.0])[codes] + np.random.default_rng(0).normal(0, 0.1, len(codes))
    ages = NumberPredictions("age", codes + 20.0, wrong, codes, True)
    made = cluster_bootstrap([make_hits(donors, 20), ages], ["age_spearman_donor"])
    assert made["age_spearman_cell"].method == "bootstrap"
    for name in ("age_spearman_donor", "score"):
        assert np.isfinite(made[name].mean)
        assert made[name].method == ("bootstrap" if known else "none")
        assert np.isfinite([made[name].low, made[name].high]).all() == known


def test_limits_that_coincide_are_no_interval() -> None:
    codes = np.repeat(np.arange(6), 4)
    ages = NumberPredictions("age", codes / 3, codes * 2.0, codes, True)  # right in every resample
    for interval in cluster_bootstrap([ages]).values():
        assert interval.mean == pytest.approx(1)
        assert (interval.method, np.isnan(interval.low), np.isnan(interval.high)) == ("none", True, True)


def test_resamples_of_a_single_class_do_not_count() -> None:
    """Two donors of a class each, one predicted rightly: half of the resamples hold one class, all right or wrong."""
    codes = np.repeat([0, 1], 10)
    probability = np.tile([0.9, 0.1], (20, 1))
    made = cluster_bootstrap([ClassPredictions("label", codes, probability, codes, True)])
    assert made["label_bacc"].mean == 0.5
    assert {interval.method for interval in made.values()} == {"none"}
    weighted = ClassPredictions("label", codes, probability, codes, True).weighted(np.array([[1.0, 1], [2, 0], [0, 2]]))
    for values in weighted.values():
        assert np.isfinite(values).tolist() == [True, False, False]
