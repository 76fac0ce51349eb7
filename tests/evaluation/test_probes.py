import re

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

from r2mae.evaluation.probes import PAPER_ALPHAS, PAPER_CS, LinearProbe, RidgeProbe

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_thread():
    """The problems are small: several threads would spend their time waiting for each other."""
    with threadpool_limits(1):
        yield


def embeddings(n=400, d=30, classes=5, groups=12, separation=0.4, seed=0):
    """Features as encoders give them: correlated, non-negative, shifted by donor; classes that overlap in part."""
    rng = np.random.default_rng(seed)
    deviation = np.arange(1, d + 1) ** -0.4
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    y, donor = rng.integers(0, classes, n), rng.integers(0, groups, n)
    y[:classes] = np.arange(classes)
    centres = separation * rng.standard_normal((classes, d))
    shifts = 0.5 * rng.standard_normal((groups, d))
    X = ((centres[y] + shifts[donor] + rng.standard_normal((n, d))) * deviation) @ turn
    return 3 * np.maximum(X + 0.2, 0), y, donor


def digits(n=500):
    X, y = load_digits(return_X_y=True)
    return X[:n], y[:n], np.arange(n) // 23


def grid_search(estimator, name, grid, folds, scoring, X, y, groups):
    search = GridSearchCV(estimator, {name: grid}, cv=folds, scoring=scoring).fit(X, y, groups=groups)
    count = folds.get_n_splits(X, y, groups)
    return search, np.stack([search.cv_results_[f"split{k}_test_score"] for k in range(count)], axis=1)


@pytest.mark.usefixtures("unchecked")  # constructors must take anything there, and only fit complain
@pytest.mark.parametrize("probe", [LinearProbe(), RidgeProbe()], ids=["linear", "ridge"])
def test_is_a_scikit_learn_estimator(probe):
    results = check_estimator(probe, on_skip=None)
    assert {entry["check_name"] for entry in results if entry["status"] != "passed"} <= {"check_array_api_input"}


def test_grids_are_the_papers():
    np.testing.assert_array_equal(PAPER_CS, np.logspace(-6, 2, 10))
    np.testing.assert_array_equal(PAPER_ALPHAS, np.logspace(0, 8, 20))


class TestLinearProbe:
    @pytest.mark.parametrize("data", [embeddings, digits])
    @pytest.mark.parametrize("scoring", ["balanced_accuracy", "accuracy"])
    def test_scores_of_every_fold_are_those_of_grid_search(self, data, scoring):
        X, y, donor = data()
        Cs = np.logspace(-6, 0, 6)
        probe = LinearProbe(Cs, scoring=scoring).fit(X, y, donor)
        search, scores = grid_search(
            LogisticRegression(solver="newton-cholesky", tol=1e-8), "C", Cs, GroupKFold(5), scoring, X, y, donor
        )
        np.testing.assert_allclose(probe.cv_mean_, scores.mean(axis=1), atol=1e-3)
        np.testing.assert_allclose(probe.cv_scores_[:4], scores[:4], atol=1e-12)
        assert search.best_params_["C"] == probe.C_

    @pytest.mark.parametrize("C", [1e-4, 1e-2, 1.0])
    def test_optimum_is_that_of_logistic_regression(self, C):
        X, y, donor = embeddings()
        probe = LinearProbe([C], tol=1e-8).fit(X, y, donor)
        reference = LogisticRegression(C=C, tol=1e-10, solver="newton-cholesky").fit(X, y)
        np.testing.assert_allclose(probe.predict_proba(X), reference.predict_proba(X), atol=1e-6)
        np.testing.assert_allclose(probe.coef_, reference.coef_, atol=1e-5)
        np.testing.assert_allclose(probe.decision_function(X), reference.decision_function(X), atol=1e-4)

    def test_gradient_vanishes_at_every_default_strength(self):
        X, y, donor = digits()
        onehot = np.eye(10)[y]
        for C in PAPER_CS:
            probe = LinearProbe([C]).fit(X, y, donor)
            residual = probe.predict_proba(X) - onehot
            gradient = residual.T @ X + probe.coef_ / C
            assert np.abs(residual.sum(axis=0)).max() < 1e-2
            assert np.abs(gradient).max() < 1e-4 * np.abs(X.T @ (0.1 - onehot)).max()

    def test_two_classes_have_the_binary_optimum(self):
        X, y, donor = embeddings(classes=2)
        labels = np.array(["healthy", "diseased"])[y]
        Cs = [0.01, 0.1]
        probe = LinearProbe(Cs, tol=1e-8).fit(X, labels, donor)
        reference = LogisticRegression(C=probe.C_, tol=1e-10, solver="newton-cholesky").fit(X, labels)
        np.testing.assert_allclose(probe.coef_, reference.coef_, atol=1e-6)
        np.testing.assert_allclose(probe.intercept_, reference.intercept_, atol=1e-5)
        np.testing.assert_allclose(probe.predict_proba(X), reference.predict_proba(X), atol=1e-6)
        np.testing.assert_array_equal(probe.predict(X), reference.predict(X))

    def test_more_features_than_rows(self):
        X, y, donor = embeddings(n=60, d=200, classes=3)
        Cs = np.logspace(-4, 0, 4)
        probe = LinearProbe(Cs, tol=1e-8).fit(X, y, donor)
        reference = LogisticRegression(C=probe.C_, tol=1e-9, max_iter=50000).fit(X, y)
        _, scores = grid_search(
            LogisticRegression(tol=1e-8, max_iter=50000), "C", Cs, GroupKFold(5), "balanced_accuracy", X, y, donor
        )
        np.testing.assert_allclose(probe.cv_scores_, scores, atol=1e-12)
        np.testing.assert_allclose(probe.coef_, reference.coef_, atol=1e-5)

    def test_features_far_from_zero_and_of_unequal_scales(self):
        X, y, donor = embeddings()
        X = X * np.logspace(-2, 2, X.shape[1])
        near, far = LinearProbe([0.1], tol=1e-7).fit(X, y, donor), LinearProbe([0.1], tol=1e-7).fit(X + 1e4, y, donor)
        np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-5)
        np.testing.assert_allclose(far.predict_proba(X + 1e4), near.predict_proba(X), atol=1e-5)

    def test_without_groups_folds_are_stratified(self):
        X, y, _ = embeddings()
        Cs = [1e-3, 1e-2]
        probe = LinearProbe(Cs, cv=4).fit(X, y)
        _, scores = grid_search(
            LogisticRegression(tol=1e-7, max_iter=20000), "C", Cs, StratifiedKFold(4), "balanced_accuracy", X, y, None
        )
        np.testing.assert_allclose(probe.cv_scores_, scores, atol=1e-12)

    def test_the_first_of_equal_strengths_is_chosen_in_the_order_given(self):
        y = np.arange(60) % 3
        X = np.eye(3)[y] * 100.0
        for Cs in ([10.0, 1.0, 100.0], [1.0, 10.0]):
            probe = LinearProbe(Cs).fit(X, y)
            np.testing.assert_array_equal(probe.cv_mean_, 1.0)
            assert Cs[0] == probe.C_

    def test_order_of_the_grid_does_not_change_the_scores(self):
        X, y, donor = embeddings()
        Cs = np.array([0.1, 1e-4, 10.0, 1e-4])
        scores = LinearProbe(Cs).fit(X, y, donor).cv_scores_
        ascending = LinearProbe(np.sort(Cs)).fit(X, y, donor).cv_scores_
        np.testing.assert_array_equal(scores[np.argsort(Cs, kind="stable")], ascending)

    def test_a_class_that_only_one_group_has(self):
        X, y, donor = embeddings()
        y[donor == 3] = 5
        probe = LinearProbe([1.0]).fit(X, y, donor)
        (held_out,) = (test for _, test in GroupKFold(5).split(X, y, donor) if 3 in donor[test])
        train = np.setdiff1d(np.arange(len(X)), held_out)
        predicted = LogisticRegression(C=1.0, tol=1e-7, max_iter=20000).fit(X[train], y[train]).predict(X[held_out])
        assert np.isclose(probe.cv_scores_[0], balanced_accuracy_score(y[held_out], predicted), atol=1e-12).any()
        assert 5 in probe.predict(X)

    def test_training_rows_of_one_class_predict_that_class(self):
        X = np.arange(12.0)[:, None]
        y = np.repeat([0, 1], 6)
        probe = LinearProbe([1.0]).fit(X, y, groups=y)
        np.testing.assert_array_equal(probe.cv_scores_, [[0.0, 0.0]])

    def test_few_groups_make_few_folds(self):
        X, y, _ = embeddings()
        assert LinearProbe([1.0]).fit(X, y, np.arange(len(y)) % 3).cv_scores_.shape == (1, 3)

    def test_stopping_short_is_said(self):
        X, y, donor = embeddings()
        with pytest.warns(ConvergenceWarning, match=re.escape("raise max_iter")):
            LinearProbe([100.0], max_iter=3).fit(X, y, donor)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"Cs": []}, "Cs must be a list of positive finite numbers"),
            ({"Cs": [0.0, 1.0]}, "Cs must be a list of positive finite numbers"),
            ({"scoring": "f1"}, "scoring must be one of 'balanced_accuracy', 'accuracy'; got 'f1'"),
            ({"cv": 1}, "cv must be 2 or more"),
            ({"cv": "a"}, "cv must be 2 or more folds, a whole number; got 'a'"),
            ({"cv": 2.5}, "cv must be 2 or more folds, a whole number; got 2.5"),
        ],
    )
    def test_bad_options(self, options, message):
        X, y, donor = embeddings()
        with pytest.raises(ValueError, match=re.escape(message)):
            LinearProbe().set_params(**options).fit(X, y, donor)

    def test_bad_data(self):
        X, y, donor = embeddings()
        with pytest.raises(ValueError, match="one group only"):
            LinearProbe().fit(X, y, np.zeros(len(y)))
        with pytest.raises(ValueError, match="one class"):
            LinearProbe().fit(X, np.zeros(len(y)), donor)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            LinearProbe().fit(X, y, donor[:-1])
        with pytest.raises(ValueError, match="scale them down"):
            LinearProbe().fit(X * 1e200, y, donor)


class TestRidgeProbe:
    @staticmethod
    def data(n=300, d=40):
        X, _, donor = embeddings(n=n, d=d)
        rng = np.random.default_rng(1)
        return X, X @ rng.standard_normal(d) + 20.0 + 3 * rng.standard_normal(n), donor

    @pytest.mark.parametrize("shape", [(300, 40), (60, 150)], ids=["long", "wide"])
    def test_scores_and_fit_are_those_of_grid_search(self, shape):
        X, y, donor = self.data(*shape)
        probe, scoring = RidgeProbe().fit(X, y, donor), "neg_mean_squared_error"
        search, scores = grid_search(
            Ridge(solver="svd"), "alpha", list(PAPER_ALPHAS), GroupKFold(5), scoring, X, y, donor
        )
        np.testing.assert_allclose(probe.cv_scores_, scores, rtol=1e-9)
        assert probe.alpha_ == search.best_params_["alpha"]
        np.testing.assert_allclose(probe.coef_, search.best_estimator_.coef_, atol=1e-9)
        np.testing.assert_allclose(probe.predict(X), search.predict(X), rtol=1e-9)

    def test_without_groups_folds_are_blocks(self):
        X, y, _ = self.data()
        _, scores = grid_search(Ridge(), "alpha", [1.0, 10.0], KFold(3), "neg_mean_squared_error", X, y, None)
        np.testing.assert_allclose(RidgeProbe([1.0, 10.0], cv=3).fit(X, y).cv_scores_, scores, rtol=1e-9)

    def test_the_first_of_equal_strengths_is_chosen(self):
        X, y, donor = self.data()
        assert RidgeProbe([3.0, 1.0]).fit(X, np.full(len(y), 2.0), donor).alpha_ == 3.0

    def test_bad_options(self):
        X, y, donor = self.data()
        with pytest.raises(ValueError, match="alphas must be a list of positive finite numbers"):
            RidgeProbe([-1.0]).fit(X, y, donor)
