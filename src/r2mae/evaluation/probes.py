"""Linear probes of frozen features: classification and regression with grouped cross-validation of the penalty."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from r2mae.evaluation._folds import Folds, blas_threads
from r2mae.evaluation._logistic import Solution, solve_path

# The grids of the paper's single-cell evaluation.
PAPER_CS = tuple(float(c) for c in np.logspace(-6, 2, 10))
PAPER_ALPHAS = tuple(float(alpha) for alpha in np.logspace(0, 8, 20))

Progress = Callable[[int, int], None]
Grid = Sequence[float] | Float[np.ndarray, " strengths"]


class LinearProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multinomial logistic regression that chooses its L2 penalty by cross-validation over groups.

    It has the optimum, folds, scores and choice of scikit-learn's ``GridSearchCV(LogisticRegression(), {"C": Cs},
    cv=GroupKFold(5), scoring="balanced_accuracy")``, the paper's single-cell evaluation. It takes a fraction of the
    time, because folds and strengths share work.

    The nearest peer is scikit-learn's ``LogisticRegressionCV``, with the same folds and strengths. At 1,400 to 5,000
    rows of 64 features, the peer takes 3 to 15 times as long to come as close to the optimum (``tol=1e-6``). With its
    default ``tol=1e-4`` it takes 1.7 to 4 times as long, its mean scores are off by 0.0006 to 0.002, and it once chose
    another strength. ``python -m benchmarks probes`` measures this.

    Parameters
    ----------
    Cs : sequence of float, optional
        Inverse strengths of the penalty; default ``logspace(-6, 2, 10)``, the paper's.
    cv : int
        Number of folds; fewer if there are fewer groups.
    scoring : {"balanced_accuracy", "accuracy"}
        The score that the chosen strength maximises.
    standardize : bool
        Divide the features by their standard deviations over all rows given to `fit`, as a ``StandardScaler`` before
        the search; labels of held-out folds are not used. `coef_` always applies to the features as given.
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
        standardize: bool = False,
        tol: float = 1e-5,
        max_iter: int = 1000,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, groups: Any = None, *, progress: Progress | None = None) -> "LinearProbe":
        """Choose the strength on held-out folds, then fit all rows with it.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Features.
        y : array-like, shape (n,)
            Labels.
        groups : array-like, shape (n,), optional
            Rows of one group (a donor) are held out together. Without groups the folds are stratified by label.
        progress : callable, optional
            Called with the number of completed fits and of all fits: one for each strength and fold, and a final one.

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
        solve = partial(solve_path, tol=self.tol, max_iter=self.max_iter)
        report = progress or (lambda done, total: None)
        with blas_threads(X.shape[0] * X.shape[1] * len(self.classes_)):
            folds = Folds(X, fold, standardize=self.standardize)
            codes = codes[folds.order]
            self.cv_scores_, stalled, total = np.empty((len(grid), len(folds))), 0, len(grid) * len(folds) + 1
            for number in range(len(folds)):
                fits = _held_out_scores(folds, number, codes, grid, score, solve)
                for done, (row, value, converged) in enumerate(fits, number * len(grid) + 1):
                    self.cv_scores_[row, number] = value
                    stalled += not converged
                    report(done, total)
            self.cv_mean_ = self.cv_scores_.mean(axis=1)
            self.C_ = float(grid[np.argmax(self.cv_mean_)])
            (final,) = solve(folds.train(None), codes, _softmax_strengths([self.C_], len(self.classes_)))
            report(total, total)
        # In the two-class form the first class is the reference.
        theta = final.theta[1:] - final.theta[:1] if len(self.classes_) == 2 else final.theta
        self.coef_, self.intercept_ = folds.restore(theta[:, :-1], theta[:, -1])
        self.n_iter_ = max(final.iterations, 1)
        if stalled := stalled + (not final.converged):
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
    cv : int
        Number of folds; fewer if there are fewer groups.
    standardize : bool
        Penalise the coefficients of standardised features, as in `LinearProbe`.

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

    def __init__(self, alphas: Grid | None = None, *, cv: int = 5, standardize: bool = False) -> None:
        self.alphas = alphas
        self.cv = cv
        self.standardize = standardize

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
        fold = _fold_of_row(X, None, groups, self.cv, KFold)
        with blas_threads(X.shape[0] * X.shape[1] ** 2):
            folds = Folds(X, fold, standardize=self.standardize)
            target = y.astype(np.float64)[folds.order]
            self.cv_scores_ = np.empty((len(grid), len(folds)))
            for number in range(len(folds)):
                out = folds.held_out(number)
                coefficients, intercepts = _ridge(folds, number, np.delete(target, out), grid)
                predicted = coefficients @ folds.test(number).T + intercepts[:, None]
                self.cv_scores_[:, number] = -np.square(target[out] - predicted).mean(axis=1)
            self.cv_mean_ = self.cv_scores_.mean(axis=1)
            self.alpha_ = float(grid[np.argmax(self.cv_mean_)])
            best = np.array([self.alpha_])
            coefficients, intercepts = folds.restore(*_ridge(folds, None, target, best))
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])
        return self

    def predict(self, X: Any) -> Float[np.ndarray, " n"]:
        """Return the predicted target of every row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)


def _held_out_scores(
    folds: Folds,
    number: int,
    codes: Int[np.ndarray, " n"],
    grid: Float[np.ndarray, " strengths"],
    score: "_Score",
    solve: Callable[..., Iterator[Solution]],
) -> Iterator[tuple[int, float, bool]]:
    """Yield for each strength, ascending, its place in the grid, its score on a fold, and whether it converged."""
    out, test = folds.held_out(number), folds.test(number)
    truth = codes[out]
    seen, local = np.unique(np.delete(codes, out), return_inverse=True)
    ascending = np.argsort(grid, kind="stable")
    if len(seen) == 1:  # the other rows have one class, which is then predicted
        constant = score(truth, np.full(len(truth), seen[0]))
        yield from ((int(row), constant, True) for row in ascending)
        return
    path = solve(folds.train(number), local, _softmax_strengths(grid[ascending], len(seen)))
    for row, solution in zip(ascending, path, strict=True):
        logits = test @ solution.theta[:, :-1].T + solution.theta[:, -1]
        yield int(row), score(truth, seen[logits.argmax(axis=1)]), solution.converged


def _ridge(
    folds: Folds, fold: int | None, target: Float[np.ndarray, " n"], alphas: Float[np.ndarray, " strengths"]
) -> tuple[Float[np.ndarray, "strengths d"], Float[np.ndarray, " strengths"]]:
    """Return ridge coefficients and intercepts for all strengths from one eigendecomposition."""
    rows = folds.train(fold)
    values, vectors = folds.scatter_eigh(fold)
    mean = target.mean()
    projected = (target - mean) @ rows.X @ vectors
    coefficients = (projected / (values + alphas[:, None])) @ vectors.T
    return coefficients, mean - coefficients @ rows.mean


_Score = Callable[[np.ndarray, np.ndarray], float]


def _accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(truth == predicted))


def _balanced_accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean recall over the classes that occur, as ``sklearn.metrics.balanced_accuracy_score``."""
    count = np.bincount(truth)
    hit = np.bincount(truth[truth == predicted], minlength=len(count))
    return float(np.mean(hit[count > 0] / count[count > 0]))


_SCORES: dict[str, _Score] = {"balanced_accuracy": _balanced_accuracy, "accuracy": _accuracy}


def _checked_grid(name: str, grid: Grid | None, default: tuple[float, ...]) -> Float[np.ndarray, " strengths"]:
    values = np.asarray(default if grid is None else grid, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"{name} must be a list of positive finite numbers; got {grid!r}")
    return values


def _softmax_strengths(Cs: Sequence[float] | Float[np.ndarray, " strengths"], classes: int) -> list[float]:
    """Return the strengths of the symmetric softmax form: for two classes half those of the logistic form."""
    return [float(C) / 2 if classes == 2 else float(C) for C in Cs]


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
