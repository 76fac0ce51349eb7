import numpy as np
import pytest

from r2mae.theory import (
    Covariance,
    Dense,
    LowRank,
    direction_risk,
    feature_risk,
    from_data,
    latent,
    risk,
    spiked,
    uniform_direction,
    uniform_spectrum,
)
from r2mae.theory.risk import hidden_variance
from r2mae.theory.targets import Directions, Features, Signals
from theory.brute import hidden_by_masks

pytestmark = pytest.mark.filterwarnings("ignore::r2mae.theory.DominantWarning")  # small sizes are the rule here


@pytest.mark.parametrize("kind", ["dense", "lowrank", "correlation"])
def test_features_are_regressions_on_the_others(kind: str) -> None:
    """N without feature j, from the whole N."""
    rng = np.random.default_rng(0)
    low = LowRank(rng.uniform(0.5, 2, 12), rng.standard_normal((12, 2)))
    cov: Covariance = low
    if kind != "lowrank":
        cov = Dense(low.matrix()) if kind == "dense" else from_data(rng.standard_normal((30, 12)), scale=True)
    sigma, dia = cov.matrix(), np.diag(cov.diagonal)
    a, b, c = 0.7, 0.3, 0.2
    found = Features(cov).forms(cov.resolvent(a, b, c), a, b, c)
    for j in range(12):
        rest = np.arange(12) != j
        g, inner = sigma[rest, j], sigma[np.ix_(rest, rest)]
        u = np.linalg.solve(a * inner + b * dia[np.ix_(rest, rest)] + c * np.eye(11), g)
        expected = (g @ u, u @ inner @ u, u @ dia[np.ix_(rest, rest)] @ u)
        assert [form[j] for form in found] == pytest.approx(expected)


@pytest.mark.parametrize("n", [60, 900])
def test_feature_risk_is_the_risk_of_the_regression_on_the_others(n: int) -> None:
    """With noise as what the others cannot say of the feature; the fixed point of all d features costs O(1/d)."""
    gaps = []
    for d in (60, 240):
        cov, rows = latent(d, 1, q=3), n * d // 150
        sigma = cov.matrix()
        whole = feature_risk(cov, rows, 0.5)
        worst = 0.0
        for j in (0, d // 2):
            rest = np.arange(d) != j
            inner = sigma[np.ix_(rest, rest)]
            b = np.linalg.solve(inner, sigma[rest, j])
            left = sigma[j, j] - b @ sigma[rest, j]  # the Schur complement
            one = risk(Dense(inner), b, rows, 0.5, left)
            worst = max(worst, abs(whole.risk[j] / (one.risk + left) - 1))
            assert whole.magnitude[j] == pytest.approx(float(one.magnitude), rel=4 / d)
            assert whole.variance[j] == pytest.approx(float(one.variance), rel=4 / d)
        assert worst < 2 / d
        gaps.append(worst)
    assert 2.5 < gaps[0] / gaps[1] < 6


@pytest.mark.filterwarnings("ignore::r2mae.theory.LocalisedWarning")  # a bulk's eigenvectors may be anything
@pytest.mark.parametrize("n", [50, 700])
def test_directions_are_signals(n: int) -> None:
    cov = uniform_spectrum(120, 1)
    which = np.array([0, 7, 119])
    fast = direction_risk(cov, n, [0.3, 0.8], 0.1, which=which)
    slow = risk(cov, cov.eigenvectors(which), n, [0.3, 0.8], 0.1)
    for name in ("risk", "bias", "variance", "magnitude", "null", "length", "noise_gain"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12)
    low = spiked(3.0, np.arange(1.0, 41))  # no common diagonal
    slow = risk(low, low.eigenvectors(np.arange(40)), n, 0.4, 0.1)
    np.testing.assert_allclose(direction_risk(low, n, 0.4, 0.1).risk, slow.risk)


@pytest.mark.parametrize("ratio", [0.001, 0.3, 0.999])
def test_hidden_variance_of_independent_features(ratio: float) -> None:
    rng = np.random.default_rng(0)
    own, beta = rng.uniform(0.5, 3, 40), rng.standard_normal((40, 2))
    for cov in (LowRank(own), Dense(np.diag(own))):
        found = hidden_variance(cov, Signals(cov, beta), ratio)
        np.testing.assert_allclose(found, ratio * (beta**2).T @ own, rtol=1e-10)
        np.testing.assert_allclose(hidden_variance(cov, Signals(cov, beta), 0.0), 0, atol=1e-7)


@pytest.mark.parametrize("ratio", [0.3, 0.8])
@pytest.mark.parametrize("name", ["haar", "latent", "spiked"])
def test_hidden_variance_against_masks(name: str, ratio: float) -> None:
    d = 200
    cov = {
        "haar": uniform_spectrum(d, 1),
        "latent": latent(d, 1),
        "spiked": spiked(3, uniform_direction(d)),
    }[name]
    for place in (0,) if name == "spiked" else (0, d // 2):
        beta = cov.eigenvectors(np.array([place]))
        drawn = hidden_by_masks(cov.matrix(), beta[:, 0], ratio, 40)
        found = hidden_variance(cov, Signals(cov, beta), ratio)[0]
        assert abs(found - drawn.mean()) < 4 * drawn.std() / np.sqrt(len(drawn)) + 0.03 * found


def test_hidden_variance_of_few_dimensions() -> None:
    """What is kept of data of rank 3 tells everything, until fewer than three features are left."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((50, 3))
    cov = Dense(factor @ factor.T)
    beta = rng.standard_normal((50, 1))
    null = float(cov.quadratic(beta)[0])
    assert hidden_variance(cov, Signals(cov, beta), 0.9)[0] < 1e-6 * null
    assert hidden_variance(cov, Signals(cov, beta), 0.99)[0] > 0.1 * null


def test_hidden_variance_is_the_same_for_all_targets() -> None:
    cov = uniform_spectrum(60, 1)
    which = np.arange(60)
    one = hidden_variance(cov, Directions(cov, which), 0.4)
    np.testing.assert_allclose(one, hidden_variance(cov, Signals(cov, cov.eigenvectors(which)), 0.4))
    assert (one < cov.eigenvalues).all()
