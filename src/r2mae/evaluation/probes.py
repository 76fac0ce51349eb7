"""Linear probes of frozen features: classification and regression with grouped cross-validation of the penalty.

Both turn the training rows of a fold to their principal axes. There ridge regression has a closed form for all
penalties. Logistic regression is solved by L-BFGS with a model of the Hessian, which starts for each strength from the
solutions for those before it. Logits are linear in the coefficients, so a line search needs no product with the
features: a step costs one product with them and one with their transpose.
"""

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

# The grids of the paper's single-cell evaluation.
PAPER_CS = tuple(float(c) for c in np.logspace(-6, 2, 10))
PAPER_ALPHAS = tuple(float(alpha) for alpha in np.logspace(0, 8, 20))

_ONE_THREAD = 10**8  # multiplications of a product below which several threads would wait for each other
_LARGEST = 1e120  # feature; squares of larger ones overflow
_MEMORY = 10  # curvature pairs kept by L-BFGS
_REFRESH = 30  # steps after which the model of the Hessian is computed again, as the curvatures have changed
_ROUNDING = 1e-10  # relative rounding error that is assumed when two values of the objective are compared
_MOST = 2**25  # numbers in the matrices of all classes: 256 MiB
_JITTER = 1e-5  # on a diagonal of ones, against rounding in 32 bits
_FLATTEST = 1e-9  # least weight of a class: one whose rows are all certain has none

Grid = Sequence[float] | Float[np.ndarray, " strengths"]
Theta = Float[np.ndarray, "classes d_plus_1"]
InverseHessian = Callable[[Theta], Theta]
"""Applies the inverse to a gradient that sums to zero over the classes; so does what it returns."""


class LinearProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multinomial logistic regression that chooses its L2 penalty by cross-validation over groups.

    It has the optimum, folds, scores and choice of scikit-learn's ``GridSearchCV(LogisticRegression(), {"C": Cs},
    cv=GroupKFold(5), scoring="balanced_accuracy")``, the paper's single-cell evaluation, in a fraction of the time:
    ``python -m benchmarks probes`` measures it.

    Parameters
    ----------
    Cs : sequence of float, optional
        Inverse strengths of the penalty; default ``logspace(-6, 2, 10)``, the paper's.
    cv : int
        Number of folds; fewer if there are fewer groups.
    scoring : {"balanced_accuracy", "accuracy"}
        The score that the chosen strength maximises.
    tol : float
        Error allowed in the logits: root mean square, weighted by the curvature of the loss. Logits of rows that are
        classified with certainty may therefore have larger errors.
    max_iter : int
        Largest number of steps for each strength and fold.

    Attributes
    ----------
    C_ : float
        The chosen strength: the first with the highest mean score.
    coef_ : ndarray, shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the fit to all rows at `C_`.
    intercept_ : ndarray, shape (n_classes,) or (1,)
        Intercepts, not penalised.
    classes_ : ndarray, shape (n_classes,)
        Labels.
    cv_scores_ : ndarray, shape (n_strengths, n_folds)
        Score on every held-out fold. A class without training rows cannot be predicted in that fold.
    cv_mean_ : ndarray, shape (n_strengths,)
        Mean over the folds.
    n_iter_ : int
        Steps of the last fit.
    """

    def __init__(
        self,
        Cs: Grid | None = None,
        *,
        cv: int = 5,
        scoring: str = "balanced_accuracy",
        tol: float = 1e-5,
        max_iter: int = 1000,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, groups: Any = None) -> "LinearProbe":
        """Choose the strength on held-out folds, then fit all rows with it.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Features.
        y : array-like, shape (n,)
            Labels.
        groups : array-like, shape (n,), optional
            Rows of one group (a donor) are held out together. Without groups the folds are stratified by label.

        Raises
        ------
        ValueError
            If there is one class or one group only, the grid is empty or not positive, or `scoring` is unknown.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"LinearProbe needs labels of two or more classes; y has one class, {self.classes_[0]}")
        grid = _checked_grid("Cs", self.Cs, PAPER_CS)
        if self.scoring not in _SCORES:
            raise ValueError(f"scoring must be one of {', '.join(map(repr, _SCORES))}; got {self.scoring!r}")
        score = _SCORES[self.scoring]
        fold = _fold_of_row(X, codes, groups, self.cv, StratifiedKFold)
        ascending, folds, stalled = np.argsort(grid, kind="stable"), fold.max() + 1, 0
        self.cv_scores_, total = np.empty((len(grid), folds)), len(grid) * folds + 1
        with _blas_threads(X.shape[0] * X.shape[1] * len(self.classes_)):
            X, axes, mean = _turned(X)
            for number in range(folds):
                held_out = fold == number
                centre = X[~held_out].mean(axis=0)
                seen, own = np.unique(codes[~held_out], return_inverse=True)
                path = _logistic_path(X[~held_out] - centre, own, grid[ascending], self.tol, self.max_iter)
                for row, (theta, _, converged) in zip(ascending, path, strict=True):
                    logits = (X[held_out] - centre) @ theta[:, :-1].T + theta[:, -1]
                    self.cv_scores_[row, number] = score(codes[held_out], seen[logits.argmax(axis=1)])
                    stalled += not converged
            self.cv_mean_ = self.cv_scores_.mean(axis=1)
            self.C_ = float(grid[np.argmax(self.cv_mean_)])
            ((theta, steps, converged),) = _logistic_path(X, codes, np.array([self.C_]), self.tol, self.max_iter)
        if len(self.classes_) == 2:  # in the two-class form the first class is the reference
            theta = theta[1:] - theta[:1]
        self.coef_ = theta[:, :-1] @ axes.T
        self.intercept_ = theta[:, -1] - self.coef_ @ mean
        self.n_iter_ = max(steps, 1)
        if stalled := stalled + (not converged):
            warnings.warn(
                f"{stalled} of {total} fits stopped short of tol={self.tol:g} after at most max_iter={self.max_iter} "
                "steps; raise max_iter or omit the largest Cs",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Return logits, shape (n, n_classes); for two classes those of the second over the first, shape (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        logits: np.ndarray = X @ self.coef_.T + self.intercept_
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Return the probability of every class."""
        logits = self.decision_function(X)
        if logits.ndim == 1:
            return np.column_stack([expit(-logits), expit(logits)])
        return np.asarray(softmax(logits, axis=1))

    def predict(self, X: Any) -> Any:
        """Return the predicted label of every row, shape (n,)."""
        logits = self.decision_function(X)
        return self.classes_[(logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(axis=1)]


class RidgeProbe(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression that chooses its penalty by cross-validation over groups.

    It has the optimum, folds, scores and choice of scikit-learn's ``GridSearchCV(Ridge(), {"alpha": alphas},
    cv=GroupKFold(5), scoring="neg_mean_squared_error")``, from one eigendecomposition per fold.

    Parameters
    ----------
    alphas : sequence of float, optional
        Strengths of the penalty; default ``logspace(0, 8, 20)``, the paper's (single-cell evaluation).
    cv
        As in :class:`LinearProbe`.

    Attributes
    ----------
    alpha_ : float
        The chosen strength: the first with the lowest mean squared error on held-out folds.
    coef_ : ndarray, shape (n_features,)
        Coefficients of the fit to all rows at `alpha_`.
    intercept_ : float
        Intercept, not penalised.
    cv_scores_ : ndarray, shape (n_strengths, n_folds)
        Mean squared error on every held-out fold, negative.
    cv_mean_ : ndarray, shape (n_strengths,)
        Mean over the folds.
    """

    def __init__(self, alphas: Grid | None = None, *, cv: int = 5) -> None:
        self.alphas = alphas
        self.cv = cv

    def fit(self, X: Any, y: Any, groups: Any = None) -> "RidgeProbe":
        """Choose the strength on held-out folds, then fit all rows with it.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Features.
        y : array-like, shape (n,)
            Target.
        groups : array-like, shape (n,), optional
            Rows of one group (a donor) are held out together. Without groups the folds are contiguous blocks.

        Raises
        ------
        ValueError
            If there is one group only, or the grid is empty or not positive.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True, ensure_min_samples=2)
        grid = _checked_grid("alphas", self.alphas, PAPER_ALPHAS)
        fold, y = _fold_of_row(X, None, groups, self.cv, KFold), y.astype(np.float64)
        self.cv_scores_ = np.empty((len(grid), fold.max() + 1))
        with _blas_threads(X.shape[0] * X.shape[1] ** 2):
            X, axes, mean = _turned(X)
            for number in range(fold.max() + 1):
                held_out = fold == number
                coefficients, intercepts = _ridge_path(X[~held_out], y[~held_out], grid)
                predicted = coefficients @ X[held_out].T + intercepts[:, None]
                self.cv_scores_[:, number] = -np.square(y[held_out] - predicted).mean(axis=1)
            self.cv_mean_ = self.cv_scores_.mean(axis=1)
            self.alpha_ = float(grid[np.argmax(self.cv_mean_)])
            coefficients, intercepts = _ridge_path(X, y, np.array([self.alpha_]))
        self.coef_ = coefficients[0] @ axes.T
        self.intercept_ = float(intercepts[0] - self.coef_ @ mean)
        return self

    def predict(self, X: Any) -> Float[np.ndarray, " n"]:
        """Return the predicted target of every row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)


def _balanced_accuracy(truth: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"]) -> float:
    """Return the mean recall over the classes that occur; scikit-learn's checks would take longer than the fits."""
    return float(np.mean([(predicted[truth == one] == one).mean() for one in np.unique(truth)]))


_SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "balanced_accuracy": _balanced_accuracy,
    "accuracy": lambda truth, predicted: float(np.mean(truth == predicted)),
}


def _checked_grid(name: str, grid: Grid | None, default: tuple[float, ...]) -> Float[np.ndarray, " strengths"]:
    values = np.asarray(default if grid is None else grid, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"{name} must be a list of positive finite numbers; got {grid!r}")
    return values


def _fold_of_row(X: Any, codes: Any, groups: Any, cv: Any, ungrouped: type) -> Int[np.ndarray, " n"]:
    """Return the number of the fold that holds each row out."""
    if isinstance(cv, bool) or not isinstance(cv, Integral) or cv < 2:
        raise ValueError(f"cv must be 2 or more folds, a whole number; got {cv!r}")
    cv = int(cv)
    if groups is None:
        splitter = ungrouped(min(cv, len(X)))
    else:
        groups = np.asarray(groups)
        check_consistent_length(X, groups)
        n_groups = len(np.unique(groups))
        if n_groups < 2:
            raise ValueError("groups has one group only: cross-validation over groups needs two or more")
        splitter = GroupKFold(min(cv, n_groups))
    fold = np.zeros(len(X), dtype=np.int64)
    for number, (_, test) in enumerate(splitter.split(X, codes, groups)):
        fold[test] = number
    return fold


def _blas_threads(multiplications: int) -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread if its products are small."""
    return threadpool_limits(1, user_api="blas") if multiplications < _ONE_THREAD else nullcontext()


def _turned(
    X: Float[np.ndarray, "n features"],
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "features d"], Float[np.ndarray, " features"]]:
    """Return rows about their mean and along their principal axes, those axes, and the mean.

    With more features than rows there are as many axes as rows. The axes of all rows are near those of the training
    rows of a fold, whose scatter is nearly diagonal.
    """
    mean = X.mean(axis=0, dtype=np.float64)
    X = X - mean
    if np.abs(X).max() > _LARGEST:
        raise ValueError(f"features beyond {_LARGEST:g} overflow when multiplied; scale them down")
    if X.shape[1] > X.shape[0]:
        left, singular, axes = linalg.svd(X, full_matrices=False, check_finite=False)
        return left * singular, axes.T, mean
    axes = linalg.eigh(X.T @ X, check_finite=False)[1]
    return X @ axes, axes, mean


def _ridge_path(
    X: Float[np.ndarray, "n d"], target: Float[np.ndarray, " n"], alphas: Float[np.ndarray, " strengths"]
) -> tuple[Float[np.ndarray, "strengths d"], Float[np.ndarray, " strengths"]]:
    """Return ridge coefficients and intercepts for all strengths from one eigendecomposition."""
    centre, mean = X.mean(axis=0), target.mean()
    X = X - centre
    values, vectors = linalg.eigh(X.T @ X, check_finite=False)
    projected = (target - mean) @ X @ vectors
    coefficients = (projected / (np.maximum(values, 0.0) + alphas[:, None])) @ vectors.T
    return coefficients, mean - coefficients @ centre


def _logistic_path(
    X: Float[np.ndarray, "n d"],
    codes: Int[np.ndarray, " n"],
    Cs: Float[np.ndarray, " strengths"],
    tol: float,
    max_iter: int,
) -> Iterator[tuple[Theta, int, bool]]:
    """Minimise ``C Σᵢ cross-entropyᵢ + ½‖W‖²`` for every C, ascending; intercepts are not penalised.

    Yields coefficients with the intercepts in the last column, the steps, and whether they were enough: the Newton
    decrement per row, ``sqrt(gᵀ H⁻¹ g / n)`` with the model of the Hessian, is below `tol`. It estimates the remaining
    error of the logits, and depends neither on the units of the features nor on C.
    """
    objective = _Objective(X, codes)
    thetas = [objective.start()]
    for number, C in enumerate(Cs):
        if objective.classes == 1:  # the only one is predicted
            yield thetas[0], 0, True
            continue
        objective.strength = float(C) / 2 if objective.classes == 2 else float(C)  # sklearn penalises one vector of two
        starts = thetas[-1:]
        if number > 1 and Cs[number - 1] > Cs[number - 2]:  # straight on in log C
            far = math.log(C / Cs[number - 1]) / math.log(Cs[number - 1] / Cs[number - 2])
            starts = [*starts, thetas[-1] + far * (thetas[-1] - thetas[-2])]
        start = min(map(objective.at, starts), key=lambda point: point.value)
        point, steps, converged = _minimise(objective, start, tol, max_iter)
        thetas.append(point.theta)
        yield point.theta, steps, converged


class _Point(NamedTuple):
    """Logits minus the logit of the row's class, the objective, and probabilities less one-hot labels."""

    theta: Theta
    margins: Float[np.ndarray, "classes n"]
    value: float
    residuals: Float[np.ndarray, "classes n"]


class _Objective:
    """``Σᵢ cross-entropyᵢ + ‖W‖²/(2C)`` over one set of rows; the attribute `strength` is C."""

    def __init__(self, X: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"]) -> None:
        self.X, self.strength = X, 1.0
        self.scatter = np.einsum("ij,ij->j", X, X)
        self.classes = int(codes.max()) + 1
        self._own, self._counts = (codes, np.arange(len(codes))), np.bincount(codes)
        self._slow = False  # whether a strength has needed more steps than the better model costs

    def start(self) -> Theta:
        """Return coefficients of zero, and intercepts that predict the frequencies of the classes."""
        theta = np.zeros((self.classes, self.X.shape[1] + 1))
        theta[:, -1] = np.log(self._counts)
        theta[:, -1] -= theta[:, -1].mean()
        return theta

    def margins(self, theta: Theta) -> Float[np.ndarray, "classes n"]:
        """Return logits minus the logit of the row's class, with which the loss is accurate even for large logits."""
        logits: np.ndarray = theta[:, :-1] @ self.X.T
        logits += theta[:, -1:]
        logits -= logits[self._own]
        return logits

    def at(self, theta: Theta, margins: np.ndarray | None = None) -> _Point:
        """Evaluate loss and residuals."""
        margins = self.margins(theta) if margins is None else margins
        top = margins.max(axis=0)
        residuals = np.exp(margins - top)
        total = residuals.sum(axis=0)
        residuals /= total
        residuals[self._own] -= 1.0
        value = (np.log(total) + top).sum() + 0.5 * self._penalty(theta, theta)
        return _Point(theta, margins, float(value), residuals)

    def gradient(self, point: _Point) -> Theta:
        """Return the gradient in coefficients and intercepts."""
        coefficients = point.residuals @ self.X + point.theta[:, :-1] / self.strength
        return np.column_stack([coefficients, point.residuals.sum(axis=1)])

    def inverse_hessian(self, point: _Point, steps: int) -> InverseHessian:
        """Return a model of the inverse Hessian, after so many steps at this strength.

        The first takes one weight for each class, ``w_k λ_j + 1/C``: λ_j is the scatter along axis j, and w_k the mean
        curvature of the loss in the logit of class k, p(1−p). It costs nothing, and is enough where most rows are
        uncertain. From where a strength needs tens of steps, the second is the Hessian itself but for what couples the
        classes: ``Xᵀ diag(w_ik) X + 1/C`` for each class k, with the curvature of each row. It costs as much as tens of
        steps, and saves hundreds where a weak penalty makes the curvatures of the rows unlike.
        """
        size = np.abs(point.residuals)
        weights = (size - np.square(size)) * (self.classes / (self.classes - 1))  # so that equal p give 1/K
        self._slow |= steps >= max(_REFRESH, self.X.shape[1] // 16)
        return (self._slow and self._by_class(weights)) or self._by_axis(weights)

    def _by_axis(self, weights: Float[np.ndarray, "classes n"]) -> InverseHessian:
        weight = np.maximum(weights.mean(axis=1), _FLATTEST)[:, None]
        diagonal = np.column_stack([weight * self.scatter + 1.0 / self.strength, weight * len(self.X)])

        def apply(gradient: Theta) -> Theta:
            out = gradient / diagonal
            return np.asarray(out - out.mean(axis=0))

        return apply

    def _by_class(self, weights: Float[np.ndarray, "classes n"]) -> InverseHessian | None:
        """Return None if the matrices are too large, or rounding leaves one without an inverse."""
        own = 1 if self.classes == 2 else self.classes  # two classes have the same curvature
        if own * (self.X.shape[1] + 1) ** 2 > _MOST:
            return None
        penalty = np.append(np.full(self.X.shape[1], 1.0 / self.strength), _FLATTEST * len(self.X))
        factors = []
        for row in np.sqrt(weights[:own]).astype(np.float32):
            scaled = np.column_stack([self.X * row[:, None], row]).astype(np.float32)
            matrix = (scaled.T @ scaled).astype(np.float64)
            matrix[np.diag_indices_from(matrix)] *= 1 + _JITTER
            try:
                factors.append(linalg.cho_factor(matrix + np.diag(penalty), check_finite=False))
            except linalg.LinAlgError:
                return None

        def apply(gradient: Theta) -> Theta:
            parts = [linalg.cho_solve(factors[k % own], row, check_finite=False) for k, row in enumerate(gradient)]
            return np.asarray(parts - np.mean(parts, axis=0))

        return apply

    def search(self, point: _Point, direction: Theta) -> _Point | None:
        """Search along the direction, first by a Newton step; None if rounding allows no further progress."""
        change = self.margins(direction)
        slope = self._slope(point, direction, change)
        if not slope < 0.0:
            return None
        weighted = point.residuals * change  # for the row's own class residuals are p − 1, but `change` is zero
        curvature = np.vdot(weighted, change) - np.square(weighted.sum(axis=0)).sum()
        length = -slope / float(curvature + self._penalty(direction, direction))
        for _ in range(30):
            trial = self.at(point.theta + length * direction, point.margins + length * change)
            gain = point.value - trial.value
            if gain >= -1e-4 * length * slope:
                return trial
            there = self._slope(trial, direction, change)
            # Close to the optimum differences of the objective are rounding errors, so the slope decides.
            if abs(there) <= 0.8 * abs(slope) and gain >= -_ROUNDING * abs(point.value):
                return trial
            # The objective is convex: the slope has changed sign, and its root lies in between.
            length *= min(max(slope / (slope - there), 0.1), 0.7)
        return None

    def _slope(self, point: _Point, direction: Theta, change: np.ndarray) -> float:
        return float(np.vdot(point.residuals, change) + self._penalty(point.theta, direction))

    def _penalty(self, a: Theta, b: Theta) -> float:
        return float(np.vdot(a[:, :-1], b[:, :-1])) / self.strength


def _minimise(objective: _Objective, point: _Point, tol: float, max_iter: int) -> tuple[_Point, int, bool]:
    """Take L-BFGS steps; return the last point, the steps, and whether they were enough."""
    gradient = objective.gradient(point)
    for steps in range(max_iter + 1):
        if steps % _REFRESH == 0:
            inverse = objective.inverse_hessian(point, steps)
            pairs: deque[tuple[Theta, Theta, float]] = deque(maxlen=_MEMORY)  # steps, and changes of the gradient
        decrement = max(float(np.vdot(gradient, inverse(gradient))), 0.0)
        if math.sqrt(decrement / len(objective.X)) <= tol:
            return point, steps, True
        following = objective.search(point, _direction(gradient, pairs, inverse)) if steps < max_iter else None
        if following is None:
            break
        before, gradient = gradient, objective.gradient(following)
        step, change = following.theta - point.theta, gradient - before
        if (product := float(np.vdot(step, change))) > 0.0:  # always but for rounding: the objective is strictly convex
            pairs.append((step, change, product))
        point = following
    return point, steps, False


def _direction(gradient: Theta, pairs: Sequence[tuple[Theta, Theta, float]], inverse: InverseHessian) -> Theta:
    """Return the direction of descent of L-BFGS, by its recursion in two loops."""
    q, factors = -gradient, []
    for step, change, product in reversed(pairs):
        factors.append(np.vdot(step, q) / product)
        q -= factors[-1] * change
    q = inverse(q)
    for (step, change, product), factor in zip(pairs, reversed(factors), strict=True):
        q += (factor - np.vdot(change, q) / product) * step
    return q
