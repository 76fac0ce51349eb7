import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.theory import Covariance, Dense, LowRank, Rotated, from_data, identity, latent, spiked
from r2mae.theory.covariance import haar
from r2mae.theory.models import plateau


def examples() -> dict[str, Covariance]:
    rng = np.random.default_rng(0)
    own, factor = rng.uniform(0.5, 2, 30), rng.standard_normal((30, 4))
    return {
        "rotated": Rotated(rng.uniform(1, 10, 30), 3),
        "identity": identity(30),
        "spiked": spiked(5, np.arange(1.0, 31)),
        "lowrank": LowRank(own, factor),
        "wide": LowRank(np.full(30, 2.0), rng.standard_normal((30, 40))),
        "dense": Dense(LowRank(own, factor).matrix()),
        "correlation": from_data(rng.standard_normal((50, 30)), scale=True),
    }


@pytest.mark.parametrize(("name", "cov"), examples().items())
def test_the_parts_of_a_covariance_agree(name: str, cov: Covariance) -> None:
    rng = np.random.default_rng(0)
    sigma = cov.matrix()
    np.testing.assert_allclose(sigma, sigma.T, atol=1e-12)
    values, vectors = cov.eigenvalues, cov.eigenvectors(np.arange(cov.d))
    assert (np.diff(values) <= 1e-12).all()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(cov.d), atol=1e-10)
    np.testing.assert_allclose(vectors * values @ vectors.T, sigma, atol=1e-9)
    np.testing.assert_allclose(cov.eigenvectors(np.array([1, 0])), vectors[:, [1, 0]])
    np.testing.assert_allclose(cov.eigenvectors(np.array([-1])), vectors[:, [-1]])
    b = rng.standard_normal((cov.d, 3))
    np.testing.assert_allclose(cov.apply(b), sigma @ b, atol=1e-10)
    np.testing.assert_allclose(cov.apply(b[:, 0]), sigma @ b[:, 0], atol=1e-10)
    np.testing.assert_allclose(cov.quadratic(b), np.diag(b.T @ sigma @ b))
    if name == "rotated":
        np.testing.assert_allclose(cov.diagonal, np.trace(sigma) / cov.d)
    else:
        np.testing.assert_allclose(cov.diagonal, np.diag(sigma))
    if cov.common_diagonal is not None:
        np.testing.assert_allclose(cov.diagonal, cov.common_diagonal)
    if cov.leading is not None:
        assert 0.9 * values[0] <= cov.leading <= values[0] * (1 + 1e-12)


@pytest.mark.parametrize(("name", "cov"), examples().items())
def test_sampled_rows_have_the_covariance(name: str, cov: Covariance) -> None:
    x = cov.sample(40_000, np.random.default_rng(1))
    spread = np.sqrt(np.outer(np.diag(cov.matrix()), np.diag(cov.matrix())))
    assert (np.abs(x.T @ x / len(x) - cov.matrix()) < 6 * np.sqrt(2 / len(x)) * spread).all()
    np.testing.assert_array_equal(cov.sample(3, np.random.default_rng(2)), cov.sample(3, np.random.default_rng(2)))


def test_a_common_diagonal_is_seen_only_where_it_is_one() -> None:
    rng = np.random.default_rng(0)
    assert identity(20).common_diagonal == 1
    assert spiked(5, np.arange(1.0, 21)).common_diagonal is None
    assert LowRank(np.array([1.0, 2.0])).common_diagonal is None
    assert Dense(np.array([[2.0, 1.0], [1.0, 2.0]])).common_diagonal == 2
    assert Dense(np.diag([2.0, 3.0])).common_diagonal is None
    assert from_data(rng.standard_normal((9, 20)) * np.arange(1, 21), scale=True).common_diagonal == 1


def test_the_leading_eigenvalue_only_where_it_is_cheap() -> None:
    assert latent(1200).leading is None
    big = Dense(np.eye(501))
    assert big.leading is None
    assert big.eigenvalues[0] == 1
    assert big.leading == 1


def test_haar() -> None:
    draws = np.stack([haar(4, 4, np.random.default_rng(seed)) for seed in range(2000)])
    np.testing.assert_allclose(draws @ draws.transpose(0, 2, 1), np.broadcast_to(np.eye(4), (2000, 4, 4)), atol=1e-10)
    np.testing.assert_allclose((draws**2).mean(axis=0), 1 / 4, atol=0.02)
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=0.04)  # without the signs of R the diagonal would not be
    np.testing.assert_allclose((draws**4).mean(axis=0), 3 / 24, atol=0.02)  # 3/(d(d + 2))


@pytest.mark.parametrize("estimator", ["plain", "ledoit-wolf"])
def test_from_data(estimator: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 8)) @ np.diag(np.arange(1.0, 9)) + 100
    plain = np.cov(x.T, bias=True)
    found = from_data(x, estimator).matrix()  # type: ignore[arg-type]
    if estimator == "plain":
        np.testing.assert_allclose(found, plain, atol=1e-9)
    else:
        weight = (found[0, 1] / plain[0, 1]).item()  # shrunk towards a multiple of the identity
        assert 0.5 < weight < 1
        np.testing.assert_allclose(found, weight * plain + (1 - weight) * np.trace(plain) / 8 * np.eye(8))
    scaled = from_data(x, estimator, scale=True).matrix()  # type: ignore[arg-type]
    assert (np.diag(scaled) == 1).all()
    if estimator == "plain":
        np.testing.assert_allclose(scaled, np.corrcoef(x.T), atol=1e-12)
    single = from_data(x.astype(np.float32), estimator).matrix()  # type: ignore[arg-type]
    np.testing.assert_allclose(single, found, rtol=1e-4, atol=1e-3)


def test_a_singular_covariance_is_one() -> None:
    """Fewer rows than features; and single precision, which rounds eigenvalues below zero."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 300))
    assert from_data(x, "plain").eigenvalues[-1] >= 0
    half = x.T @ x
    assert Dense(half.astype(np.float32)).d == 300


@given(st.integers(2, 40), st.floats(1e-3, 10.0))
def test_an_indefinite_matrix_is_refused_at_once(d: int, depth: float) -> None:
    q = haar(d, d, np.random.default_rng(d))
    values = np.linspace(1, 2, d)
    values[0] = -depth * 1e-3
    matrix = q * values @ q.T
    matrix = (matrix + matrix.T) / 2
    if (np.diag(matrix) > 0).all():
        with pytest.raises(ValueError, match="covariance is indefinite: its smallest eigenvalue is -"):
            Dense(matrix)
    else:
        with pytest.raises(ValueError, match="covariance gives feature"):
            Dense(matrix)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(np.ones((2, 3))), "covariance must be square, not 2 by 3"),
        (lambda: Dense(np.ones((1, 1))), "covariance must have at least 2 features, not 1"),
        (lambda: Dense(np.array([[1.0, 0.5], [0.4, 1.0]])), r"not symmetric: entries .* by up to 0\.1"),
        (lambda: Dense(np.array([[1.0, np.nan], [np.nan, 1.0]])), "covariance contains a number that is not finite"),
        (lambda: Dense(np.array([[1.0, 2.0], [2.0, 1.0]])), "covariance is indefinite: its smallest eigenvalue is -1"),
        (
            lambda: Dense(np.diag([1e9, 1.0, 1.0]) + np.eye(3)[[0, 2, 1]] * [[0.0], [2.0], [2.0]]),
            "covariance is indefinite",
        ),
        (lambda: Dense(np.diag([1.0, 0.0])), "covariance gives feature 1 the variance 0"),
        (lambda: Rotated(np.array([1.0, -1.0])), "eigenvalues must not be negative"),
        (lambda: Rotated(np.array([0.0, 0.0])), "eigenvalues must not be negative, and not all zero"),
        (lambda: Rotated(np.array([1.0, np.inf])), "eigenvalues contain a number that is not finite"),
        (lambda: Rotated(np.array([1.0])), "eigenvalues must be at least 2"),
        (lambda: LowRank(np.array([1.0, 0.0])), "own must be finite and positive"),
        (lambda: LowRank(np.array([1.0, np.nan])), "own must be finite and positive"),
        (lambda: LowRank(np.ones(3), np.ones((2, 1))), "a row for each of 3 features, not 2 rows"),
        (lambda: LowRank(np.ones(3), np.full((3, 1), np.inf)), "factor contains a number that is not finite"),
        (lambda: identity(5).at_quantile(1.5), "quantile must be between 0 and 1"),
        (lambda: from_data(np.ones((1, 3))), "x must have at least 2 rows"),
        (lambda: from_data(np.array([[1.0, 2.0], [np.nan, 1.0]])), "x contains .* at row 1, column 0"),
        (lambda: from_data(np.array([[1.0, 0.1], [2.0, 0.1], [4.0, 0.1]])), "x: feature 1 never varies"),
        (lambda: from_data(np.eye(3), "mean"), "estimator must be"),
    ],
)
def test_bad_input(make: object, message: str, unchecked: None) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_places_of_quantiles() -> None:
    cov = identity(10)
    assert [cov.at_quantile(q) for q in (0.0, 0.1, 0.55, 1.0)] == [0, 1, 5, 9]


def test_leading_where_all_spikes_are_equal() -> None:
    for seed in range(40):
        cov, _ = plateau(500, 25, seed, of="WW")
        assert cov.leading == pytest.approx(101.0)
