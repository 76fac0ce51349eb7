"""The models of the Hessian against the Hessian itself, and what they change in the probe."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from r2mae.evaluation import _logistic
from r2mae.evaluation._folds import Folds, TrainingRows
from r2mae.evaluation._logistic import InverseHessian, by_axis, by_class, curvatures
from r2mae.evaluation.probes import LinearProbe

STRENGTH = 0.7


def problem(classes: int, n: int = 80, d: int = 6) -> tuple[TrainingRows, np.ndarray]:
    """Return rows along principal axes, those of two folds of three, and residuals of uneven probabilities."""
    rng = np.random.default_rng(classes)
    X = rng.standard_normal((n, d)) * np.geomspace(1, 0.01, d)
    rows = Folds(X, np.arange(n) % 3, standardize=False).train(1)
    logits = 3 * rng.standard_normal((classes, len(rows.X)))
    residuals = np.exp(logits) / np.exp(logits).sum(axis=0)
    residuals[rng.integers(0, classes, len(rows.X)), np.arange(len(rows.X))] -= 1.0
    return rows, residuals


def hessian(rows: TrainingRows, residuals: np.ndarray, strength: float = STRENGTH) -> np.ndarray:
    """Return the second derivatives in coefficients and intercepts of all classes."""
    X = np.column_stack([rows.X, np.ones(len(rows.X))])
    p = np.where(residuals < 0, 1 + residuals, residuals)
    coupling = np.einsum("kn,kl->kln", p, np.eye(len(p))) - p[:, None] * p[None]
    full = np.einsum("kln,ni,nj->kilj", coupling, X, X)
    penalty = np.append(np.full(X.shape[1] - 1, 1 / strength), 0.0)
    full += np.einsum("kl,ij->kilj", np.eye(len(p)), np.diag(penalty))
    size = len(p) * X.shape[1]
    return np.asarray(full.reshape(size, size))


def of_zero_sum(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    gradient = rng.standard_normal(shape)
    return np.asarray(gradient - gradient.mean(axis=0))


def test_two_classes_have_the_hessian_itself() -> None:
    rows, residuals = problem(2)
    apply = by_class(rows, residuals, STRENGTH)
    assert apply is not None
    gradient = of_zero_sum(np.random.default_rng(0), (2, len(rows.mean) + 1))
    back = hessian(rows, residuals) @ apply(gradient).ravel()
    np.testing.assert_allclose(back.reshape(gradient.shape), gradient, atol=2e-4)


@pytest.mark.parametrize("classes", [3, 7])
def test_matrices_come_closer_to_the_hessian_than_axes(classes: int) -> None:
    rows, residuals = problem(classes)
    full = hessian(rows, residuals)
    rng = np.random.default_rng(1)
    gradients = [of_zero_sum(rng, (classes, len(rows.mean) + 1)) for _ in range(20)]

    def spread(apply: InverseHessian | None) -> float:
        assert apply is not None
        ratios = [np.vdot(full @ apply(one).ravel(), apply(one)) / np.vdot(one, apply(one)) for one in gradients]
        return float(np.max(ratios) / np.min(ratios))  # one for the Hessian itself

    assert spread(by_class(rows, residuals, STRENGTH)) < spread(by_axis(rows, residuals, STRENGTH))


@pytest.mark.parametrize("model", [by_axis, by_class])
def test_what_is_applied_is_symmetric_positive_and_keeps_sums_of_zero(model: object) -> None:
    rows, residuals = problem(4)
    apply = model(rows, residuals, STRENGTH)  # type: ignore[operator]
    rng = np.random.default_rng(2)
    one, other = (of_zero_sum(rng, (4, len(rows.mean) + 1)) for _ in range(2))
    assert np.vdot(one, apply(other)) == pytest.approx(np.vdot(other, apply(one)), rel=1e-4)
    assert np.vdot(one, apply(one)) > 0
    np.testing.assert_allclose(apply(one).sum(axis=0), 0, atol=1e-9)


def test_curvatures_of_equal_probabilities() -> None:
    residuals = np.full((5, 3), 0.2)
    residuals[0] -= 1.0
    np.testing.assert_allclose(curvatures(residuals), 0.2)


def test_large_matrices_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, residuals = problem(3)
    monkeypatch.setattr(_logistic, "LARGEST", 3 * 7**2 - 1)
    assert by_class(rows, residuals, STRENGTH) is None


def test_rows_that_are_all_certain_have_an_inverse() -> None:
    rows, residuals = problem(3)
    apply = by_class(rows, np.zeros_like(residuals), STRENGTH)
    assert apply is not None
    assert np.isfinite(apply(of_zero_sum(np.random.default_rng(3), (3, len(rows.mean) + 1)))).all()


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
    monkeypatch.setattr(_logistic, "by_class", lambda *_: None)
    plain = LinearProbe(grid, tol=1e-6, max_iter=100_000).fit(X, y, donor)
    np.testing.assert_allclose(found.cv_scores_, plain.cv_scores_, atol=0.01)
    assert found.C_ == plain.C_
    np.testing.assert_allclose(found.decision_function(X), plain.decision_function(X), atol=1e-3)


def test_the_exact_decrement_is_small_where_a_fit_has_converged() -> None:
    X, y, _ = slow_problem()
    _, codes = np.unique(y, return_inverse=True)
    rows = Folds(X, np.zeros(len(X), dtype=np.int64), standardize=False).train(None)
    objective = _logistic._Objective(rows, codes)
    for solution in _logistic.solve_path(rows, codes, [0.1, STRENGTH, 50.0], tol=1e-5, max_iter=10_000):
        assert solution.converged
    objective.strength = 50.0
    point = objective.at(solution.theta, objective.margins(solution.theta))
    gradient = objective.gradient(point).ravel()
    exact = hessian(rows, point.residuals, 50.0)
    decrement = gradient @ np.linalg.lstsq(exact, gradient, rcond=None)[0]
    assert np.sqrt(decrement / len(rows.X)) < 1e-4


def test_steps_at_a_weak_penalty() -> None:
    X, y, _ = slow_problem()
    _, codes = np.unique(y, return_inverse=True)
    folds = Folds(X, np.zeros(len(X), dtype=np.int64), standardize=False)
    codes = codes[folds.order]

    def steps(strengths: list[float]) -> list[int]:
        path = _logistic.solve_path(folds.train(None), codes, strengths, tol=1e-6, max_iter=10_000)
        return [one.iterations for one in path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_logistic, "by_class", lambda *_: None)
        before = steps([100.0, 1000.0])
    now = steps([100.0, 1000.0])
    assert before[-1] > 4 * now[-1]
