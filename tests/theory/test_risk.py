"""The general formula against the paper's, against itself in other forms, and against simulation."""

import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.masking import Ratio, Uniform
from r2mae.theory import (
    Covariance,
    Dense,
    DominantWarning,
    InterpolationWarning,
    LocalisedWarning,
    LowRank,
    Rotated,
    beta_spectrum,
    conditional_risk,
    direction_risk,
    feature_risk,
    from_data,
    identity,
    isotropic_risk,
    latent,
    plateau,
    risk,
    signal_at,
    simulate,
    spiked,
    spiked_risk,
    uniform_direction,
    uniform_spectrum,
)
from theory.brute import ridge_risk, simulate_plainly

pytestmark = pytest.mark.filterwarnings("ignore::r2mae.theory.DominantWarning")  # small sizes are the rule here
P = np.round(np.arange(0.05, 0.96, 0.1), 2)
PARTS = ("risk", "bias", "variance", "magnitude")


class Nodes(Ratio):
    def __init__(self, p: np.ndarray, weight: np.ndarray) -> None:
        self._nodes = p, weight

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        return self._nodes


@pytest.mark.parametrize(("n", "d"), [(200, 1000), (200, 190), (1000, 20), (40, 1000)])
def test_theorem_1(n: int, d: int) -> None:
    ratio = P[np.abs(n * P / d - 1) > 0.05]
    beta = np.full(d, 2 / np.sqrt(d))
    found = risk(identity(d), beta, n, ratio, 0.04)
    expected = isotropic_risk(ratio, d / n, 0.01)
    np.testing.assert_allclose(found.by_length, expected.risk, rtol=1e-12)
    np.testing.assert_allclose(found.bias / 4, expected.bias, atol=1e-11 * expected.risk.max())
    np.testing.assert_allclose(found.variance / 4, expected.variance, rtol=1e-11)
    np.testing.assert_allclose(found.noise_gain, expected.variance / (ratio + 0.01), rtol=1e-11)
    assert found.null == pytest.approx(4)
    np.testing.assert_allclose(found.rows, n * ratio)


def test_corollary_1_as_d_grows() -> None:
    """At fixed δ; the corollary leaves terms of order 1/d out."""
    gaps = []
    for d in (200, 400, 800):
        v = uniform_direction(d, 1)
        beta = signal_at(v, 0.7, 1)
        cov, ratio = spiked(3, v), np.array([0.3, 0.6, 0.9])
        found, limit = risk(cov, beta, d // 5, ratio, 0.04), spiked_risk(v, 3, beta, d // 5, ratio, 0.04)
        gaps.append(float(np.abs(found.risk / limit.risk - 1).max()))
    assert gaps[2] < 0.005
    assert all(1.5 < one / two < 2.7 for one, two in pairwise(gaps)), gaps


@pytest.mark.parametrize("n", [40, 600])
@pytest.mark.parametrize("ratio", [0.2, 0.7, Uniform(0.3, 0.9)])
def test_the_forms_of_a_covariance_agree(n: int, ratio: float | Uniform) -> None:
    rng = np.random.default_rng(0)
    low = LowRank(rng.uniform(0.5, 2, 90), rng.standard_normal((90, 3)) / 5)
    beta = rng.standard_normal((90, 2))
    one, two = risk(low, beta, n, ratio, 0.2), risk(Dense(low.matrix()), beta, n, ratio, 0.2)
    for part in PARTS:
        np.testing.assert_allclose(getattr(one, part), getattr(two, part), rtol=1e-8)
    wide = latent(90, 1)  # factorised whole
    one, two = risk(wide, beta, n, ratio, 0.2), risk(Dense(wide.matrix()), beta, n, ratio, 0.2)
    np.testing.assert_allclose(one.risk, two.risk, rtol=1e-8)


@pytest.mark.parametrize("n", [80, 1200])
def test_a_rotated_covariance_and_its_matrix(n: int) -> None:
    """They differ by the diagonal, which is constant only as d grows."""
    cov = uniform_spectrum(400, 1)
    beta = cov.eigenvectors(np.array([0, 200]))
    one, two = (risk(c, beta, n, np.array([0.3, 0.7]), 0.1).risk for c in (cov, Dense(cov.matrix())))
    np.testing.assert_allclose(one, two, rtol=0.02)
    assert (one != two).all()


@pytest.mark.parametrize("n", [60, 700])
@pytest.mark.parametrize("kind", ["rotated", "lowrank", "dense"])
def test_ridge_tends_to_ridgeless(kind: str, n: int) -> None:
    rng = np.random.default_rng(0)
    cov: Covariance = uniform_spectrum(150, 1) if kind == "rotated" else latent(150, 1, q=5)
    cov = Dense(cov.matrix()) if kind == "dense" else cov
    beta = rng.standard_normal(150)
    without = risk(cov, beta, n, [0.3, Uniform(0.4, 0.8)], 0.1)
    for ridge, tolerance in ((1e-2, 3e-3), (1e-4, 3e-5), (1e-8, 1e-8)):
        found = risk(cov, beta, n, [0.3, Uniform(0.4, 0.8)], 0.1, ridge=ridge)
        for part in PARTS:
            np.testing.assert_allclose(getattr(found, part), getattr(without, part), rtol=tolerance)


@pytest.mark.parametrize("n", [20, 120])
@pytest.mark.parametrize("ratio", [Uniform(0.6, 0.6), Uniform(0.3, 0.9)])
@pytest.mark.parametrize("ridge", [3.0, 30.0])
def test_the_k_equations_of_the_note(n: int, ratio: Uniform, ridge: float) -> None:
    rng = np.random.default_rng(0)
    cov = LowRank(rng.uniform(0.5, 2, 25), rng.standard_normal((25, 3)))
    beta = rng.standard_normal(25)
    expected = ridge_risk(cov.matrix(), beta, n, ratio.nodes(), 0.3, ridge)
    assert risk(cov, beta, n, ratio, 0.3, ridge=ridge).risk == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n", [100, 1000])
def test_a_range_of_no_width_is_its_number(n: int) -> None:
    rng = np.random.default_rng(0)
    cov, beta = latent(100, 1, q=4), rng.standard_normal(100)
    one, two = risk(cov, beta, n, 0.55, 0.1), risk(cov, beta, n, Uniform(0.55, 0.55), 0.1)
    for part in PARTS:
        assert getattr(one, part) == pytest.approx(float(getattr(two, part)), rel=1e-12)


def test_rows_of_a_range_count_by_their_ratio() -> None:
    """Kept rows have the density p: a mixture given as such, with a constant probability, is the same."""
    rng = np.random.default_rng(0)
    cov, beta = latent(100, 1, q=4), rng.standard_normal(100)
    mixed = risk(cov, beta, 100, Nodes(np.array([0.2, 0.8]), np.array([0.5, 0.5])))
    by_hand = risk(cov, beta, 100, Nodes(np.array([0.2, 0.8]), np.array([0.2, 0.8])), keep=0.5)
    np.testing.assert_allclose(mixed.risk, by_hand.risk)
    unweighted = risk(cov, beta, 100, Nodes(np.array([0.2, 0.8]), np.array([0.5, 0.5])), keep=0.5)
    assert abs(mixed.risk / unweighted.risk - 1) > 0.01


def test_ratio_zero_is_the_null() -> None:
    rng = np.random.default_rng(0)
    cov, beta = latent(50, 1, q=4), rng.standard_normal((50, 2))
    found = risk(cov, beta, 10, [0.0, 0.5], 0.1)
    np.testing.assert_allclose(found.risk[0], cov.quadratic(beta))
    np.testing.assert_array_equal(found.risk[0], found.null)
    assert (found.magnitude[0] == 0).all()
    assert (found.bias[0] == found.null).all()
    assert (found.rows[0], found.noise_gain[0]) == (0, 0)


@pytest.mark.slow
@given(
    st.sampled_from(["rotated", "lowrank", "dense"]),
    st.integers(0, 1000),
    st.sampled_from([0.3, 3.0]),
    st.floats(0.02, 0.98),
    st.floats(0, 5),
    st.sampled_from([0.0, 1e-6, 2.0, 1e4]),
    st.floats(0.01, 100),
)
@settings(max_examples=25)
def test_what_must_hold(
    kind: str, seed: int, many: float, ratio: float, noise: float, ridge: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(20, 50))
    n = max(2, int(np.ceil(many * d / ratio)))
    low = LowRank(rng.uniform(0.5, 2, d), rng.standard_normal((d, 2)) / 3)
    cov: Covariance = Rotated(rng.uniform(0, 9, d)) if kind == "rotated" else low
    cov = Dense(low.matrix()) if kind == "dense" else cov
    beta = rng.standard_normal(d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = risk(cov, beta, n, ratio, noise, ridge=ridge)
        longer = risk(cov, scale * beta, n, ratio, scale**2 * noise, ridge=ridge)
        wider: Covariance = (
            Rotated(scale * cov.eigenvalues)
            if isinstance(cov, Rotated)
            else Dense(scale * cov.matrix())
            if isinstance(cov, Dense)
            else LowRank(scale * low.own, np.sqrt(scale) * low.factor)
        )
        louder = risk(wider, beta, n, ratio, scale * noise, ridge=scale * ridge)
    assert found.risk >= 0
    assert found.magnitude >= -1e-9 * found.null
    assert found.variance >= 0
    assert found.bias > -0.02 * found.risk  # its two parts are asymptotic, each on its own
    assert found.risk == pytest.approx(float(found.bias + found.variance))
    for part in ("risk", "magnitude", "variance"):
        assert getattr(longer, part) == pytest.approx(scale**2 * float(getattr(found, part)), rel=1e-6)
        assert getattr(louder, part) == pytest.approx(scale * float(getattr(found, part)), rel=1e-6)


@given(st.integers(0, 1000), st.floats(0.1, 0.9))
@settings(max_examples=20)
def test_only_the_spectrum_of_a_rotated_covariance_matters(seed: int, ratio: float) -> None:
    values = np.random.default_rng(seed).uniform(1, 9, 40)
    mixture = np.random.default_rng(seed).standard_normal(40)
    one, two = (Rotated(values, rotation) for rotation in (1, 2))
    risks = [risk(cov, cov.basis @ mixture, 15, ratio, 0.1).risk for cov in (one, two)]
    assert risks[0] == pytest.approx(float(risks[1]))


MODELS: dict[str, Callable[[], Covariance]] = {
    "isotropic": lambda: identity(300),
    "spiked": lambda: spiked(5, uniform_direction(300, 1)),
    "haar": lambda: beta_spectrum(300, 1),
    "latent": lambda: latent(300, 1),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [100, 1200])
def test_against_simulation(model: str, n: int) -> None:
    """By a program that shares nothing with the package; 2 % are allowed for the finite size."""
    cov, ratio = MODELS[model](), Uniform(0.4, 0.8)
    beta = cov.eigenvectors(np.array([0]))[:, 0] if model != "isotropic" else uniform_direction(300, 1)
    drawn = simulate_plainly(cov.matrix(), beta, n, lambda rng, size: rng.uniform(0.4, 0.8, size), 0.04, 16)
    found = risk(cov, beta, n, ratio, 0.04)
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    gap = np.abs(drawn.mean(axis=0) - [found.risk, found.magnitude])
    assert (gap < 4 * error + 0.02 * drawn.mean(axis=0)).all(), (drawn.mean(axis=0), error, found)


# Numbers that simulations had confirmed: a change of any digit needs a reason.
def frozen() -> dict[str, tuple[object, list[float]]]:
    v = uniform_direction(400, 1)
    beta = signal_at(v, 0.5, 1)
    ones = np.full(300, 0.1)
    both = Uniform(0.4, 0.8)
    return {
        "spiked": (risk(spiked(10, v), beta, 80, 0.6, 0.04), [1.3041216592, 1.0137818785, 0.2903397808, 2.8136642521]),
        "many": (risk(spiked(10, v), beta, 2000, 0.6, 0.04), [4.9226871905, 3.9054957377, 1.0171914528, 14.9601301346]),
        "latent": (
            risk(latent(300, 1), ones, 100, both, 0.04),
            [9.3076583583, 5.8089590996, 3.4986992587, 6.7647209862],
        ),
        "ridge": (
            risk(latent(300, 1), ones, 1000, both, 0.04, ridge=50),
            [7.7586557268, 2.3058946252, 5.4527611016, 18.1790029639],
        ),
        "beta": (
            direction_risk(beta_spectrum(1000, 2), 200, Uniform(0.5, 0.6), 0.04, which=np.array([0])),
            [7.6693845108, 6.7634196606, 0.9059648502, 3.0441432928],
        ),
        "features": (
            feature_risk(latent(60, 1, q=5), 300, 0.5),
            [2.490630695, 1.1572618197, 1.3333688753, 1.9982705924],
        ),
    }


@pytest.mark.parametrize(("name", "case"), frozen().items())
def test_frozen_numbers(name: str, case: tuple[object, list[float]]) -> None:
    found, expected = case
    assert [np.ravel(getattr(found, part))[0] for part in PARTS] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("cov", "n", "ratio", "ridge"),
    [
        (identity(1000), 10**6, 0.002, 0.0),
        (uniform_spectrum(1000), 10**6, 0.999, 0.0),
        (latent(60, q=1), 10**6, 0.5, 1e-8),
        (latent(60, q=1), 30, 0.999, 1e-8),
        (latent(60), 10**6, 0.999, 1e-8),
        (spiked(10, uniform_direction(1000)), 200, 0.95, 1e4),  # stalled at 1e-11 while traces came from differences
        (spiked(1e6, uniform_direction(300)), 300, 0.5, 0.0),
        (latent(200, q=10), 100, 0.5, 1e6),
        (Dense(latent(60).matrix()), 100, 0.5, 1e8),
    ],
)
def test_extremes(cov: Covariance, n: int, ratio: float, ridge: float) -> None:
    wide = Nodes(*(np.polynomial.legendre.leggauss(81)[k] / 2 + (0.5, 0.0)[k] for k in (0, 1)))
    beta = uniform_direction(cov.d, 1)
    found = risk(cov, beta, n, [ratio, wide], 0.1, ridge=ridge)
    assert np.isfinite(found.risk).all()
    assert (found.risk > 0).all()
    assert (found.magnitude > 0).all()
    if ridge >= 1e4:
        assert found.normalised[0] < 2
    if ridge >= 1e6:
        np.testing.assert_allclose(found.normalised, 1, atol=0.05)  # shrunk to nothing


def test_near_as_many_rows_as_features() -> None:
    cov, beta = identity(100), uniform_direction(100, 1)
    with pytest.warns(InterpolationWarning, match=r"= 98 kept rows are within 5% of the 100 dimensions") as caught:
        risk(cov, beta, 200, [0.4, 0.49, 0.5, 0.6])
    assert len(caught) == 1
    with pytest.warns(InterpolationWarning):
        at = risk(cov, beta, 200, 0.5)
    assert np.isinf(at.risk)
    assert np.isinf(at.variance)
    assert np.isnan(at.bias)
    with pytest.warns(InterpolationWarning):
        close = risk(cov, beta, 200, 0.5 + 1e-5)
    np.testing.assert_allclose(close.risk, isotropic_risk(np.array([0.5 + 1e-5]), 0.5, 0.0).risk[0], rtol=1e-6)
    risk(cov, beta, 200, 0.5, ridge=1.0)  # no warning


def test_localised_directions() -> None:
    one = np.eye(100)[0]
    with pytest.warns(LocalisedWarning, match=r"beta is concentrated on about 1\.0 of 100"):
        risk(identity(100), one, 20, 0.5)
    with pytest.warns(LocalisedWarning, match="a spike of the covariance is concentrated"):
        risk(spiked(1.0, one), np.ones(100), 20, 0.5)
    risk(LowRank(np.ones(100), np.zeros((100, 1))), np.ones(100), 20, 0.5)  # no spike at all
    risk(spiked(1e-200, np.ones(100)), np.full(100, 1e-200), 20, 0.5)


def test_dominant_directions() -> None:
    v = uniform_direction(1000, 1)
    for cov in (spiked(100, v), plateau(1000, 5)[0], Rotated(np.append(np.ones(499), 60.0))):
        share = cov.eigenvalues[0] / cov.diagonal.sum()
        with pytest.warns(DominantWarning, match=f"has {share:.0%} of the variance"):
            risk(cov, uniform_direction(cov.d, 1), 100, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        risk(spiked(10, v), v, 200, 0.5)
        risk(identity(20), np.ones(20), 10, 0.5)  # a twentieth each


COV, BETA = identity(30), np.ones(30)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: risk(COV, np.ones(29), 10, 0.5), r"beta must have length 30.*\(29,\)"),
        (lambda: risk(COV, np.full(30, np.nan), 10, 0.5), "beta contains a number that is not finite"),
        (lambda: risk(COV, np.zeros(30), 10, 0.5), "beta must not be zero"),
        (lambda: risk(COV, BETA, 1, 0.5), "n must be at least 2 rows, not 1"),
        (lambda: risk(COV, BETA, 10, 1.0), "ratio must be at least 0 and below 1, not 1"),
        (lambda: risk(COV, BETA, 10, [0.5, -0.2]), r"ratio must be .*, not -0\.2"),
        (lambda: risk(COV, BETA, 10, 0.5, -0.1), r"noise must be a finite number of 0 or more, not -0\.1"),
        (lambda: risk(COV, BETA, 10, 0.5, float("inf")), "noise must be"),
        (lambda: risk(COV, BETA, 10, 0.5, ridge=-1.0), "ridge must be"),
        (lambda: risk(COV, BETA, 10, 0.05), r"ratio: too few kept rows: n·p = 0\.5 for 0\.05; expect at least 1"),
        (lambda: risk(COV, BETA, 10, []), "ratios must contain at least one"),
        (lambda: risk(COV, BETA, 10, None), "ratio must be a number or an object with nodes"),
        (
            lambda: feature_risk(Dense(np.ones((30, 30))), 10, 0.0, keep=1.0),
            r"cov is singular \(of rank 1\) .* a small ridge",
        ),
        (lambda: direction_risk(COV, 10, 0.5, which=np.array([0, 30])), "which must have numbers below 30"),
        (lambda: direction_risk(COV, 10, [0.0, 0.05]), "too few kept rows"),
        (lambda: feature_risk(COV, 10, 0.05), "too few kept rows"),
        (lambda: feature_risk(COV, 10, 0.5, ridge=float("nan")), "ridge must be"),
    ],
)
def test_bad_input(call: Callable[[], object], message: str, unchecked: None) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_lists_and_whole_numbers_are_arrays() -> None:
    cov, beta, ratios = [[2.0, 1, 0], [1, 2, 0], [0, 0, 1]], [1, 0, 2], [0.25, 0.5]
    arrays = np.array(cov), np.array(beta, dtype=np.float64), np.array(ratios)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.array_equal(risk(cov, beta, 40, ratios).risk, risk(*arrays[:2], 40, arrays[2]).risk)
        assert risk(cov, [[1, 0], [0, 1], [2, 1]], 40, 0.5).risk.shape == (2,)
    made = simulate(cov, beta, 40, ratios, repetitions=2, seed=3)
    assert np.array_equal(made.risks, simulate(*arrays[:2], 40, arrays[2], repetitions=2, seed=3).risks)
    assert np.array_equal(spiked(1.0, beta).factor, spiked(1.0, arrays[1]).factor)
    assert spiked_risk([1, 1, 0], 1, beta, 40, ratios).bias.shape == isotropic_risk(ratios, 2, 1).bias.shape == (2,)
    assert conditional_risk(cov, beta, [[1, 0, 0]], [[1, 0, 0]], 0.0).variance > 0
    assert from_data([[1, 2], [2, 1], [3, 5]]).d == len(Rotated([2, 1]).eigenvalues) == LowRank([1, 2]).d == 2
    with pytest.raises(ValueError, match="beta must be an array of numbers"):
        risk(cov, ["a", 1, 2], 40, 0.5)


def test_a_signal_that_rows_do_not_have() -> None:
    cov, beta = Dense(np.ones((30, 30))), np.zeros(30)
    beta[:20:2], beta[1:20:2] = 1, -1
    found = risk(cov, beta, 60, 0.25)
    with pytest.raises(ValueError, match="null risk is zero"):
        found.normalised  # noqa: B018


def test_warnings_point_at_the_caller(unchecked: None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        risk(spiked(300, np.eye(100)[0]), np.eye(100)[0], 200, 0.5)
        direction_risk(identity(100), 200, 0.5)
        feature_risk(identity(100), 200, 0.5)
    assert len(caught) == 6
    assert {one.category for one in caught} == {InterpolationWarning, LocalisedWarning, DominantWarning}
