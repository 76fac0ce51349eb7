import numpy as np
import pytest

from r2mae.theory import (
    beta_spectrum,
    identity,
    latent,
    plateau,
    signal_at,
    spiked,
    uniform_direction,
    uniform_spectrum,
)


def test_identity_and_spike() -> None:
    np.testing.assert_array_equal(identity(5).matrix(), np.eye(5))
    v = np.arange(1.0, 6)
    np.testing.assert_allclose(spiked(3.0, v).matrix(), np.eye(5) + 3 * np.outer(v, v) / (v @ v))
    np.testing.assert_allclose(spiked(3.0, np.ones(5)).eigenvalues, [4, 1, 1, 1, 1])


def test_spectra() -> None:
    uniform = uniform_spectrum(4000, 1).eigenvalues
    assert 1 <= uniform[-1] < uniform[0] <= 10
    assert uniform.mean() == pytest.approx(5.5, abs=0.2)
    linear, log = (beta_spectrum(4000, 1, spacing=spacing).eigenvalues for spacing in ("linear", "log"))
    assert (linear[0], linear[-1]) == pytest.approx((10, 1))
    assert (log[0], log[-1]) == pytest.approx((10, 1))
    np.testing.assert_allclose(1 + 9 * np.log10(log), linear)
    drawn = np.random.default_rng([1, 0]).beta(2, 6, 4000)
    np.testing.assert_allclose((np.sort(drawn)[::-1] - drawn.min()) / np.ptp(drawn), (linear - 1) / 9)


def test_latent_space() -> None:
    cov = latent(400, 2)
    assert cov.factor.shape == (400, 200)
    assert cov.factor.std() == pytest.approx(3 / (np.sqrt(400) + np.sqrt(200)), rel=0.02)
    assert cov.eigenvalues[0] == pytest.approx(10, rel=0.05)  # 1 + 9, the edge of Marchenko and Pastur's law
    assert latent(400, q=3).factor.shape == (400, 3)


@pytest.mark.parametrize(("of", "top"), [("D", 1 + 100.0**2), ("WW", 1 + 100.0)])
def test_plateau(of: str, top: float) -> None:
    cov, beta = plateau(300, 7, 1, of=of)  # type: ignore[arg-type]
    np.testing.assert_allclose(cov.eigenvalues[:7], top)
    np.testing.assert_allclose(cov.eigenvalues[7:], 1)
    w = cov.factor
    theta = np.linalg.lstsq(w, beta, rcond=None)[0]
    theta = theta + w.T @ w @ theta
    assert ((theta >= 0) & (theta <= 1)).all()  # β = W(I + WᵀW)⁻¹θ with θ from U(0, 1)
    assert np.ptp(theta) > 0.2


def test_directions() -> None:
    v = uniform_direction(50, 1)
    assert np.linalg.norm(v) == pytest.approx(1)
    assert (v > 0).all()
    for cosine in (-1, -0.3, 0, 0.5, 1):
        beta = signal_at(v * 7, cosine, 3)
        assert np.linalg.norm(beta) == pytest.approx(1)
        assert beta @ v == pytest.approx(cosine, abs=1e-12)


def test_seeds() -> None:
    for make in (uniform_spectrum, beta_spectrum, latent, uniform_direction):
        one, again, other = (make(30, seed) for seed in (1, 1, 2))
        values = [x if isinstance(x, np.ndarray) else x.matrix() for x in (one, again, other)]
        np.testing.assert_array_equal(values[0], values[1])
        assert (values[0] != values[2]).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: identity(1), "d must be at least 2"),
        (lambda: spiked(0.0, np.ones(5)), "delta must be a positive number"),
        (lambda: spiked(float("nan"), np.ones(5)), "delta must be a positive number"),
        (lambda: spiked(1.0, np.zeros(5)), "v must be finite and not zero"),
        (lambda: beta_spectrum(5, spacing="square"), "spacing must be"),  # type: ignore[arg-type]
        (lambda: latent(5, q=0), "q must be at least 1"),
        (lambda: plateau(5, 6), "q must be from 1 to d = 5"),
        (lambda: plateau(5, 2, of="W"), "of must be"),  # type: ignore[arg-type]
        (lambda: signal_at(np.ones(5), 1.5), "cosine must be between -1 and 1"),
    ],
)
def test_bad_input(make: object, message: str, unchecked: None) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
