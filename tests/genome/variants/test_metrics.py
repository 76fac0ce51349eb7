"""Metrics against scikit-learn and SciPy; intervals over blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

from r2mae.genome.variants.labelled import MOST_FALSE, correlation, ranking, with_intervals


@given(seed=st.integers(0, 10_000), count=st.integers(4, 3000), levels=st.sampled_from([2, 10, 10**6]))
def test_areas_are_those_of_scikit_learn(seed: int, count: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.random(count) < 0.4
    labels[:2] = [True, False]
    scores = rng.integers(0, levels, count) + levels * 0.3 * labels
    weights = rng.integers(0, 4, count).astype(float)
    weights[:2] = 1
    measure = ranking(labels, scores)
    for given_weights in (np.ones(count), weights):
        found = measure(given_weights)
        assert found["auroc"] == pytest.approx(roc_auc_score(labels, scores, sample_weight=given_weights))
        assert found["auprc"] == pytest.approx(average_precision_score(labels, scores, sample_weight=given_weights))
        partial = roc_auc_score(labels, scores, sample_weight=given_weights, max_fpr=MOST_FALSE)
        assert found["partial_auroc"] == pytest.approx(partial)


@given(seed=st.integers(0, 10_000), count=st.integers(3, 300), levels=st.sampled_from([3, 10**6]))
def test_correlation_is_that_of_scipy_and_weights_are_copies(seed: int, count: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, levels, count) * 1.0, rng.normal(size=count).round(1)
    labels[:3], scores[:3] = [0, 1, 2], [3, 4, 5]
    copies = rng.integers(0, 3, count)
    copies[:3] = 1
    measure = correlation(labels, scores)
    for weights in (np.ones(count, int), copies):
        wanted = spearmanr(np.repeat(labels, weights), np.repeat(scores, weights))[0]
        assert measure(weights.astype(float))["spearman"] == pytest.approx(wanted, abs=1e-9)


def test_what_cannot_be_measured_is_no_number() -> None:
    nothing = ranking(np.ones(3, bool), np.arange(3.0))(np.ones(3))
    assert all(np.isnan(value) for value in nothing.values())
    assert np.isnan(correlation(np.ones(3), np.arange(3.0))(np.ones(3))["spearman"])


def test_an_interval_is_wider_where_neighbours_are_alike() -> None:
    """1,000 variants in 50 blocks; once the blocks are what differs, once the variants."""
    rng = np.random.default_rng(0)
    blocks = np.repeat(np.arange(50), 20)
    shared = rng.normal(size=50)[blocks]
    alike = correlation(shared, shared + rng.normal(size=50)[blocks])
    single = correlation(rng.permutation(shared), rng.normal(size=1000))
    wide, narrow = (with_intervals(measure, blocks) for measure in (alike, single))
    for found in (wide, narrow):
        assert found["spearman_blocks_low"] < found["spearman"] < found["spearman_blocks_high"]
    assert _width(wide) > 2 * _width(narrow)
    assert 0.06 < _width(narrow) < 0.25  # about 4 / sqrt(1000)
    assert with_intervals(alike, blocks) == wide
    assert list(with_intervals(alike, np.zeros(1000, int))) == ["spearman"]


def _width(found: dict[str, float]) -> float:
    return found["spearman_blocks_high"] - found["spearman_blocks_low"]
