import math

import numpy as np
import pytest

from r2mae.masking import Uniform
from r2mae.theory import Covariance, Dense, Inputs, equivalent, latent, uniform_spectrum
from r2mae.theory.copies import Copies, kept_copies
from r2mae.theory.resolvent import FactoredResolvent
from theory.brute import pattern_means

HIDDEN = Uniform(0.4, 0.9)


def copies_of(n: int, ratio: float | Uniform, masks: float = 1, keep: float | str = "ratio") -> Copies:
    return kept_copies(n, ratio, keep, masks, Inputs())  # type: ignore[arg-type]


def by_plain_iteration(cov: Covariance, copies: Copies, c: float, e: float, tau: float = 0.0) -> np.ndarray:
    """(tr ΣM⁻¹, tr DM⁻¹)/n from far above, without derivatives; M gains τΣ."""
    sigma, dia = cov.matrix(), np.diag(cov.diagonal)  # diag Σ of Rotated: the mean
    x = np.full(2, 1e3)
    for _ in range(20_000):
        a, b = pattern_means(copies, e, x)[:2]
        inverse = np.linalg.inv((a + tau) * sigma + b * dia + c * np.eye(cov.d))
        new = np.array([np.vdot(sigma, inverse), np.vdot(dia, inverse)]) / copies.n
        if np.abs(new / x - 1).max() < 1e-13:
            break
        x = new
    return x


@pytest.mark.parametrize("masks", [1, 3])
@pytest.mark.parametrize("n", [20, 400])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("name", ["haar", "latent"])
def test_plain_iteration_finds_what_newton_finds(name: str, ridge: float, n: int, masks: int) -> None:
    cov = uniform_spectrum(40, 1) if name == "haar" else latent(40, 1, q=5)
    copies = copies_of(n, HIDDEN if masks == 1 else 0.6, masks)
    newton = equivalent.solve(cov, copies, ridge)
    np.testing.assert_allclose(by_plain_iteration(cov, copies, newton.c, newton.e), newton.x, rtol=1e-9)


@pytest.mark.parametrize("masks", [1, 3])
@pytest.mark.parametrize("n", [15, 900])
def test_the_derivative_is_one(n: int, masks: int) -> None:
    """By differences: x of the model whose M has gained τΣ, and all terms at x."""
    cov, copies = uniform_spectrum(60, 1), copies_of(n, 0.5, masks)
    found = equivalent.solve(cov, copies, 1.0)
    step = 1e-5 * found.c
    ends = [by_plain_iteration(cov, copies, found.c, found.e, tau) for tau in (-step, step)]
    np.testing.assert_allclose((ends[1] - ends[0]) / (2 * step), found.d_x, rtol=1e-6)


@pytest.mark.parametrize("inputs", [Inputs(), Inputs("rescaled")], ids=lambda inputs: inputs.rule)
@pytest.mark.parametrize(("masks", "ratio"), [(1, 0.4), (5, 0.4), (1, HIDDEN), (3, HIDDEN), (4, Uniform(0.0, 0.5))])
def test_terms_are_means_over_patterns(ratio: float | Uniform, masks: int, inputs: Inputs) -> None:
    """By K × K matrices, and their derivatives by differences."""
    copies = kept_copies(100, ratio, 0.7, masks, inputs)
    e, x, step = 0.2, np.array([0.7, 1.3]), 1e-6
    found, direct = copies.terms(e, x), pattern_means(copies, e, x)
    up, down = ([pattern_means(copies, e, x + sign * step * unit) for unit in np.eye(2)] for sign in (1, -1))
    slopes = (np.stack(up, axis=1) - np.stack(down, axis=1)) / (2 * step)
    np.testing.assert_allclose([*found.coefficients, found.shrink], direct[:3], rtol=1e-12)
    np.testing.assert_allclose(found.d_coefficients, slopes[:2], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.d_shrink, slopes[2], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.d_residual.sum(axis=0), slopes[3], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("masks", [1, 5, math.inf])
@pytest.mark.parametrize("start", [1e-12, 1e-3, 1e12])
@pytest.mark.parametrize("ridge", [0.0, 1e-9, 1.0])
@pytest.mark.parametrize("n", [60, 900])
def test_the_start_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, n: int, ridge: float, start: float, masks: float
) -> None:
    cov, copies = Dense(latent(60, 1).matrix()), copies_of(n, HIDDEN, masks)
    expected = equivalent.solve(cov, copies, ridge)
    monkeypatch.setattr(equivalent, "_isotropic_start", lambda *_: np.full(2, start))
    np.testing.assert_allclose(equivalent.solve(cov, copies, ridge).x, expected.x, rtol=1e-9)


def test_more_digits_where_the_cheap_form_has_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many whole rows as dimensions, and hardly a ridge: κ is of the order of its square root."""
    rng = np.random.default_rng(0)
    f = rng.standard_normal((5, 2))
    cov, copies, ridge = Dense(f @ f.T), copies_of(2, 0.0, keep=1.0), 1e-11
    found = equivalent.solve(cov, copies, ridge)
    assert isinstance(found.resolvent, FactoredResolvent)
    values = np.linalg.svd(f)[1] ** 2
    kappa = (found.e + found.x[0]) / found.c  # ℓ/κ = 1 − Σ λ/(λ + κ)/ñ, in units of (1, ℓ)
    assert (kappa / (values + kappa)).mean() == pytest.approx(ridge / 2 / kappa, rel=1e-6)
    monkeypatch.setattr(equivalent, "_ACCEPTED_EXACT", -1.0)
    monkeypatch.setattr(equivalent, "_TOLERANCE", -1.0)
    with pytest.raises(ArithmeticError, match=r"with a ridge of 1e-11: the 2 kept rows .* use ridge=\d"):
        equivalent.solve(cov, copies, ridge)


@pytest.mark.parametrize("ridge", [0.0, 1e-9, 5.0])
def test_what_cannot_be_told_names_a_ridge_that_was_not_tried(monkeypatch: pytest.MonkeyPatch, ridge: float) -> None:
    monkeypatch.setattr(equivalent, "_ITERATIONS", 1)
    cov, copies = uniform_spectrum(120, 1), copies_of(199, 0.6)
    with pytest.raises(ArithmeticError, match=r"119\.4 kept rows are too close to the 120 dimensions") as caught:
        equivalent.solve(cov, copies, ridge)
    named = float(str(caught.value).split("use ridge=")[1].split()[0])
    assert named > 10 * ridge
    monkeypatch.undo()
    assert np.isfinite(equivalent.solve(cov, copies, named).d_x).all()
