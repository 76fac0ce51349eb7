import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.theory import Covariance, Dense, LowRank, Rotated
from r2mae.theory.resolvent import DenseResolvent, EigenResolvent, LowRankResolvent

COEFFICIENT = st.floats(1e-6, 1e3)


def covariance(kind: str, seed: int) -> Covariance:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(4, 12))
    if kind == "rotated":
        return Rotated(rng.uniform(0.1, 5, d), seed)
    own, factor = rng.uniform(0.2, 2, d), rng.standard_normal((d, int(rng.integers(1, max(2, d // 3)))))
    return LowRank(own, factor) if kind == "lowrank" else Dense(LowRank(own, factor).matrix())


@given(st.sampled_from(["rotated", "lowrank", "dense"]), st.integers(0, 10_000), COEFFICIENT, COEFFICIENT, COEFFICIENT)
def test_the_three_forms_are_the_inverse(kind: str, seed: int, a: float, b: float, c: float) -> None:
    cov = covariance(kind, seed)
    sigma = cov.matrix()
    dia = np.diag(cov.diagonal)  # of Rotated: the mean
    inverse = np.linalg.inv(a * sigma + b * dia + c * np.eye(cov.d))
    found = cov.resolvent(a, b, c)
    assert isinstance(found, {"rotated": EigenResolvent, "lowrank": LowRankResolvent, "dense": DenseResolvent}[kind])
    traces, sn, dn = found.traces(), sigma @ inverse, dia @ inverse
    for got, expected in (
        (traces.s, sn),
        (traces.d, dn),
        (traces.ss, sn @ sn),
        (traces.sd, sn @ dn),
        (traces.dd, dn @ dn),
    ):
        assert got == pytest.approx(np.trace(expected), rel=1e-7)
    g = np.random.default_rng(seed).standard_normal((cov.d, 2))
    np.testing.assert_allclose(found.solve(g), inverse @ g, rtol=1e-6, atol=1e-9 * np.abs(inverse).max())
    if isinstance(found, EigenResolvent | DenseResolvent):
        squares = (np.diag(inverse), np.diag(inverse @ dia @ inverse), np.diag(inverse @ inverse))
        for one, expected in zip(found.square_diagonals(), squares, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["lowrank", "dense"])
def test_a_weak_sigma_keeps_its_digits(kind: str) -> None:
    """Σ's traces are no difference of large numbers, where the penalty rules."""
    cov, a = covariance(kind, 1), 1e-9
    traces = cov.resolvent(a, 1.0, 1.0).traces()
    n = np.diag(1 / (cov.diagonal + 1))
    sigma, dia = cov.matrix(), np.diag(cov.diagonal)
    assert traces.s == pytest.approx(np.trace(sigma @ n), rel=1e-7)
    assert traces.ss == pytest.approx(np.trace(sigma @ n @ sigma @ n), rel=1e-7)
    assert traces.sd == pytest.approx(np.trace(sigma @ n @ dia @ n), rel=1e-7)
