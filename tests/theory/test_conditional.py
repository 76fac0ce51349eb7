import numpy as np
import pytest

from r2mae.theory import (
    Covariance,
    conditional_risk,
    direction_risk,
    identity,
    latent,
    risk,
    signal_at,
    spiked,
    uniform_direction,
    uniform_spectrum,
)
from theory.brute import theorem_3


def design(cov: Covariance, n: int, p: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = cov.sample(n, rng)[rng.random(n) < p]
    kept = rng.random(x.shape) >= p
    return x * kept, kept


@pytest.mark.parametrize("cov", [uniform_spectrum(30, 1), latent(30, 1), spiked(5, uniform_direction(30))])
@pytest.mark.parametrize("n", [20, 150])
@pytest.mark.parametrize("place", [0, 3, 29])
def test_theorem_3_is_lemma_1_at_eigenvectors(cov: Covariance, n: int, place: int) -> None:
    masked, kept = design(cov, n, 0.5, 7)
    beta = cov.eigenvectors(np.array([place]))[:, 0]
    one, two = conditional_risk(cov, beta, masked, kept, 0.3), theorem_3(cov, place, masked, kept, 0.3)
    assert (one.bias, one.variance) == pytest.approx((two.bias, two.variance))
    assert one.risk == one.bias + one.variance


def test_lemma_1_against_draws_of_the_hidden_entries() -> None:
    """Given X̃, hidden entries are Gaussian: draw them, fit, and take the mean over the draws."""
    cov, rng = spiked(4, uniform_direction(12)), np.random.default_rng(3)
    sigma, beta = cov.matrix(), rng.standard_normal(12)
    masked, kept = design(cov, 9, 0.5, 1)
    inverse, draws = np.linalg.pinv(masked), 40_000
    y = np.empty((len(masked), draws))
    for row, z in enumerate(kept):
        across = np.linalg.solve(sigma[np.ix_(z, z)], sigma[np.ix_(z, ~z)]).T
        left = sigma[np.ix_(~z, ~z)] - across @ sigma[np.ix_(z, ~z)]
        hidden = rng.multivariate_normal(across @ masked[row, z], left, draws)
        y[row] = masked[row] @ beta + hidden @ beta[~z] + np.sqrt(0.3) * rng.standard_normal(draws)
    b = inverse @ y
    found = conditional_risk(cov, beta, masked, kept, 0.3)
    assert found.risk == pytest.approx(float(cov.quadratic(b - beta[:, None]).mean()), rel=0.03)
    assert found.bias == pytest.approx(float(cov.quadratic(b.mean(axis=1) - beta)), rel=0.03)


@pytest.mark.parametrize("name", ["isotropic", "spiked", "haar"])
@pytest.mark.parametrize("n", [75, 450])
def test_the_mean_over_designs_is_the_closed_form(name: str, n: int) -> None:
    """Bias and variance apart; the gap is one of finite size."""
    d, p = 120, 0.5
    v = uniform_direction(d, 1)
    cov: Covariance = {"isotropic": identity(d), "spiked": spiked(5, v), "haar": uniform_spectrum(d, 1)}[name]
    beta = signal_at(v, 0.8, 1) if name != "haar" else cov.eigenvectors(np.array([4]))[:, 0]
    draws = [conditional_risk(cov, beta, *design(cov, n, p, seed), 0.04) for seed in range(5)]
    expected = direction_risk(cov, n, p, 0.04, which=np.array([4])) if name == "haar" else risk(cov, beta, n, p, 0.04)
    for part in ("bias", "variance"):
        values = np.array([getattr(draw, part) for draw in draws])
        error = values.std(ddof=1) / np.sqrt(len(values))
        size = float(expected.risk.squeeze())
        assert abs(values.mean() - float(getattr(expected, part).squeeze())) < 4 * error + 0.03 * size, part


@pytest.mark.parametrize("n", [75, 450])
def test_noise_gain(n: int) -> None:
    cov = uniform_spectrum(120, 1)
    gains = [
        float(np.vdot(np.linalg.pinv(x @ x.T if len(x) < 120 else x.T @ x), moment(cov, x)))
        for x in (design(cov, n, 0.5, seed)[0] for seed in range(8))
    ]
    expected = float(direction_risk(cov, n, 0.5, which=np.array([0])).noise_gain)
    error = np.std(gains, ddof=1) / np.sqrt(len(gains))
    assert abs(np.mean(gains) - expected) < 4 * error + 0.02 * expected


def moment(cov: Covariance, x: np.ndarray) -> np.ndarray:
    """What tr(Σ(X̃ᵀX̃)⁺) pairs with the pseudo-inverse of the smaller Gram matrix."""
    if len(x) >= cov.d:
        return cov.matrix()
    half = np.linalg.pinv(x @ x.T) @ x
    return half @ cov.matrix() @ x.T


MASKED, KEPT, B = np.eye(3), np.eye(3, dtype=bool), np.ones(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: conditional_risk(identity(4), B, MASKED, KEPT, 0.0), "must have 4 features, not 3 and 3"),
        (lambda: conditional_risk(identity(3), B, MASKED, KEPT[:2], 0.0), "kept must have the shape of masked"),
        (lambda: conditional_risk(identity(3), B, MASKED, ~KEPT, 0.0), "masked has entries that are not zero"),
        (lambda: conditional_risk(identity(3), B, MASKED, KEPT, -1.0), "noise must be"),
        (lambda: conditional_risk(identity(3), B * np.nan, MASKED, KEPT, 0.0), "beta contains a number"),
        (lambda: conditional_risk(identity(3), B, MASKED * np.inf, KEPT | True, 0.0), "masked contains a number"),
    ],
)
def test_bad_input(make: object, message: str, unchecked: None) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_rows_of_which_nothing_is_seen() -> None:
    masked, kept = np.zeros((2, 3)), np.zeros((2, 3), dtype=bool)
    found = conditional_risk(identity(3), B, masked, kept, 0.0)
    assert (found.bias, found.variance) == (3, 0)
