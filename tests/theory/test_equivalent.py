import numpy as np
import pytest

from r2mae.theory import equivalent, kept_rows, latent, uniform_spectrum
from r2mae.theory.ranges import Range


@pytest.mark.parametrize("n", [60, 900])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("name", ["haar", "latent"])
def test_plain_iteration_finds_what_newton_finds(
    monkeypatch: pytest.MonkeyPatch, name: str, ridge: float, n: int
) -> None:
    cov = uniform_spectrum(120, 1) if name == "haar" else latent(120, 1, q=5)
    rows = kept_rows(n, Range(0.4, 0.9))
    newton = equivalent.solve(cov, rows, ridge)
    monkeypatch.setattr(equivalent, "_newton", lambda x, matrix, gap: x + gap)
    plain = equivalent.solve(cov, rows, ridge)
    np.testing.assert_allclose(plain.kappa, newton.kappa, rtol=1e-8)
    np.testing.assert_allclose(plain.d_kappa, newton.d_kappa, rtol=1e-7)


@pytest.mark.parametrize("n", [60, 900])
def test_the_derivative_is_one(n: int) -> None:
    """κ of the model whose M has gained τΣ, by differences."""
    cov, rows = uniform_spectrum(120, 1), kept_rows(n, 0.5)
    found = equivalent.solve(cov, rows, 1.0)
    values, dia = cov.eigenvalues, cov.diagonal

    def kappa(tau: float) -> float:
        at = float(found.kappa[0])
        for _ in range(5000):
            c = rows.sigma[0] * values + rows.diagonal[0] * dia
            at = 1.0 / rows.count + float((c / (c / at + 1 + tau * values)).sum()) / rows.count
        return at

    assert kappa(0) == pytest.approx(found.kappa[0], rel=1e-10)
    assert (kappa(1e-5) - kappa(-1e-5)) / 2e-5 == pytest.approx(found.d_kappa[0], rel=1e-6)


def test_what_does_not_settle_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalent, "_ITERATIONS", 2)
    with pytest.raises(ArithmeticError, match=r"the 119\.4 kept rows are too close to the 120 features; use a ridge"):
        equivalent.solve(uniform_spectrum(120, 1), kept_rows(199, 0.6), 0.0)
