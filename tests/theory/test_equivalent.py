import numpy as np
import pytest

from r2mae.theory import Covariance, Dense, KeptRows, equivalent, kept_rows, latent, uniform_spectrum
from r2mae.theory.ranges import Range
from r2mae.theory.resolvent import FactoredResolvent


def by_plain_iteration(cov: Covariance, rows: KeptRows, c: float, e: float) -> np.ndarray:
    """κ from far above, without derivatives."""
    sigma = cov.matrix()
    dia = np.diag(cov.diagonal)  # of Rotated: the mean
    x = np.full(2, 1e3)
    for _ in range(20_000):
        kappa = e + rows.sigma * x[0] + rows.diagonal * x[1]
        share = rows.weight / kappa
        inverse = np.linalg.inv(share @ rows.sigma * sigma + share @ rows.diagonal * dia + c * np.eye(cov.d))
        new = np.array([np.vdot(sigma, inverse), np.vdot(dia, inverse)]) / rows.count
        if np.abs(new / x - 1).max() < 1e-13:
            break
        x = new
    return kappa


@pytest.mark.parametrize("n", [20, 400])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("name", ["haar", "latent"])
def test_plain_iteration_finds_what_newton_finds(name: str, ridge: float, n: int) -> None:
    cov = uniform_spectrum(40, 1) if name == "haar" else latent(40, 1, q=5)
    rows = kept_rows(n, Range(0.4, 0.9))
    newton = equivalent.solve(cov, rows, ridge)
    e = (0.0 if newton.c else 1.0) if ridge == 0 else ridge / rows.count / newton.c
    np.testing.assert_allclose(by_plain_iteration(cov, rows, newton.c, e), newton.kappa, rtol=1e-9)


@pytest.mark.parametrize("n", [60, 900])
def test_the_derivative_is_one(n: int) -> None:
    """κ of the model whose M has gained τΣ, by differences."""
    cov, rows = uniform_spectrum(120, 1), kept_rows(n, 0.5)
    found = equivalent.solve(cov, rows, 1.0)
    values, dia, e = cov.eigenvalues, cov.diagonal, 1.0 / rows.count / found.c

    def kappa(tau: float) -> float:
        at = float(found.kappa[0])
        for _ in range(5000):
            c = rows.sigma[0] * values + rows.diagonal[0] * dia
            at = e + float((c / (c / at + found.c + tau * values)).sum()) / rows.count
        return at

    step = 1e-5 * found.c
    assert kappa(0) == pytest.approx(found.kappa[0], rel=1e-10)
    assert (kappa(step) - kappa(-step)) / (2 * step) == pytest.approx(found.d_kappa[0], rel=1e-6)


@pytest.mark.parametrize("start", [1e-12, 1e-3, 1e12])
@pytest.mark.parametrize("ridge", [0.0, 1e-9, 1.0])
@pytest.mark.parametrize("n", [60, 900])
def test_the_start_does_not_matter(monkeypatch: pytest.MonkeyPatch, n: int, ridge: float, start: float) -> None:
    cov, rows = Dense(latent(60, 1).matrix()), kept_rows(n, Range(0.4, 0.9))
    expected = equivalent.solve(cov, rows, ridge)
    monkeypatch.setattr(equivalent, "_isotropic_start", lambda *_: np.full(2, start))
    np.testing.assert_allclose(equivalent.solve(cov, rows, ridge).kappa, expected.kappa, rtol=1e-9)


def test_more_digits_where_the_cheap_form_has_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many whole rows as dimensions, and hardly a ridge: κ is of the order of its square root."""
    rng = np.random.default_rng(0)
    f = rng.standard_normal((5, 2))
    cov, rows, ridge = Dense(f @ f.T), kept_rows(2, 0.0, 1.0), 1e-11
    found = equivalent.solve(cov, rows, ridge)
    assert isinstance(found.resolvent, FactoredResolvent)
    values = np.linalg.svd(f)[1] ** 2
    kappa = found.kappa[0] / found.c  # ℓ/κ = 1 − Σ λ/(λ + κ)/ñ, in units of (1, ℓ)
    assert (kappa / (values + kappa)).mean() == pytest.approx(ridge / 2 / kappa, rel=1e-6)
    monkeypatch.setattr(equivalent, "_ACCEPTED_EXACT", -1.0)
    monkeypatch.setattr(equivalent, "_TOLERANCE", -1.0)
    with pytest.raises(ArithmeticError, match=r"with a ridge of 1e-11: the 2 kept rows .* use ridge=\d"):
        equivalent.solve(cov, rows, ridge)


@pytest.mark.parametrize("ridge", [0.0, 1e-9, 5.0])
def test_what_cannot_be_told_names_a_ridge_that_was_not_tried(monkeypatch: pytest.MonkeyPatch, ridge: float) -> None:
    monkeypatch.setattr(equivalent, "_ITERATIONS", 1)
    cov, rows = uniform_spectrum(120, 1), kept_rows(199, 0.6)
    with pytest.raises(ArithmeticError, match=r"119\.4 kept rows are too close to the 120 dimensions") as caught:
        equivalent.solve(cov, rows, ridge)
    named = float(str(caught.value).split("use ridge=")[1].split()[0])
    assert named > 10 * ridge
    monkeypatch.undo()
    assert np.isfinite(equivalent.solve(cov, rows, named).d_kappa).all()
