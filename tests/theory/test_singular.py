"""Singular covariances, tiny ridges and whole rows: no verdict hangs on the last bits of Σ."""

import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from r2mae.masking import Uniform
from r2mae.theory import Covariance, Dense, InterpolationWarning, LowRank, Rotated, feature_risk, latent, risk
from theory.brute import whole_rows_risk

pytestmark = [
    pytest.mark.filterwarnings("ignore::r2mae.theory.DominantWarning"),
    pytest.mark.filterwarnings("ignore::r2mae.theory.InterpolationWarning"),
]
SEEDS = st.integers(0, 2**32 - 1)
RIDGE = st.one_of(st.just(0.0), st.floats(-10, 0).map(lambda power: float(10**power)))
ROWS = st.sampled_from([2, 4, 7, 13, 30, 90, 3000])


def singular(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a Σ of random rank, its nonzero eigenvalues, and their eigenvectors."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(3, 31))
    values = np.exp(rng.uniform(-2, 2, int(rng.integers(1, d + 1))))
    vectors = np.linalg.qr(rng.standard_normal((d, len(values))))[0]
    factor = vectors * np.sqrt(values)
    return factor @ factor.T, values, vectors


def moved(sigma: np.ndarray, seed: int) -> np.ndarray:
    """Return Σ with its last bits changed, as another processor would."""
    by = np.triu(np.random.default_rng(seed).choice([1 - 1e-15, 1 + 1e-15], sigma.shape))
    return sigma * (by + np.triu(by, 1).T)


@pytest.mark.slow
def test_unmasked_rows_of_a_singular_covariance() -> None:
    """Classical ridgeless regression in the 5 dimensions that there are: σ²q/(n − q). It failed for 19 in 20 draws."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        factor, beta = rng.standard_normal((20, 5)), rng.standard_normal(20)
        for ridge in (0.0, 1e-9, 1e-6):
            found = risk(factor @ factor.T, beta, 40, 0.0, 0.1, keep=1.0, ridge=ridge)
            assert found.risk == pytest.approx(0.1 * 5 / 35, rel=1e-6)


@given(SEEDS, ROWS, RIDGE, st.sampled_from([0.0, 0.3]))
@example(3, 13, 1e-10, 0.0)
def test_whole_rows_are_classical_regression(seed: int, n: int, ridge: float, noise: float) -> None:
    sigma, values, vectors = singular(seed)
    beta = np.random.default_rng(seed).standard_normal(len(sigma))
    cov = Dense(sigma)
    assert cov.rank == len(values)
    found = risk(cov, beta, n, 0.0, noise, keep=1.0, ridge=ridge)
    if n == len(values):
        assert ridge or np.isinf(found.risk)
        return  # the risk is as large as the ridge is small
    expected = whole_rows_risk(values, vectors.T @ beta, n, noise, ridge)
    assert found.risk == pytest.approx(expected, rel=1e-7, abs=1e-10 * (float(found.null) + noise))


@pytest.mark.slow
@example(800_000, 13, 0.0, Uniform(0.0, 0.6))
@given(
    SEEDS,
    ROWS,
    RIDGE,
    st.one_of(st.floats(-9, -2).map(lambda power: float(10**power)), st.floats(0.05, 0.95), st.just(Uniform(0.0, 0.6))),
)
def test_the_last_bits_do_not_matter(seed: int, n: int, ridge: float, ratio: float | Uniform) -> None:
    sigma, values, _ = singular(seed)
    beta = np.random.default_rng(seed).standard_normal(len(sigma))
    try:
        one, two = (risk(Dense(s), beta, n, ratio, 0.1, ridge=ridge, keep=1.0) for s in (sigma, moved(sigma, seed)))
    except ArithmeticError as refusal:  # without a ridge, close to as many rows as dimensions, it says so
        assert ridge == 0 and abs(n - len(sigma)) < 0.25 * n and "use ridge=" in str(refusal)
        return
    if n in (len(sigma), len(values)):
        assert np.isfinite(two.risk) == np.isfinite(one.risk)
        return
    assert one.risk == pytest.approx(float(two.risk), rel=1e-6, abs=1e-10 * float(one.null))
    if ridge:
        features = [feature_risk(Dense(s), n, ratio, ridge=ridge, keep=1.0) for s in (sigma, moved(sigma, seed))]
        np.testing.assert_allclose(features[0].normalised, features[1].normalised, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 1e-8, 1e-3])
@pytest.mark.parametrize("ratio", [0.0, 1e-7, 0.4])
def test_the_forms_agree_where_own_variances_are_tiny(ratio: float, ridge: float) -> None:
    rng = np.random.default_rng(1)
    thin = LowRank(np.full(30, 1e-6), rng.standard_normal((30, 4)))
    wide = LowRank(np.full(30, 1e-6), rng.standard_normal((30, 25)))
    beta = rng.standard_normal(30)
    for cov in (thin, wide):
        one, two = (risk(c, beta, 90, ratio, 0.1, ridge=ridge, keep=1.0) for c in (cov, Dense(cov.matrix())))
        assert one.risk == pytest.approx(float(two.risk), rel=1e-6)


def test_single_precision_has_its_own_rounding() -> None:
    rng = np.random.default_rng(2)
    factor, beta = rng.standard_normal((40, 6)).astype(np.float32), rng.standard_normal(40)
    cov = Dense(factor @ factor.T)
    assert cov.rank == 6
    assert risk(cov, beta, 60, 0.0, 0.1, keep=1.0).risk == pytest.approx(0.1 * 6 / 54, rel=1e-4)


def test_whole_rows_diverge_at_the_rank() -> None:
    covs: list[Covariance] = [
        Rotated(np.repeat([1.0, 0.0], [10, 30])),
        Dense(np.kron(np.eye(10), np.ones((4, 4)))),
    ]
    for cov in covs:
        with pytest.warns(InterpolationWarning, match="10 kept rows are within 5% of the 10 dimensions"):
            at = risk(cov, np.ones(40), 10, 0.0, 0.1, keep=1.0)
        assert np.isinf(at.risk)
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterpolationWarning)
            past = risk(cov, np.ones(40), 40, 0.0, 0.1, keep=1.0)
        assert past.risk == pytest.approx(0.1 * 10 / 30)
        assert risk(cov, np.ones(40), 40, 0.0, 0.1, keep=1.0, ridge=1e-9).risk == pytest.approx(0.1 * 10 / 30)


def test_a_regular_covariance_takes_the_cheap_form(monkeypatch: pytest.MonkeyPatch) -> None:
    import r2mae.theory.resolvent as room

    def dear(*_: object, **__: object) -> None:
        raise AssertionError("the exact form was used")

    monkeypatch.setattr(room, "FactoredResolvent", dear)
    risk(Dense(latent(60, 1).matrix()), np.ones(60), 200, [0.02, 0.5, Uniform(0.4, 0.9)], 0.1)
