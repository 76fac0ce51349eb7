import numpy as np
import pytest
from scipy import stats

from r2mae.cells.bootstrap import cluster_bootstrap, donor_weights
from r2mae.cells.predictions import ClassPredictions, NumberPredictions


def make_hits(donors: int, cells: int, seed: int = 0) -> ClassPredictions:
    """Make one class's predictions, right in a fraction of each donor's cells that is the donor's own."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(4, 2, donors)
    hit = rng.random((donors, cells)) < rates[:, None]
    probability = np.where(hit.ravel()[:, None], [0.9, 0.1], [0.2, 0.8])
    codes = np.repeat(np.arange(donors), cells)
    return ClassPredictions("label", np.zeros(donors * cells, dtype=np.int64), probability, codes, False)


def test_weights_are_draws_with_replacement() -> None:
    one, two = make_hits(7, 3), make_numbers()
    weights = donor_weights([one, two], resamples=50, seed=1)
    assert weights.shape == (50, 12)
    assert (weights.sum(axis=1) == 9).all()
    assert (weights[:, 7:10] == 0).all()
    np.testing.assert_array_equal(weights, donor_weights([two, one], resamples=50, seed=1))
    assert not np.array_equal(weights, donor_weights([one, two], resamples=50, seed=2))


def make_numbers() -> NumberPredictions:
    donors = np.repeat([0, 1, 2, 3, 10, 11], 4)
    rng = np.random.default_rng(0)
    return NumberPredictions("age", donors + 20.0, donors + rng.normal(0, 2, 24), donors, True)


def test_the_interval_is_over_donors_not_cells() -> None:
    one = make_hits(40, 200)
    interval = cluster_bootstrap([one])["label_bacc"]
    rates = np.array([(one.probability[one.donors == d, 0] > 0.5).mean() for d in range(40)])
    assert interval.mean == pytest.approx(rates.mean())
    assert interval.n == 40
    # Donors have equal numbers of cells, so that the balanced accuracy of one class is the mean of the donors' rates.
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
    twice = ClassPredictions("other", one.truth, one.probability, one.donors, False)
    made = cluster_bootstrap(
        [one, twice],
        summary={
            "score": lambda scores: (scores["label_bacc"] + scores["other_bacc"]) / 2,
            "gap": lambda scores: scores["label_bacc"] - scores["other_bacc"],
            "none": lambda scores: None,
        },
    )
    assert made["score"].low == pytest.approx(made["label_bacc"].low)
    assert (made["gap"].low, made["gap"].high) == (0.0, 0.0)
    assert "none" not in made


def test_one_donor_has_no_interval() -> None:
    interval = cluster_bootstrap([make_hits(1, 20)])["label_bacc"]
    assert np.isnan(interval.low)
    assert interval.method == "none"
    assert cluster_bootstrap([]) == {}


def test_undefined_scores_have_no_interval() -> None:
    interval = cluster_bootstrap([make_hits(5, 20)])["label_auroc"]  # one class only
    assert np.isnan(interval.mean)
    assert np.isnan(interval.high)
