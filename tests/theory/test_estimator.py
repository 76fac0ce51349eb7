from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from r2mae.masking import Uniform
from r2mae.theory.estimator import MaskedRidgeless
from r2mae.theory.models import identity, uniform_direction
from r2mae.theory.simulate import simulate


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 8)) + 3
    return x, x @ rng.standard_normal((8, 2)) + 0.1 * rng.standard_normal((60, 2)) - 5


X, Y = _data()


@parametrize_with_checks([MaskedRidgeless(), MaskedRidgeless(Uniform(0.2, 0.9), ridge=0.1, repetitions=3, keep=0.5)])
def test_scikit_learn_s_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("y", [Y, Y[:, 0], Y[:, :1]], ids=["two", "one", "column"])
@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_with_nothing_hidden_it_is_scikit_learn_s(fit_intercept: bool, y: np.ndarray, ridge: float) -> None:
    peer = Ridge(ridge, fit_intercept=fit_intercept) if ridge else LinearRegression(fit_intercept=fit_intercept)
    peer.fit(X, y)
    fitted = MaskedRidgeless(0.0, ridge=ridge, keep=1.0, fit_intercept=fit_intercept).fit(X, y)
    assert fitted.predict(X).shape == y.shape
    np.testing.assert_allclose(fitted.predict(X), peer.predict(X).reshape(y.shape))
    np.testing.assert_allclose(fitted.coef_, peer.coef_.reshape(fitted.coef_.shape))
    np.testing.assert_allclose(fitted.intercept_, peer.intercept_, atol=1e-9)
    assert fitted.n_rows_ == 60


def test_repetitions_average_and_shrink() -> None:
    # A masked design has covariance (1 − p)²Σ + p(1 − p) diag Σ: with Σ = I, averaged coefficients tend to β.
    many = MaskedRidgeless(0.5, repetitions=400, random_state=1).fit(X, Y[:, 0])
    few = MaskedRidgeless(0.5, repetitions=1, random_state=1).fit(X, Y[:, 0])
    exact = LinearRegression().fit(X, Y[:, 0]).coef_
    assert np.linalg.norm(many.coef_ - exact) < np.linalg.norm(few.coef_ - exact)
    assert many.n_rows_ == pytest.approx(30, abs=1)
    assert few.n_rows_ == int(few.n_rows_)


def test_random_states() -> None:
    model = MaskedRidgeless(Uniform(0.3, 0.8), random_state=3)
    first, again = model.fit(X, Y).coef_, clone(model).fit(X, Y).coef_
    assert (first == again).all()
    assert (first != model.set_params(random_state=4).fit(X, Y).coef_).any()


def test_its_risk_is_the_simulation_s() -> None:
    cov, beta, n = identity(40), uniform_direction(40), 30
    simulated = simulate(cov, beta, n, [0.6], noise=0.04, repetitions=300, design="fresh")
    rng, risks = np.random.default_rng(5), []
    for seed in range(300):
        x = cov.sample(n, rng)
        fitted = MaskedRidgeless(0.6, fit_intercept=False, random_state=seed).fit(
            x, x @ beta + 0.2 * rng.standard_normal(n)
        )
        risks.append(float(cov.quadratic(fitted.coef_ - beta)))
    error = np.hypot(simulated.error[0], np.std(risks) / np.sqrt(300))
    assert abs(np.mean(risks) - simulated.risk[0]) < 4 * error


def test_ratio_zero_predicts_the_mean() -> None:
    fitted = MaskedRidgeless(0.0).fit(X, Y)
    assert not fitted.coef_.any()
    np.testing.assert_allclose(fitted.predict(X[:1])[0], Y.mean(axis=0))
    assert fitted.n_rows_ == 0


def test_in_a_pipeline_and_a_search() -> None:
    chain = make_pipeline(StandardScaler(), MaskedRidgeless(random_state=0, repetitions=5))
    grid = {"maskedridgeless__ratio": [0.9, Uniform(0.6, 0.7), 0.2], "maskedridgeless__keep": ["ratio", 1.0]}
    search = GridSearchCV(chain, grid, cv=3).fit(X, Y)
    assert search.best_params_ == {"maskedridgeless__ratio": 0.2, "maskedridgeless__keep": 1.0}
    assert search.predict(X).shape == Y.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 1.0}, "ratio must be at least 0 and below 1"),
        ({"ratio": -0.5}, "ratio must be at least 0"),
        ({"ratio": "half"}, "ratio must be a number or an object with nodes"),
        ({"ratio": None}, "ratio must be a number or an object with nodes"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"ridge": "small"}, "ridge must be a finite number of 0 or more, not 'small'"),
        ({"ridge": float("nan")}, "ridge must be"),
        ({"repetitions": 0}, "repetitions must be 1 or more"),
        ({"repetitions": 1.5}, "repetitions must be 1 or more, not 1.5"),
        ({"keep": 2.0}, "keep must be"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_parameters(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedRidgeless(**change).fit(X, Y)
