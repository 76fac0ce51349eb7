"""The models of the Hessian against the Hessian itself, and what they change in the probe."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from r2mae.evaluation import probes
from r2mae.evaluation.probes import LinearProbe, _logistic_path, _Objective, _Point, _turned


def problem(classes: int, n: int = 80, d: int = 6) -> tuple[_Objective, _Point]:
    """Return an objective on features of unequal scale, and a point with uneven probabilities."""
    rng = np.random.default_rng(classes)
    X, *_ = _turned(rng.standard_normal((n, d)) * np.geomspace(1, 0.01, d))
    objective = _Objective(X, np.arange(n) % classes)
    objective.strength = 0.7
    return objective, objective.at(rng.standard_normal((classes, d + 1)) * 3)


def hessian(objective: _Objective, point: _Point) -> np.ndarray:
    """Return the second derivatives in coefficients and intercepts of all classes."""
    X = np.column_stack([objective.X, np.ones(len(objective.X))])
    p = np.where(point.residuals < 0, 1 + point.residuals, point.residuals)
    coupling = np.einsum("kn,kl->kln", p, np.eye(len(p))) - p[:, None] * p[None]
    full = np.einsum("kln,ni,nj->kilj", coupling, X, X)
    penalty = np.append(np.full(X.shape[1] - 1, 1 / objective.strength), 0.0)
    full += np.einsum("kl,ij->kilj", np.eye(len(p)), np.diag(penalty))
    size = len(p) * X.shape[1]
    return np.asarray(full.reshape(size, size))


def models(objective: _Objective, point: _Point) -> list[probes.InverseHessian]:
    """Return that of axes and that of classes."""
    return [objective.inverse_hessian(point, steps) for steps in (0, 30)]


def of_zero_sum(seed: int, like: np.ndarray) -> np.ndarray:
    gradient = np.random.default_rng(seed).standard_normal(like.shape)
    return np.asarray(gradient - gradient.mean(axis=0))


def test_two_classes_have_the_hessian_itself() -> None:
    objective, point = problem(2)
    gradient = of_zero_sum(0, point.theta)
    back = hessian(objective, point) @ models(objective, point)[1](gradient).ravel()
    np.testing.assert_allclose(back.reshape(gradient.shape), gradient, atol=2e-3)


@pytest.mark.parametrize("classes", [3, 7])
def test_matrices_come_closer_to_the_hessian_than_axes(classes: int) -> None:
    objective, point = problem(classes)
    full = hessian(objective, point)
    gradients = [of_zero_sum(seed, point.theta) for seed in range(20)]

    def spread(apply: probes.InverseHessian) -> float:
        ratios = [np.vdot(full @ apply(one).ravel(), apply(one)) / np.vdot(one, apply(one)) for one in gradients]
        return float(np.max(ratios) / np.min(ratios))  # one for the Hessian itself

    axes, matrices = models(objective, point)
    assert spread(matrices) < spread(axes)


def test_what_is_applied_is_symmetric_positive_and_keeps_sums_of_zero() -> None:
    objective, point = problem(4)
    one, other = of_zero_sum(1, point.theta), of_zero_sum(2, point.theta)
    for apply in models(objective, point):
        assert np.vdot(one, apply(other)) == pytest.approx(np.vdot(other, apply(one)), rel=1e-4)
        assert np.vdot(one, apply(one)) > 0
        np.testing.assert_allclose(apply(one).sum(axis=0), 0, atol=1e-9)


def test_rows_that_are_all_certain_have_an_inverse_and_large_matrices_are_not_built(monkeypatch) -> None:
    objective, point = problem(3)
    assert objective._by_class(np.full(point.residuals.shape, 0.2)) is not None
    for apply in models(objective, point._replace(residuals=np.zeros_like(point.residuals))):
        assert np.isfinite(apply(of_zero_sum(3, point.theta))).all()
    monkeypatch.setattr(probes, "_MOST", 3 * 7**2 - 1)
    assert objective._by_class(np.full(point.residuals.shape, 0.2)) is None


def slow_problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes of unequal size that overlap in part, on features of unequal scale: a weak penalty needs many steps."""
    rng = np.random.default_rng(4)
    y = np.minimum(rng.geometric(0.4, 600), 6)
    X = rng.standard_normal((600, 60)) * np.geomspace(1, 0.03, 60)
    X[:, :8] += 0.8 * rng.standard_normal((7, 8))[y]
    return X, y, rng.integers(0, 6, 600)


def test_a_weak_penalty_needs_few_steps_and_has_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, donor = slow_problem()
    grid = [1.0, 10.0, 100.0, 1000.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = LinearProbe(grid, tol=1e-6).fit(X, y, donor)
    monkeypatch.setattr(_Objective, "_by_class", lambda *_: None)
    plain = LinearProbe(grid, tol=1e-6, max_iter=100_000).fit(X, y, donor)
    np.testing.assert_allclose(found.cv_scores_, plain.cv_scores_, atol=0.01)
    assert found.C_ == plain.C_
    np.testing.assert_allclose(found.decision_function(X), plain.decision_function(X), atol=1e-3)


def test_the_exact_decrement_is_small_where_a_fit_has_converged() -> None:
    X, y, _ = slow_problem()
    _, codes = np.unique(y, return_inverse=True)
    X, *_ = _turned(X)
    *_, (theta, _, converged) = _logistic_path(X, codes, np.array([0.1, 0.7, 50.0]), 1e-5, 10_000)
    assert converged
    objective = _Objective(X, codes)
    objective.strength = 50.0
    point = objective.at(theta)
    gradient = objective.gradient(point).ravel()
    decrement = gradient @ np.linalg.lstsq(hessian(objective, point), gradient, rcond=None)[0]
    assert np.sqrt(decrement / len(X)) < 1e-4


def test_steps_at_a_weak_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = slow_problem()
    _, codes = np.unique(y, return_inverse=True)
    X, *_ = _turned(X)

    def steps() -> list[int]:
        return [one for _, one, _ in _logistic_path(X, codes, np.array([100.0, 1000.0]), 1e-6, 10_000)]

    now = steps()
    monkeypatch.setattr(_Objective, "_by_class", lambda *_: None)
    assert steps()[-1] > 4 * now[-1]
