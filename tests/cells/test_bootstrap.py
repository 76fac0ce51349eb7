import numpy as np
import pytest
from scipy import stats

from r2mae.cells.predictions import Predictions, cluster_bootstrap


def make_hits(donors: int, cells: int, seed: int = 0) -> Predictions:
    """Make predictions of two equal classes, right in a fraction of each donor's cells that is the donor's own."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(4, 2, donors)
    hit = rng.random((donors, cells)) < rates[:, None]
    truth = np.tile(np.arange(cells) % 2, donors)
    sure = np.where(hit.ravel(), truth, 1 - truth)[:, None] == [0, 1]
    return Predictions("label", truth, np.where(sure, 0.9, 0.1), np.repeat(np.arange(donors), cells), False)


def make_numbers() -> Predictions:
    donors = np.repeat([0, 1, 2, 3, 10, 11], 4)
    rng = np.random.default_rng(0)
    return Predictions("age", donors + 20.0, donors + rng.normal(0, 2, 24), donors, True)


def test_the_interval_is_over_donors_not_cells() -> None:
    one = make_hits(40, 200)
    low, high = cluster_bootstrap([one])["label_bacc"]
    rates = np.array([(one.predicted.argmax(axis=1) == one.truth)[one.donors == d].mean() for d in range(40)])
    assert one.scores()["label_bacc"] == pytest.approx(rates.mean())
    # Donors have equal numbers of cells of both classes, so that the balanced accuracy is the mean of their rates.
    half = stats.norm.ppf(0.975) * rates.std() / np.sqrt(40)
    assert low == pytest.approx(rates.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(rates.mean() + half, abs=0.15 * half)


def test_the_interval_covers() -> None:
    covered = 0
    for seed in range(200):
        low, high = cluster_bootstrap([make_hits(30, 20, seed)], resamples=200)["label_bacc"]
        covered += low <= 4 / 6 <= high
    assert 0.87 <= covered / 200 <= 0.99


def test_summaries_are_resampled_jointly() -> None:
    one = make_hits(12, 30)
    twice = Predictions("other", one.truth, one.predicted, one.donors, False)
    made = cluster_bootstrap([one, twice], ["label_bacc", "other_bacc"])
    assert made["score"] == pytest.approx(made["label_bacc"])


def test_one_donor_has_no_interval() -> None:
    assert cluster_bootstrap([make_hits(1, 20)]) == cluster_bootstrap([]) == {}


def test_undefined_scores_have_no_interval() -> None:
    both = make_hits(5, 20)
    one = Predictions("label", np.zeros_like(both.truth), both.predicted, both.donors, False)
    assert cluster_bootstrap([one]) == {}


@pytest.mark.parametrize(("donors", "known"), [(3, False), (5, True)])
def test_a_score_that_most_resamples_lack_has_no_interval(donors: int, known: bool) -> None:
    """A correlation over donors needs three: of three, only the draw of each once has them."""
    codes = np.repeat(np.arange(donors), 20)
    wrong = np.array([0.0, 2.0, 1.0, 4.0, 3.0])[codes] + np.random.default_rng(0).normal(0, 0.1, len(codes))
    ages = Predictions("age", codes + 20.0, wrong, codes, True)
    made = cluster_bootstrap([make_hits(donors, 20), ages], ["age_spearman_donor"])
    assert np.isfinite(ages.scores()["age_spearman_donor"])
    assert "age_spearman_cell" in made
    assert {"age_spearman_donor", "score"} & made.keys() == ({"age_spearman_donor", "score"} if known else set())


def test_limits_that_coincide_are_no_interval() -> None:
    codes = np.repeat(np.arange(6), 4)
    ages = Predictions("age", codes / 3, codes * 2.0, codes, True)  # right in every resample
    assert ages.scores() == {name: pytest.approx(1) for name in ("age_spearman_cell", "age_spearman_donor")}
    assert cluster_bootstrap([ages]) == {}


def test_resamples_of_a_single_class_do_not_count() -> None:
    """Two donors of a class each, one predicted rightly: half of the resamples hold one class, all right or wrong."""
    codes = np.repeat([0, 1], 10)
    probability = np.tile([0.9, 0.1], (20, 1))
    one = Predictions("label", codes, probability, codes, True)
    assert one.scores()["label_bacc"] == 0.5
    assert cluster_bootstrap([one]) == {}
    for values in one.weighted(np.array([[1.0, 1], [2, 0], [0, 2]])).values():
        assert np.isfinite(values).tolist() == [True, False, False]
