import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.theory import fixed_point, isotropic_risk, signal_at, spiked_risk, uniform_direction
from theory.brute import root_of_trace, theorem_2

P = np.linspace(0.05, 0.95, 10)


def test_theorem_1_by_hand() -> None:
    over, under = isotropic_risk(np.array([0.5]), 5.0, 0.04), isotropic_risk(np.array([0.5]), 0.1, 0.04)
    assert (over.bias[0], over.variance[0]) == pytest.approx((1 - 0.1, 0.5 * 0.54 / (0.5 * 4.5)))
    assert (under.bias[0], under.variance[0]) == pytest.approx((0, 0.54 * 0.1 / (0.5 * 0.4)))
    at = isotropic_risk(np.array([0.5]), 0.5, 0.0)
    assert np.isinf(at.risk[0])


@pytest.mark.slow
@settings(max_examples=8)
@given(
    st.integers(20, 60),
    st.floats(0.1, 50),
    st.floats(-1, 1),
    st.floats(0.1, 3),
    st.floats(0, 2),
    st.sampled_from([0.0, 1e-8, 0.5]),
)
def test_corollary_and_theorem_are_one(
    d: int, delta: float, cosine: float, scale: float, noise: float, ridge: float
) -> None:
    v = uniform_direction(d, d)
    beta = scale * signal_at(v, cosine, 1)
    for n in (d // 3, 2 * d):
        ratio = P[np.abs(n * P / d - 1) > 0.01]
        one, length = spiked_risk(v, delta, beta, n, ratio, noise, ridge=ridge), float(beta @ beta)
        unit = beta / np.sqrt(length)
        bias, variance = np.transpose([theorem_2(v, delta, unit, n, p, noise / length, ridge) for p in ratio])
        np.testing.assert_allclose(one.bias, bias, rtol=1e-8, atol=1e-11)
        np.testing.assert_allclose(one.variance, variance, rtol=1e-8)


def test_corollary_by_the_papers_symbols() -> None:
    """Eq. (defs), with the matrices as they stand."""
    d, n, delta, p, noise = 40, 20, 7.0, 0.6, 0.04
    v = uniform_direction(d, 1)
    beta = signal_at(v, 0.6, 1)
    sigma = np.eye(d) + delta * np.outer(v, v)
    masked = (1 - p) ** 2 * sigma + p * (1 - p) * np.diag(np.diag(sigma))
    star = root_of_trace(np.linalg.eigvalsh(masked), n * p)
    inverse = np.linalg.inv(star * np.eye(d) + masked)
    c = p * delta * (v @ beta) / (1 + delta * (1 - p))
    phi_b, phi_v, psi = (star * x @ inverse @ y for x, y in ((beta, beta), (v, v), (beta, v)))
    u = np.trace(sigma @ masked @ inverse @ inverse) / (n * p - np.trace(masked @ masked @ inverse @ inverse))
    found = spiked_risk(v, delta, beta, n, np.array([p]), noise)
    assert found.bias[0] == pytest.approx(phi_b + c**2 * (1 - phi_v) + delta * (c * (1 - phi_v) - psi) ** 2)
    assert found.variance[0] == pytest.approx(u * (noise + p + c * p * (v @ beta)))


def test_a_weak_spike_is_theorem_1() -> None:
    v = uniform_direction(100, 1)
    found = spiked_risk(v, 1e-9, v, 20, P, 0.04)
    np.testing.assert_allclose(found.risk, isotropic_risk(P, 5.0, 0.04).risk, rtol=1e-7)


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=30), st.floats(0.01, 0.99), st.sampled_from([0.0, 1e-8, 1.0])
)
def test_fixed_point(values: list[float], share: float, ridge: float) -> None:
    eigenvalues, rows = np.array(values), share * len(values)
    star = fixed_point(eigenvalues, rows, ridge)
    assert (eigenvalues / (eigenvalues + star)).sum() == pytest.approx(rows - ridge / star, rel=1e-9)


def test_fixed_point_of_many_rows() -> None:
    assert fixed_point(np.ones(5), 5.0) == 0
    assert fixed_point(np.ones(5), 9.0) == 0
    assert fixed_point(np.ones(5), 9.0, 1.0) > 0


def test_as_many_rows_as_features() -> None:
    v = uniform_direction(10, 1)
    assert np.isinf(spiked_risk(v, 1.0, v, 20, np.array([0.5])).risk[0])


V = np.ones(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: isotropic_risk(np.array([0.0]), 1.0, 0.0), "ratio must be above 0"),
        (lambda: isotropic_risk(np.array([1.0]), 1.0, 0.0), "ratio must be above 0 and below 1"),
        (lambda: isotropic_risk(P, 0.0, 0.0), "gamma must be"),
        (lambda: isotropic_risk(P, 1.0, -1.0), "kappa must be"),
        (lambda: spiked_risk(V, 1.0, np.ones(5), 3, P), "beta must have the length of v, 4, not 5"),
        (lambda: spiked_risk(V, 0.0, V, 3, P), "delta must be"),
        (lambda: spiked_risk(V, 1.0, 0 * V, 3, P), "beta must be finite and not zero"),
        (lambda: spiked_risk(V, 1.0, V, 1, P), "n must be at least 2"),
        (lambda: spiked_risk(V, 1.0, V, 3, P, -1.0), "noise must be"),
        (lambda: spiked_risk(V, 1.0, V, 3, P, ridge=-1.0), "ridge must be"),
        (lambda: fixed_point(np.array([1.0, 0.0]), 1.0), "eigenvalues must be"),
        (lambda: fixed_point(V, 0.0), "rows must be positive"),
    ],
)
def test_bad_input(make: object, message: str, unchecked: None) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
