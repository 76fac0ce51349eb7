"""Every function of a covariance takes a plain matrix, and refuses one that is no covariance."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest

import r2mae.theory
from r2mae.theory import (
    CovarianceLike,
    Dense,
    advise,
    as_covariance,
    conditional_risk,
    direction_risk,
    feature_risk,
    latent,
    risk,
    simulate,
)
from theory.brute import theorem_3

COV = Dense(latent(12, 1, q=2).matrix())
BETA = np.arange(1.0, 13)
X = np.random.default_rng(0).standard_normal((5, 12))
ALL = np.ones((5, 12), dtype=bool)
CALLS: dict[str, Callable[[CovarianceLike], object]] = {
    "risk": lambda cov: risk(cov, BETA, 40, [0.2, 0.7], 0.1).risk,
    "direction_risk": lambda cov: direction_risk(cov, 40, 0.2).risk,
    "feature_risk": lambda cov: feature_risk(cov, 40, 0.2).risk,
    "simulate": lambda cov: simulate(cov, BETA, 40, [0.4], repetitions=2).risks,
    "conditional_risk": lambda cov: conditional_risk(cov, BETA, X, ALL, 0.1).risk,
    "advise": lambda cov: advise(cov, 40).directions.normalised,
    "as_covariance": lambda cov: as_covariance(cov).matrix(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_plain_matrix_is_its_covariance(name: str) -> None:
    np.testing.assert_array_equal(CALLS[name](COV.matrix()), CALLS[name](COV))


def test_every_public_function_that_takes_a_covariance_is_tried() -> None:
    functions = [getattr(r2mae.theory, name) for name in r2mae.theory.__all__]
    takes = {f.__name__ for f in functions if inspect.isfunction(f) and "cov" in inspect.signature(f).parameters}
    assert takes == set(CALLS)


def test_a_covariance_stays_what_it_is() -> None:
    low = latent(12, 1, q=2)
    assert as_covariance(low) is low


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((12, 11)), "covariance must be square, not 12 by 11"),
        (
            np.ones(12),
            r"covariance must be a square matrix, not an array of shape \(12,\); to give only eigenvalues, use Rotated",
        ),
        (np.triu(np.ones((12, 12))), r"covariance is not symmetric: entries .* by up to 1"),
        (np.eye(12) - 0.5, "covariance is indefinite: its smallest eigenvalue is -5"),
        (np.diag([np.inf] + [1.0] * 11), "covariance contains a number that is not finite"),
        (np.eye(12) * 1j, "covariance must be a square matrix of real numbers, not an array of type complex128"),
        (None, "covariance must be a square matrix of real numbers, not NoneType"),
    ],
    ids=["oblong", "flat", "triangular", "indefinite", "infinite", "complex", "none"],
)
def test_a_matrix_that_is_no_covariance_is_refused(name: str, matrix: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CALLS[name](matrix)


@pytest.mark.usefixtures("unchecked")
def test_whole_numbers_and_lists_are_numbers() -> None:
    expected = risk(np.diag([1.0, 2.0, 3.0]), np.ones(3), 9, 0.5).risk
    assert risk(np.diag([1, 2, 3]), np.ones(3), 9, 0.5).risk == expected
    assert risk([[1, 0, 0], [0, 2, 0], [0, 0, 3]], np.ones(3), 9, 0.5).risk == expected  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::r2mae.theory.DominantWarning")
def test_rounding_is_forgiven() -> None:
    factor = np.random.default_rng(1).standard_normal((12, 3))
    matrix = factor @ factor.T
    matrix[0, 1] *= 1 + 1e-12
    assert np.linalg.eigvalsh(matrix)[0] < 1e-12
    assert np.isfinite(risk(matrix, BETA, 60, 0.3, 0.1).risk)


@pytest.mark.parametrize("place", [0, 2])
def test_hidden_entries_of_a_singular_covariance(place: int) -> None:
    """The limit of a regular one; kept entries then hold what hidden ones do."""
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((12, 3)) * [3.0, 2.0, 1.0]
    sigma = factor @ factor.T
    kept = rng.random((5, 12)) < 0.6
    masked = (rng.standard_normal((5, 3)) @ factor.T) * kept
    near = sigma + 1e-9 * np.eye(12)
    other_bits = sigma * np.where(np.eye(12), 1 + 1e-15, 1)
    one, limit, two = (conditional_risk(m, BETA, masked, kept, 0.1) for m in (sigma, near, other_bits))
    assert (one.bias, one.variance) == pytest.approx((limit.bias, limit.variance), rel=2e-3)
    assert (one.bias, one.variance) == pytest.approx((two.bias, two.variance), rel=1e-6)
    at = theorem_3(Dense(sigma), place, masked, kept, 0.1)
    lemma = conditional_risk(sigma, Dense(sigma).eigenvectors(np.array([place]))[:, 0], masked, kept, 0.1)
    assert (at.bias, at.variance) == pytest.approx((lemma.bias, lemma.variance), rel=1e-6)
