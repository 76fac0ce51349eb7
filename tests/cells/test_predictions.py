"""Scores against scikit-learn and scipy, and under weights against cells that are really repeated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from r2mae.cells.predictions import Predictions


def make_classes(rng: np.random.Generator, *, donor_level: bool = False, classes: int = 3) -> Predictions:
    donors = np.sort(rng.integers(2, 9, 90))
    truth = (donors if donor_level else rng.integers(0, classes, 90)) % classes
    probability = rng.dirichlet(np.ones(classes), 90).round(1)  # with ties
    probability[np.arange(90), truth] += 0.3
    return Predictions("label", truth, probability, donors, donor_level)


def make_numbers(rng: np.random.Generator) -> Predictions:
    donors = np.sort(rng.integers(2, 9, 90))
    truth = 20.0 + 3 * donors
    return Predictions("age", truth, (truth + rng.normal(0, 9, 90)).round(), donors, True)


def repeated(donors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(donors)), weights[donors].astype(int))


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 5]))
def test_classes_are_scored_as_by_scikit_learn(seed: int, classes: int) -> None:
    one = make_classes(np.random.default_rng(seed), classes=classes)
    scores = one.scores()
    predicted = one.predicted.argmax(axis=1)
    areas = [roc_auc_score(one.truth == place, one.predicted[:, place]) for place in range(classes)]
    assert scores == {
        "label_bacc": pytest.approx(balanced_accuracy_score(one.truth, predicted)),
        "label_f1": pytest.approx(f1_score(one.truth, predicted, average="macro")),
        "label_auroc": pytest.approx(np.mean(areas)),
    }


def test_classes_without_test_cells_count_as_in_scikit_learn() -> None:
    one = make_classes(np.random.default_rng(0))
    two = Predictions("label", np.minimum(one.truth, 1), one.predicted, one.donors, False)
    predicted = two.predicted.argmax(axis=1)
    assert (predicted == 2).any()
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        expected = balanced_accuracy_score(two.truth, predicted)
    assert two.scores()["label_bacc"] == pytest.approx(expected)
    assert two.scores()["label_f1"] == pytest.approx(f1_score(two.truth, predicted, average="macro"))


def test_donors_are_scored_by_their_means() -> None:
    one = make_classes(np.random.default_rng(1), donor_level=True)
    names = np.unique(one.donors)
    means = np.stack([one.predicted[one.donors == name].mean(axis=0) for name in names])
    areas = [roc_auc_score(names % 3 == place, means[:, place]) for place in range(3)]
    assert one.scores()["label_auroc_donor"] == pytest.approx(np.mean(areas))


@given(st.integers(0, 10**6), st.booleans())
def test_weights_repeat_the_cells_of_donors(seed: int, donor_level: bool) -> None:
    rng = np.random.default_rng(seed)
    one = make_classes(rng, donor_level=donor_level)
    weights = rng.integers(0, 3, (4, 9)).astype(float)
    weights[:, one.donors[0]] = 1.0
    made = one.weighted(weights)
    for number, row in enumerate(weights):
        cells = repeated(one.donors, row)
        copies = Predictions("label", one.truth[cells], one.predicted[cells], one.donors[cells], False)
        for name, value in copies.scores().items():
            assert made[name][number] == pytest.approx(value, nan_ok=True), name


def test_weights_of_one_change_nothing() -> None:
    for one in (make_classes(np.random.default_rng(2), donor_level=True), make_numbers(np.random.default_rng(2))):
        made = one.weighted(np.ones((1, 9)))
        assert {name: value[0] for name, value in made.items()} == pytest.approx(one.scores())


def test_more_resamples_than_are_held_at_a_time() -> None:
    one = make_classes(np.random.default_rng(3))
    weights = np.random.default_rng(4).integers(0, 3, (300, 9)).astype(float)
    whole = one.weighted(weights)
    for name, value in one.weighted(weights[-5:]).items():
        np.testing.assert_allclose(whole[name][-5:], value)


@given(st.integers(0, 10**6))
def test_numbers_are_correlated_as_by_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = make_numbers(rng)
    weights = rng.integers(0, 3, (3, 9)).astype(float)
    weights[:, one.donors[[0, 40, 89]]] += 1.0
    made = one.weighted(weights)
    names = np.unique(one.donors)
    truth, predicted = (
        np.array([values[one.donors == name].mean() for name in names]) for values in (one.truth, one.predicted)
    )
    for number, row in enumerate(weights):
        cells, donors = repeated(one.donors, row), repeated(names, row)
        cell = spearmanr(one.truth[cells], one.predicted[cells]).statistic
        assert made["age_spearman_cell"][number] == pytest.approx(cell)
        if len(np.unique(donors)) > 2:
            donor = spearmanr(truth[donors], predicted[donors]).statistic
            assert made["age_spearman_donor"][number] == pytest.approx(donor)


def test_equal_predictions_are_worth_nothing() -> None:
    donors = np.repeat(np.arange(5), 2)
    flat = Predictions("age", donors.astype(float), np.full(10, 3.0), donors, True)
    assert flat.scores() == {"age_spearman_cell": 0.0, "age_spearman_donor": 0.0}


def test_what_is_undefined_is_nan() -> None:
    donors = np.array([0, 0, 1, 1])
    same_age = Predictions("age", np.full(4, 3.0), np.array([1.0, 1, 2, 2]), donors, True)
    assert np.isnan(list(same_age.scores().values())).all()
    two_donors = Predictions("age", np.array([1.0, 1, 2, 2]), np.arange(4.0), donors, True)
    assert np.isnan(two_donors.scores()["age_spearman_donor"])
    assert two_donors.scores()["age_spearman_cell"] == pytest.approx(spearmanr([1, 1, 2, 2], range(4)).statistic)
    one_class = Predictions("label", np.zeros(4, dtype=np.int64), np.eye(2)[[0, 0, 1, 0]], donors, False)
    assert np.isnan(list(one_class.scores().values())).all()
    assert np.isnan(one_class.weighted(np.zeros((1, 2)))["label_bacc"]).all()
