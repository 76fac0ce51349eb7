"""Multinomial logistic regression along a path of regularisation strengths, for one set of training rows.

L-BFGS with a model of the Hessian. The start for each strength is extrapolated from the solutions for the strengths
before it. Logits are linear in the coefficients, so a line search needs no product with the features: a step costs one
product with X and one with its transpose.

The features are along their principal axes. The first model, ``by_axis``, takes their scatter as diagonal and one
weight for each class: ``w_k λ_j + 1/C``. Here ``λ_j`` is the scatter of feature j, and ``w_k`` the mean curvature of
the loss in the logit of class k. (If all probabilities are equal, this is the Hessian itself; Böhning's bound is the
same form with ``w = 1/2``.) It costs nothing, and is enough where most rows are uncertain.

From where a strength needs more than some tens of steps, ``by_class`` is the Hessian itself but for what couples the
classes: for each class k the matrix ``Xᵀ diag(w_ik) X + 1/C`` with the curvature ``w_ik`` of each row. With two classes
nothing else is left. It costs as much as tens of steps, and saves hundreds where a weak penalty makes the curvature of
the rows unlike.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import lapack

from r2mae.evaluation._folds import TrainingRows

MEMORY = 10  # curvature pairs kept by L-BFGS
REFRESH = 30  # steps after which the model of the Hessian is computed again, as the curvatures have changed
ROUNDING = 1e-10  # relative rounding error that is assumed when two values of the objective are compared
LARGEST = 2**26  # numbers in the inverses of all classes: 256 MiB, and several times that of one while it is made
_FLATTEST = 1e-9  # least weight of a class: one whose rows are all certain has none
_JITTERS = (1e-6, 1e-4)  # on a diagonal of ones, against rounding in 32 bits

InverseHessian = Callable[[Float[np.ndarray, "classes d_plus_1"]], Float[np.ndarray, "classes d_plus_1"]]
"""Applies the inverse to a gradient that sums to zero over the classes; so does what it returns."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients at one strength, the intercepts in the last column, and how they were reached."""

    theta: Float[np.ndarray, "classes d_plus_1"]
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class _Point:
    """A point of the path: logits minus the logit of the row's class, the objective, and dloss/dlogit."""

    theta: Float[np.ndarray, "classes d_plus_1"]
    margins: Float[np.ndarray, "classes n"]
    value: float
    residuals: Float[np.ndarray, "classes n"]


def solve_path(
    rows: TrainingRows, codes: Int[np.ndarray, " n"], strengths: Sequence[float], *, tol: float, max_iter: int
) -> Iterator[Solution]:
    """Minimise ``C Σᵢ cross-entropyᵢ + ½‖W‖²`` for every strength C; intercepts are not penalised.

    Parameters
    ----------
    rows : TrainingRows
        Training rows.
    codes : ndarray of int, shape (n,)
        Class of every row, 0 … K−1; every class occurs.
    strengths : sequence of float
        C, ascending.
    tol : float
        Stop when the Newton decrement per row, ``sqrt(gᵀ H⁻¹ g / n)`` with the above model of the Hessian, is below
        this. It estimates the remaining error of the logits (root mean square, weighted by their curvature), about ten
        times too low at the weakest penalties, and depends neither on the units of the features nor on C.
    max_iter : int
        At most this many steps for each strength.

    Yields
    ------
    Solution
        One for each strength.
    """
    objective = _Objective(rows, codes)
    path: list[_Point] = []
    for number, strength in enumerate(strengths):
        objective.strength = strength
        start = min(_guesses(objective, strengths[:number], path), key=lambda point: point.value)
        point, iterations, converged = _minimise(objective, start, tol=tol, max_iter=max_iter)
        path = [*path[-2:], point]
        yield Solution(point.theta, iterations, converged)


def _guesses(objective: "_Objective", strengths: Sequence[float], path: Sequence[_Point]) -> Iterator[_Point]:
    """Yield starting points: the last solution, and extrapolations in log C from the last two and the last three."""
    if not path:
        theta = objective.start()
        yield objective.at(theta, objective.margins(theta))
    logs = np.log([*strengths[-len(path) :], objective.strength])
    for points in range(1, len(path) + 1):
        knots = logs[-1 - points : -1]
        if len(np.unique(knots)) == points:
            weights = _lagrange(knots, logs[-1])
            theta, margins = (
                sum(weight * value for weight, value in zip(weights, values, strict=True))
                for values in zip(*((point.theta, point.margins) for point in path[-points:]), strict=True)
            )
            yield objective.at(theta, margins)


def _lagrange(knots: np.ndarray, at: float) -> list[float]:
    """Return the weights by which the polynomial through values at the knots is evaluated at the point `at`."""
    return [float(np.prod((at - np.delete(knots, i)) / (knots[i] - np.delete(knots, i)))) for i in range(len(knots))]


class _Objective:
    """``Σᵢ cross-entropyᵢ + ‖W‖²/(2C)`` over one set of rows; the attribute `strength` is C."""

    def __init__(self, rows: TrainingRows, codes: Int[np.ndarray, " n"]) -> None:
        self.rows = rows
        self.classes = int(codes.max()) + 1
        self._own = (codes, np.arange(len(codes)))
        self._counts = np.bincount(codes)
        self.strength = 1.0
        self._slow = False  # whether a strength has needed more steps than the better model costs

    def start(self) -> Float[np.ndarray, "classes d_plus_1"]:
        """Return coefficients of zero, and intercepts that predict the frequencies of the classes."""
        theta = np.zeros((self.classes, len(self.rows.mean) + 1))
        theta[:, -1] = np.log(self._counts)
        theta[:, -1] -= theta[:, -1].mean()
        return theta

    def margins(self, theta: Float[np.ndarray, "classes d_plus_1"]) -> Float[np.ndarray, "classes n"]:
        """Logits minus the logit of the row's class, with which the loss is accurate even for large logits."""
        logits: np.ndarray = theta[:, :-1] @ self.rows.X.T
        logits += theta[:, -1:]
        logits -= logits[self._own]
        return logits

    def at(self, theta: np.ndarray, margins: np.ndarray) -> _Point:
        """Evaluate loss and residuals (probabilities less one-hot labels)."""
        top = margins.max(axis=0)
        residuals = np.exp(margins - top)
        total = residuals.sum(axis=0)
        residuals /= total
        residuals[self._own] -= 1.0
        value = (np.log(total) + top).sum() + 0.5 * self._penalty(theta, theta)
        return _Point(theta, margins, float(value), residuals)

    def gradient(self, point: _Point) -> Float[np.ndarray, "classes d_plus_1"]:
        """Gradient in coefficients and intercepts."""
        gradient = np.empty_like(point.theta)
        gradient[:, :-1] = point.residuals @ self.rows.X + point.theta[:, :-1] / self.strength
        gradient[:, -1] = point.residuals.sum(axis=1)
        return gradient

    def curvature(self, point: _Point, direction: np.ndarray, change: np.ndarray) -> float:
        """Second derivative along a direction that changes the margins by `change`."""
        weighted = point.residuals * change  # for the row's own class residuals are p − 1, but `change` is zero
        spread = np.vdot(weighted, change) - np.square(weighted.sum(axis=0)).sum()
        return float(spread + self._penalty(direction, direction))

    def slope(self, point: _Point, direction: np.ndarray, change: np.ndarray) -> float:
        """First derivative along the direction."""
        return float(np.vdot(point.residuals, change) + self._penalty(point.theta, direction))

    def inverse_hessian(self, point: _Point, steps: int) -> InverseHessian:
        """Return the model of the inverse Hessian, after so many steps at this strength.

        The matrices of :func:`by_class` take about as many products as a quarter of the width in steps, but in 32 bits
        and in large pieces; a sixteenth was measured at 1,000 features.
        """
        self._slow |= steps >= max(REFRESH, len(self.rows.mean) // 16)
        found = by_class(self.rows, point.residuals, self.strength) if self._slow else None
        return found or by_axis(self.rows, point.residuals, self.strength)

    def _penalty(self, a: np.ndarray, b: np.ndarray) -> float:
        return float(np.vdot(a[:, :-1], b[:, :-1])) / self.strength


def curvatures(residuals: Float[np.ndarray, "classes n"]) -> Float[np.ndarray, "classes n"]:
    """Return p(1−p) of each class and row, scaled so that equal probabilities give 1/K.

    That is the curvature along directions that sum to zero over the classes.

    Parameters
    ----------
    residuals : ndarray, shape (classes, n)
        Probabilities less one-hot labels: p − 1 for the row's own class and p elsewhere.
    """
    size = np.abs(residuals)
    classes = len(residuals)
    return np.asarray((size - np.square(size)) * (classes / (classes - 1)))


def by_axis(rows: TrainingRows, residuals: Float[np.ndarray, "classes n"], strength: float) -> InverseHessian:
    """Return the inverse of the diagonal model; see the module."""
    weight = np.maximum(curvatures(residuals).mean(axis=1), _FLATTEST)[:, None]
    inverse = 1.0 / (weight * rows.scatter + 1.0 / strength)

    def apply(gradient: np.ndarray) -> np.ndarray:
        # Intercepts at the rows' mean do not interact with the coefficients.
        out = np.empty_like(gradient)
        out[:, :-1] = (gradient[:, :-1] - gradient[:, -1:] * rows.mean) * inverse
        out[:, -1] = gradient[:, -1] / (len(rows.X) * weight[:, 0]) - out[:, :-1] @ rows.mean
        out -= out.mean(axis=0)
        return out

    return apply


def by_class(rows: TrainingRows, residuals: Float[np.ndarray, "classes n"], strength: float) -> InverseHessian | None:
    """Return the inverse of the model with a matrix for each class; see the module.

    None if the matrices are larger than :data:`LARGEST`, or rounding leaves one without an inverse.
    """
    classes, width = len(residuals), len(rows.mean) + 1
    own = 1 if classes == 2 else classes  # two classes have the same curvature
    if own * width**2 > LARGEST:
        return None
    units = np.empty((own, width))
    inverses: list[np.ndarray] = []
    for k, weights in enumerate(curvatures(residuals)[:own]):
        weight = max(float(weights.mean()), _FLATTEST)
        units[k, :-1] = np.sqrt(weight * rows.scatter + 1.0 / strength)
        units[k, -1] = np.sqrt(weight * len(rows.X))
        scaled = np.empty((len(rows.X), width), np.float32)  # in units in which the diagonal is about one
        np.divide(rows.X, units[k, :-1], out=scaled[:, :-1], casting="same_kind")
        scaled[:, -1] = 1.0 / units[k, -1]
        scaled *= np.sqrt(weights)[:, None].astype(np.float32)
        matrix = (scaled.T @ scaled).astype(np.float64)
        matrix[np.diag_indices(width)] += np.append(1.0 / strength / np.square(units[k, :-1]), 0.0)
        inverse = _inverse(matrix)
        if inverse is None:
            return None
        inverses.append(inverse)

    def apply(gradient: np.ndarray) -> np.ndarray:
        scaled = (gradient / units).astype(np.float32)
        out = np.stack([inverses[k % own] @ row for k, row in enumerate(scaled)]) / units
        out -= out.mean(axis=0)
        return out

    return apply


def _inverse(matrix: Float[np.ndarray, "d_plus_1 d_plus_1"]) -> Float[np.ndarray, "d_plus_1 d_plus_1"] | None:
    """Return the inverse of a positive matrix in 32 bits; None if rounding leaves none."""
    for jitter in _JITTERS:
        matrix[np.diag_indices(len(matrix))] += jitter
        factor, failed = lapack.dpotrf(matrix)
        if not failed:
            upper = np.triu(lapack.dpotri(factor)[0]).astype(np.float32)
            return np.asarray(upper + np.triu(upper, 1).T)
    return None


class _Memory:
    """The L-BFGS two-loop recursion."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)

    def add(self, step: np.ndarray, change: np.ndarray) -> None:
        """Remember that `step` changed the gradient by `change`."""
        product = float(np.vdot(step, change))
        if product > 0.0:  # always true but for rounding, as the objective is strictly convex
            self._pairs.append((step, change, product))

    def direction(self, gradient: np.ndarray, inverse_hessian: InverseHessian) -> np.ndarray:
        """Quasi-Newton direction of descent."""
        q = -gradient
        factors = []
        for step, change, product in reversed(self._pairs):
            factors.append(np.vdot(step, q) / product)
            q -= factors[-1] * change
        q = inverse_hessian(q)
        for (step, change, product), factor in zip(self._pairs, reversed(factors), strict=True):
            q += (factor - np.vdot(change, q) / product) * step
        return q


def _minimise(objective: _Objective, point: _Point, *, tol: float, max_iter: int) -> tuple[_Point, int, bool]:
    gradient = objective.gradient(point)
    for iteration in range(max_iter + 1):
        if iteration % REFRESH == 0:
            inverse_hessian, memory = objective.inverse_hessian(point, iteration), _Memory()
        decrement = max(float(np.vdot(gradient, inverse_hessian(gradient))), 0.0)
        if math.sqrt(decrement / len(objective.rows.X)) <= tol:
            return point, iteration, True
        following = None
        if iteration < max_iter:
            following = _search(objective, point, memory.direction(gradient, inverse_hessian))
        if following is None:
            break
        before, gradient = gradient, objective.gradient(following)
        memory.add(following.theta - point.theta, gradient - before)
        point = following
    return point, iteration, False


def _search(objective: _Objective, point: _Point, direction: np.ndarray) -> _Point | None:
    """Search along the direction, first by a Newton step; None if rounding allows no further progress."""
    change = objective.margins(direction)
    slope = objective.slope(point, direction, change)
    if not slope < 0.0:
        return None
    length = -slope / objective.curvature(point, direction, change)
    for _ in range(30):
        trial = objective.at(point.theta + length * direction, point.margins + length * change)
        gain = point.value - trial.value
        if gain >= -1e-4 * length * slope:
            return trial
        there = objective.slope(trial, direction, change)
        # Close to the optimum differences of the objective are rounding errors, so the slope decides (Hager and Zhang).
        if abs(there) <= 0.8 * abs(slope) and gain >= -ROUNDING * abs(point.value):
            return trial
        # The objective is convex: the slope has changed sign, and its root lies in between.
        length *= min(max(slope / (slope - there), 0.1), 0.7)
    return None
