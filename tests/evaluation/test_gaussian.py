"""The Gaussian conditional mean against Ledoit–Wolf of scikit-learn and the textbook formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_digits

from r2mae.evaluation import gaussian
from r2mae.evaluation.gaussian import GaussianConditionalMean


def samples(rows: int = 60, features: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, features)) @ rng.normal(size=(features, features)) + rng.normal(size=features)


def textbook(mean: np.ndarray, covariance: np.ndarray, x: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    kept, filled = ~hidden, x.copy()
    weights = np.linalg.solve(covariance[np.ix_(kept, kept)], x[kept] - mean[kept])
    filled[hidden] = mean[hidden] + covariance[np.ix_(hidden, kept)] @ weights
    return filled


@given(st.integers(0, 1000), st.floats(0.05, 0.95))
def test_it_is_the_conditional_mean_of_the_shrunk_covariance(seed: int, share: float) -> None:
    x = samples(seed=seed)
    reference = LedoitWolf().fit(x)
    fitted = GaussianConditionalMean.fit(lambda: [x[:25], x[25:]])
    hidden = np.random.default_rng(seed).random((5, 12)) < share
    hidden[:, 0] = False
    expected = [
        textbook(reference.location_, reference.covariance_, row, mask) for row, mask in zip(x[:5], hidden, strict=True)
    ]
    poisoned = np.where(hidden, np.nan, x[:5])  # hidden values are not read
    np.testing.assert_allclose(fitted.fill(poisoned, hidden), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(fitted.fill(x[:5], hidden[0]), fitted.fill(x[:5], np.repeat(hidden[:1], 5, axis=0)))


def test_nothing_hidden_and_everything_hidden() -> None:
    x = samples()
    fitted = GaussianConditionalMean.fit(x)
    np.testing.assert_allclose(fitted.fill(x, np.zeros(12, bool)), x)
    np.testing.assert_allclose(fitted.fill(x, np.ones(12, bool)), np.tile(x.mean(0), (len(x), 1)))


def test_many_features_take_few_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many axes as the samples span, the low-rank formula is the textbook's; it is used above the limit."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 40)) + 0.1 * rng.normal(size=(300, 40))
    monkeypatch.setattr(gaussian, "MAX_EXACT", 20)
    monkeypatch.setattr(gaussian, "RANK", 6)
    fitted = GaussianConditionalMean.fit(x)
    assert fitted.axes.shape == (40, 6)
    np.testing.assert_allclose(fitted.axes.T @ fitted.axes, np.eye(6), atol=1e-9)
    covariance = (fitted.axes * fitted.variances) @ fitted.axes.T + fitted.noise * np.eye(40)
    assert fitted.noise == pytest.approx(0.01, rel=0.1)
    hidden = rng.random((4, 40)) < 0.5
    expected = [textbook(fitted.mean, covariance, row, mask) for row, mask in zip(x[:4], hidden, strict=True)]
    np.testing.assert_allclose(fitted.fill(x[:4], hidden), expected, rtol=1e-6, atol=1e-6)


def test_constant_features_keep_their_value() -> None:
    x = np.concatenate([samples(), np.full((60, 1), 3.0)], axis=1)
    filled = GaussianConditionalMean.fit(x).fill(x, np.arange(13) == 12)
    np.testing.assert_allclose(filled[:, 12], 3.0, atol=0.2)


def test_it_halves_the_error_of_the_mean_on_digits() -> None:
    x = load_digits().data / 16
    hidden = np.random.default_rng(0).random((300, 64)) < 0.5
    filled = GaussianConditionalMean.fit(x[300:]).fill(x[:300], hidden)
    error, trivial = ((guess - x[:300])[hidden] for guess in (filled, np.tile(x[300:].mean(0), (300, 1))))
    assert (error**2).mean() < 0.5 * (trivial**2).mean()


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="two or more samples"):
        GaussianConditionalMean.fit(np.ones((1, 3)))


def by_rows(x: np.ndarray, prior: float, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Expectation-maximisation of the textbook, row by row."""
    n, d = x.shape
    known, scale = ~np.isnan(x), float(np.nanmean((x - np.nanmean(x, axis=0)) ** 2))
    mean, cov = np.nanmean(x, axis=0), scale * np.eye(d)
    for _ in range(rounds):
        filled, spread = x.copy(), prior * scale * np.eye(d)
        for i in range(n):
            o, h = known[i], ~known[i]
            weights = np.linalg.solve(cov[np.ix_(o, o)], cov[np.ix_(o, h)])
            filled[i, h] = mean[h] + (x[i, o] - mean[o]) @ weights
            spread[np.ix_(h, h)] += cov[np.ix_(h, h)] - cov[np.ix_(h, o)] @ weights
        mean = filled.mean(axis=0)
        cov = ((filled - mean).T @ (filled - mean) + spread) / (n + prior)
    return mean, cov


@given(st.integers(0, 1000), st.floats(0.0, 0.6), st.floats(0.1, 50), st.booleans())
def test_missing_entries_by_expectation_maximisation(seed: int, share: float, prior: float, few: bool) -> None:
    x = samples(40, 6, seed)
    masks = np.random.default_rng(seed).random((4 if few else 40, 6)) < share
    x = np.where(np.resize(masks, x.shape), np.nan, x)
    if np.isnan(x).all(axis=0).any():
        return
    mean, covariance = by_rows(x, prior, 5)
    found = GaussianConditionalMean.fit_missing(x, prior=prior, max_iter=5, tolerance=0)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-8)
    unit = GaussianConditionalMean.fit_missing(x * 1e3, prior=prior, max_iter=5, tolerance=0)
    np.testing.assert_allclose(unit.covariance, covariance * 1e6, rtol=1e-6, atol=1e-3)


def test_many_features_have_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(400, 4)) @ rng.normal(size=(4, 30)) + 0.1 * rng.normal(size=(400, 30)) + 5
    hidden = rng.random(whole.shape) < 0.4
    given = np.where(hidden, np.nan, whole)
    monkeypatch.setattr(gaussian, "MAX_MISSING", 20)
    monkeypatch.setattr(gaussian, "FACTORS", 5)
    for scale in (1.0, 1e4):
        found = GaussianConditionalMean.fit_missing(given * scale)
        assert found.axes.shape == (30, 5)
        assert found.noise / scale**2 == pytest.approx(0.01, rel=0.1)
        error = (found.fill(given * scale, hidden) / scale - whole)[hidden]
        assert (error**2).mean() < 0.016, "the noise, and little more"


def test_draws_have_the_conditional_mean_and_covariance() -> None:
    x = samples(200, 5)
    found = GaussianConditionalMean.fit(x)
    hidden = np.array([True, True, False, False, False])
    many = np.repeat(x[:1], 20_000, axis=0)
    drawn = found.draw(many, hidden, 0)
    np.testing.assert_array_equal(drawn[:, ~hidden], many[:, ~hidden])
    expected = np.linalg.inv(found.precision.numpy()[:2, :2])
    np.testing.assert_allclose(drawn.mean(0), found.fill(x[:1], hidden)[0], atol=0.03 * np.sqrt(expected.max()))
    np.testing.assert_allclose(np.cov(drawn[:, hidden].T), expected, atol=0.05 * expected.max())


@pytest.mark.parametrize("bad", [np.full((3, 2), np.nan), np.array([[np.inf, 1.0], [0.0, 1.0]])])
def test_missing_entries_without_any_number_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="observed entries"):
        GaussianConditionalMean.fit_missing(bad)
