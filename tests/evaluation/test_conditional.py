"""Mini-batches of which each sample has its own mask: the same conditional mean as one sample at a time."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.evaluation import conditional
from r2mae.evaluation.conditional import ConditionalMean, solve_rows
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.masking.keys import Key
from r2mae.masking.masks import element_mask

FEATURES, ROWS = 30, 200


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 5)) @ rng.normal(size=(5, FEATURES)) + 0.5 * rng.normal(size=(ROWS, FEATURES)) + 3


@pytest.fixture(scope="module")
def gaussian(samples: np.ndarray) -> GaussianConditionalMean:
    return GaussianConditionalMean.fit(samples)


@pytest.fixture
def module(gaussian: GaussianConditionalMean) -> ConditionalMean:
    made = ConditionalMean(FEATURES)
    made.load(gaussian)
    return made


@given(share=st.floats(0.0, 1.0), seed=st.integers(0, 99), dtype=st.sampled_from([np.float32, np.float64]))
def test_each_row_is_that_of_the_gaussian(
    samples: np.ndarray, gaussian: GaussianConditionalMean, share: float, seed: int, dtype: Any
) -> None:
    hidden = np.random.default_rng(seed).random((20, FEATURES)) < share
    spread = gaussian.variances + gaussian.noise
    matrices = ((gaussian.axes * spread) @ gaussian.axes.T, (gaussian.axes / spread) @ gaussian.axes.T)
    centred = np.where(hidden, 0, samples[:20] - gaussian.mean).astype(dtype)
    found = solve_rows(centred, hidden, *(one.astype(dtype) for one in matrices))
    assert found.dtype == dtype
    np.testing.assert_allclose(found + gaussian.mean, gaussian.fill(samples[:20], hidden), atol=1e-5)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_all_ways_of_solving_agree(
    samples: np.ndarray, gaussian: GaussianConditionalMean, module: ConditionalMean, share: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    values = torch.from_numpy(samples).float()
    hidden = element_mask((ROWS, FEATURES), share, Key.root(0))
    expected = gaussian.fill(samples, hidden.numpy())
    unread = torch.where(hidden, torch.nan, values)
    np.testing.assert_allclose(module(unread, hidden), expected, atol=1e-4)
    centred = torch.where(hidden, 0.0, values - module.mean)
    at_once = torch.where(hidden, module._by_covariance(centred, hidden) + module.mean, values)
    np.testing.assert_allclose(at_once, expected, atol=1e-4)
    monkeypatch.setattr(
        conditional, "MAX_FEATURES", FEATURES - 1
    )  # by factors: with one less than features it is the same Gaussian
    monkeypatch.setattr(conditional, "RANK", FEATURES - 1)
    monkeypatch.setattr(conditional, "_NUMBERS", 7 * FEATURES**2)
    in_parts = torch.where(hidden, module._by_covariance(centred, hidden) + module.mean, values)
    np.testing.assert_allclose(in_parts, expected, atol=1e-4)
    factors = ConditionalMean(FEATURES)
    factors.load(gaussian)
    np.testing.assert_allclose(factors(unread, hidden), expected, atol=1e-3)
    np.testing.assert_allclose(factors.deviation, module.deviation, rtol=1e-3)


def test_fewer_factors_lose_little_where_few_are_behind_the_samples(
    samples: np.ndarray, module: ConditionalMean, gaussian: GaussianConditionalMean, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional, "MAX_FEATURES", FEATURES - 1)
    monkeypatch.setattr(conditional, "RANK", 5)
    factors = ConditionalMean(FEATURES)
    factors.load(gaussian)
    values, hidden = torch.from_numpy(samples).float(), element_mask((ROWS, FEATURES), 0.5, Key.root(0))
    errors = [float((one(values, hidden) - values)[hidden].square().mean()) for one in (factors, module)]
    assert errors[0] < 1.05 * errors[1]
    assert errors[1] < 0.3 * float((module.mean - values)[hidden].square().mean())


@pytest.mark.parametrize("most", [FEATURES, FEATURES - 1])
def test_samples_of_one_direction_have_finite_means(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional, "MAX_FEATURES", most)
    monkeypatch.setattr(conditional, "RANK", FEATURES - 1)
    samples = np.random.default_rng(0).normal(size=(5000, 1)) * np.linspace(1, 2, FEATURES)
    made = ConditionalMean(FEATURES)
    made.load(GaussianConditionalMean(np.zeros(FEATURES), *np.linalg.eigh(np.cov(samples.T))[::-1], 1e-12))
    values, hidden = torch.from_numpy(samples[:50]).float(), element_mask((50, FEATURES), 0.5, Key.root(0))
    np.testing.assert_allclose(made(values, hidden), values, atol=0.02)
    if made.whole:
        np.testing.assert_allclose(made._by_covariance(torch.where(hidden, 0, values), hidden), values, atol=0.02)


def test_deviation_is_that_given_all_others(module: ConditionalMean) -> None:
    rng, covariance = np.random.default_rng(1), module.covariance.double().numpy()
    values = torch.from_numpy(rng.multivariate_normal(np.zeros(FEATURES), covariance, 4000)).float() + module.mean
    hidden = torch.zeros(values.shape, dtype=torch.bool)
    hidden[:, 3] = True
    left = (module(values, hidden) - values)[:, 3]
    assert float(left.square().mean().sqrt()) == pytest.approx(float(module.deviation[3]), rel=0.05)


def test_without_statistics_it_is_the_mean_zero() -> None:
    hidden = torch.tensor([[True, False, True]])
    torch.testing.assert_close(ConditionalMean(3)(torch.ones(1, 3), hidden), torch.tensor([[0.0, 1.0, 0.0]]))


def test_arithmetic_is_in_32_bits_under_autocast(samples: np.ndarray, module: ConditionalMean) -> None:
    values, hidden = torch.from_numpy(samples).float(), element_mask((ROWS, FEATURES), 0.5, Key.root(0))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(module(values, hidden), module(values, hidden), rtol=0, atol=0)
        found = module(values, hidden)
    assert torch.equal(found, module(values, hidden))
