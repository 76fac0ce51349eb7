from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from r2mae.masking import LinearDecay, Ratio, Uniform
from r2mae.theory.closed import isotropic_risk
from r2mae.theory.masked import (
    RandomStream,
    Uniforms,
    bit_generator,
    kept_row_indices,
    masked_rows,
    minimum_norm,
)
from r2mae.theory.models import identity, latent, spiked, uniform_direction, uniform_spectrum
from r2mae.theory.risk import direction_risk
from r2mae.theory.rows import kept_rows, ratios_of_rows
from r2mae.theory.simulate import simulate


@dataclass(frozen=True)
class TwoPoints(Ratio):
    """A discrete distribution: a third at 0.2, the rest at 0.6."""

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.2, 0.6]), np.array([1 / 3, 2 / 3])


@dataclass(frozen=True)
class Squared(TwoPoints):
    def quantile(self, u: np.ndarray) -> np.ndarray:
        return u**2


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (30, 30), (1, 5)])
@pytest.mark.parametrize("targets", [(), (3,)])
@pytest.mark.parametrize("case", ["regular", "repeated", "hidden"])
def test_minimum_norm_is_the_pseudo_inverse(shape: tuple[int, int], targets: tuple[int, ...], case: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape), rng.standard_normal((shape[0], *targets))
    if case == "repeated":  # dependent rows, or dependent features
        x[:, -1], x[-1] = x[:, 0], x[0]
    if case == "hidden":  # a row and a feature of zeros
        x[:, 2], x[0] = 0, 0
    np.testing.assert_allclose(minimum_norm(x, y), np.linalg.pinv(x, rcond=1e-10) @ y, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(20, 50), (50, 20)])
@pytest.mark.parametrize("ridge", [1e-13, 0.5])  # the first: less than rounding, so singular values are used
def test_ridge(shape: tuple[int, int], ridge: float) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape), rng.standard_normal(shape[0])
    x[1] = x[0]
    x[:, 1] = x[:, 0]
    exact = np.linalg.pinv(x) @ y if ridge < 1e-9 else np.linalg.solve(x.T @ x + ridge * np.eye(shape[1]), x.T @ y)
    np.testing.assert_allclose(minimum_norm(x, y, ridge), exact, atol=1e-7)


def likely(count: int, trials: int, p: float) -> bool:
    """Neither tail of the binomial law beyond ``count`` is rarer than 1 in 10^9."""
    return min(binom.cdf(count, trials, p), binom.sf(count - 1, trials, p)) >= 1e-9


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 2**63), st.integers(0, 5))
def test_the_fraction_hidden(p: float, seed: int, repetition: int) -> None:
    n, d = 60, 50
    u = Uniforms.draw(n, d, seed, repetition)
    x, rows = np.ones((n, d)), np.arange(1, n, 2)
    masked = masked_rows(x, u.entries, np.full(n, p), rows)
    assert set(np.unique(masked)) <= {0.0, 1.0}
    # Counts are binomial: near 0 and 1 a normal bound would be too narrow.
    assert likely(int((masked == 0).sum()), masked.size, p)
    assert likely(len(kept_row_indices(np.full(n, p), u)), n, p)
    # A larger ratio hides what a smaller one hides, and keeps the rows it keeps.
    assert not masked_rows(x, u.entries, np.full(n, (1 + p) / 2), rows)[masked == 0].any()
    assert set(kept_row_indices(np.full(n, p), u)) <= set(kept_row_indices(np.full(n, (1 + p) / 2), u))


def test_uniform_numbers_are_independent() -> None:
    draws = [Uniforms.draw(5000, 1, seed, r) for seed, r in ((0, 0), (0, 1), (1, 0))]
    columns = np.stack([c for u in draws for c in (u.keep, u.ratio, u.entries[:, 0] / 2**32)])
    assert abs(np.corrcoef(columns) - np.eye(9)).max() < 5 / np.sqrt(5000)
    np.testing.assert_allclose(columns.mean(axis=1), 0.5, atol=5 / np.sqrt(12 * 5000))


def test_masks_of_rows_follow_their_own_ratio_in_any_buffer() -> None:
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((40, 999)), Uniforms.draw(40, 999, 3)
    ratios, rows, buffer = np.linspace(0, 0.99, 40), np.array([0, 3, 20, 39]), np.full((40, 999), np.nan)
    masked = masked_rows(x, u.entries, ratios, rows, buffer)
    assert np.shares_memory(masked, buffer)
    np.testing.assert_array_equal(masked, np.where(u.entries[rows] / 2**32 < ratios[rows, None], 0, x[rows]))
    np.testing.assert_array_equal(masked_rows(x, u.entries, ratios, rows), masked)


def test_ratios_of_rows() -> None:
    u = np.random.default_rng(1).random(20_000)
    assert (ratios_of_rows(0.3, u) == 0.3).all()
    np.testing.assert_array_equal(ratios_of_rows(Uniform(0.2, 0.6), u), 0.2 + (0.6 - 0.2) * u)
    np.testing.assert_array_equal(ratios_of_rows(Squared(), u), u**2)
    drawn = ratios_of_rows(TwoPoints(), u)
    assert set(drawn) == {0.2, 0.6}
    assert abs((drawn == 0.2).mean() - 1 / 3) < 0.02
    slow = LinearDecay(high=0.8, low=0.2, end=0.75).bind(101)  # spends time at its floor: not U(0.2, 0.8)
    p, weight = slow.nodes()
    assert set(ratios_of_rows(slow, u)) <= set(p)
    assert ratios_of_rows(slow, u).mean() == pytest.approx((weight * p).sum(), abs=0.01)


class Shared:
    """One uniform number decides a row's ratio and whether it is kept."""

    def kept(self, p: np.ndarray, ratio_uniform: np.ndarray, keep_uniform: np.ndarray) -> np.ndarray:
        return ratio_uniform < p


def test_a_rule_for_keeping_rows() -> None:
    ratio = Uniform(0.4, 0.8)
    rows = kept_rows(100, ratio, Shared())
    edge = 0.4 / 0.6  # u < 0.4 + 0.4u
    assert rows.count == pytest.approx(100 * edge, abs=0.3)
    assert (rows.p * rows.weight).sum() == pytest.approx(0.4 + 0.4 * edge / 2, abs=1e-3)
    cov = uniform_spectrum(300, 1)
    beta = cov.eigenvectors(np.array([0, 150]))
    measured = simulate(cov, beta, 100, [ratio], noise=0.1, repetitions=60, design="fresh", keep=Shared())
    expected = direction_risk(cov, 100, [ratio], 0.1, which=np.array([0, 150]), keep=Shared()).risk
    assert (abs(measured.risk - expected) < 4 * measured.error).all()
    ordinary = direction_risk(cov, 100, [ratio], 0.1, which=np.array([0, 150])).risk
    assert (abs(ordinary - expected) > 8 * measured.error).all()  # so that the test can tell the two apart


@pytest.mark.parametrize("design", ["fixed", "fresh"])
def test_bit_equal_for_any_number_of_workers(design: str) -> None:
    cov = latent(150, seed=1)
    beta = cov.eigenvectors(np.array([0, 3]))
    arguments = {"noise": 0.04, "repetitions": 7, "design": design, "seed": 4}
    one, two, three = (
        simulate(cov, beta, 120, [0.1, 0.5, Uniform(0.3, 0.9)], jobs=jobs, **arguments) for jobs in (1, 2, 3)
    )
    for other in (two, three):
        assert (one.risks == other.risks).all()
        assert (one.magnitudes == other.magnitudes).all()
        assert (one.kept == other.kept).all()
    assert one.risks.shape == (7, 3, 2)
    assert len(np.unique(one.risks)) == one.risks.size


def test_common_random_numbers() -> None:
    cov = uniform_spectrum(60)
    beta = cov.eigenvectors(np.array([0]))[:, 0]
    curve = simulate(cov, beta, 80, [0.3, Uniform(0.3, 0.3), 0.31, Uniform(0.29, 0.33)], repetitions=20, noise=0.1)
    assert (curve.risks[:, 0] == curve.risks[:, 1]).all()
    assert (simulate(cov, beta, 80, [0.3], repetitions=20, noise=0.1).risks[:, 0] == curve.risks[:, 0]).all()
    assert (curve.kept[:, 2] >= curve.kept[:, 0]).all()
    gap, error = curve.difference(2, 0)
    assert gap == pytest.approx(curve.risk[2] - curve.risk[0])
    assert error < 0.8 * np.hypot(curve.error[2], curve.error[0])


def test_seeds_and_designs() -> None:
    cov, beta = identity(40), uniform_direction(40)
    first, again, other = (simulate(cov, beta, 30, [0.5], repetitions=4, seed=seed) for seed in (1, 1, 2))
    assert (first.risks == again.risks).all()
    assert not (first.risks == other.risks).any()
    fresh = simulate(cov, beta, 30, [0.5], repetitions=4, seed=1, design="fresh")
    assert fresh.risks[0, 0] == first.risks[0, 0]  # the first design is the fixed one
    assert not (fresh.risks[1:] == first.risks[1:]).any()


def test_signals_share_everything() -> None:
    cov = spiked(10.0, np.ones(50))
    both = np.stack([uniform_direction(50), cov.eigenvectors(np.array([0]))[:, 0]], axis=1)
    together = simulate(cov, both, 40, [0.4, 0.8], repetitions=3, noise=0.1)
    apart = [simulate(cov, column, 40, [0.4, 0.8], repetitions=3, noise=0.1) for column in both.T.copy()]
    np.testing.assert_allclose(together.risks, np.stack([a.risks for a in apart], axis=-1), rtol=1e-9)
    np.testing.assert_allclose(together.null, [a.null for a in apart])
    np.testing.assert_allclose(together.normalised, together.risk / together.null)


@pytest.mark.parametrize("keep", ["ratio", 0.5])
def test_the_protocol_step_by_step(keep: str | float) -> None:
    cov, n, ratio, seed = latent(45), 60, Uniform(0.2, 0.8), 5
    beta = uniform_direction(45)
    got = simulate(cov, beta, n, [ratio], noise=0.3, repetitions=2, design="fresh", keep=keep, seed=seed)
    for r in range(2):
        x = cov.sample(n, np.random.Generator(bit_generator(seed, r, RandomStream.DESIGN)))
        noise = np.random.Generator(bit_generator(seed, r, RandomStream.NOISE)).standard_normal(n)
        u = Uniforms.draw(n, 45, seed, r)
        p = 0.2 + 0.6 * u.ratio
        rows = u.keep < (p if keep == "ratio" else keep)
        hidden = u.entries / 2.0**32 < p[:, None]
        y = x @ beta + np.sqrt(0.3) * noise
        b = np.linalg.pinv(np.where(hidden, 0, x)[rows]) @ y[rows]
        sigma = cov.matrix()
        assert got.kept[r, 0] == rows.sum()
        assert got.risks[r, 0] == pytest.approx((b - beta) @ sigma @ (b - beta), rel=1e-6)
        assert got.magnitudes[r, 0] == pytest.approx(b @ sigma @ b, rel=1e-6)


@pytest.mark.parametrize("n", [160, 1000])
def test_theorem_1(n: int) -> None:
    d, noise, p = 400, 0.04, np.array([0.2, 0.7])
    gamma = d / n
    got = simulate(identity(d), uniform_direction(d), n, p, noise=noise, repetitions=60, design="fresh", jobs=2)
    theory = isotropic_risk(p, gamma, noise).risk
    assert (abs(got.risk - theory) < 3 * got.error + 0.01 * theory).all()


def test_ratio_zero_is_the_null_risk() -> None:
    cov, beta = uniform_spectrum(20), uniform_direction(20)
    got = simulate(cov, beta, 30, [0.0, 0.5], noise=0.1, repetitions=2)
    np.testing.assert_allclose(got.risks[:, 0], got.null)
    assert got.normalised[0] == pytest.approx(1.0)
    assert not got.kept[:, 0].any()
    assert not got.magnitudes[:, 0].any()
    kept = simulate(cov, beta, 30, [0.0], keep=1.0, repetitions=2)  # all rows, nothing hidden, no noise: β itself
    assert (kept.kept == 30).all()
    np.testing.assert_allclose(kept.risks, 0, atol=1e-12)


def test_one_repetition_has_no_error() -> None:
    one = simulate(identity(5), np.ones(5), 10, [0.5], repetitions=1)
    assert np.isnan(one.error).all()


def test_an_interrupt_ends_it() -> None:
    class Stop:
        def kept(self, p: np.ndarray, ratio_uniform: np.ndarray, keep_uniform: np.ndarray) -> np.ndarray:
            if p.ndim == 1:  # in a repetition
                raise KeyboardInterrupt
            return p > keep_uniform

    with pytest.raises(KeyboardInterrupt):
        simulate(identity(5), np.ones(5), 10, [0.5], repetitions=50, keep=Stop())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": np.ones(4)}, "beta must have length 5, the number of features"),
        ({"beta": np.ones((5, 1, 1))}, "beta must have length 5"),
        ({"beta": np.array([1, 1, 1, 1, np.nan])}, "beta contains a number that is not finite"),
        ({"n": 1}, "n must be at least 2"),
        ({"ratios": [0.5, 1.0]}, "ratio must be at least 0 and below 1, not 1"),
        ({"ratios": [-0.1]}, "ratio must be at least 0"),
        ({"ratios": [float("nan")]}, "ratio must be at least 0"),
        ({"ratios": []}, "ratios must contain at least one"),
        ({"ratios": 0.5}, "ratios must be several, as a list, not 0.5"),
        ({"ratios": ["half"]}, "ratio must be a number or an object with nodes"),
        ({"ratios": [0.05]}, r"too few kept rows: n·p = 0\.5"),
        ({"noise": -0.1}, "noise must be"),
        ({"noise": float("nan")}, "noise must be"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"repetitions": 0}, "repetitions must be 1 or more"),
        ({"jobs": 0}, "jobs must be 1 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"keep": 0.0}, "keep must be"),
        ({"keep": 1.5}, "keep must be"),
        ({"design": "new"}, "design must be 'fixed' or 'fresh'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(change: dict, message: str) -> None:
    arguments = {"cov": identity(5), "beta": np.ones(5), "n": 10, "ratios": [0.5], **change}
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)


def test_normalised_needs_a_signal() -> None:
    with pytest.raises(ValueError, match="null risk is zero"):
        simulate(identity(5), np.zeros(5), 10, [0.5], repetitions=2).normalised  # noqa: B018


def test_quantiles_must_be_ratios() -> None:
    @dataclass(frozen=True)
    class Off(TwoPoints):
        def quantile(self, u: np.ndarray) -> np.ndarray:
            return u + 0.5

    with pytest.raises(ValueError, match="quantile"):
        ratios_of_rows(Off(), np.array([0.1, 0.9]))
