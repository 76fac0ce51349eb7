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
