from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from r2mae.errors import UserError
from r2mae.evaluation import knn
from r2mae.evaluation.knn import knn_predict


def sample(count: int = 300, width: int = 6, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    return (rng.normal(size=(count, width)) + 1.5 * np.eye(classes, width)[labels]).astype(np.float32), labels


@pytest.mark.parametrize("k", [1, 5, 20])
def test_unweighted_votes_are_those_of_scikit_learn(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "_MAX_SIMILARITIES", 1 << 10)  # many blocks
    x, y = sample()
    reference = KNeighborsClassifier(k, metric="cosine").fit(x[:200], y[:200])
    predicted = knn_predict(x[:200], y[:200], x[200:], k=k, temperature=None)
    assert np.array_equal(predicted, reference.predict(x[200:]))


def test_weighted_votes_are_those_of_scikit_learn() -> None:
    x, y = sample()
    reference = KNeighborsClassifier(20, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07))
    predicted = reference.fit(x[:200], y[:200]).predict(x[200:])
    assert np.array_equal(knn_predict(x[:200], y[:200], x[200:]), predicted)


@given(st.integers(1, 30), st.integers(1, 1 << 12))
def test_blocks_change_nothing(k: int, similarities: int) -> None:
    x, y = sample(60)
    unchanged = knn_predict(x[:40], y[:40], x[40:], k=k)
    before = knn._MAX_SIMILARITIES
    try:
        knn._MAX_SIMILARITIES = similarities
        assert np.array_equal(knn_predict(x[:40], y[:40], x[40:], k=k), unchanged)
    finally:
        knn._MAX_SIMILARITIES = before


def test_few_samples_and_a_small_temperature() -> None:
    x, y = sample(6)
    assert np.array_equal(knn_predict(x, y, torch.from_numpy(x), k=20, temperature=1e-4), y)
    assert len(knn_predict(x, y, x[:0])) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:0], y[:0]), "0 rows"),
        (lambda x, y: (x, y[:3]), "3 labels"),
        (lambda x, y: (x, y - 1), "-1"),
        (lambda x, y: (np.full_like(x, np.nan), y), "NaN"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_refused(change: Callable[..., tuple[np.ndarray, np.ndarray]], message: str) -> None:
    x, _ = sample(8)
    with pytest.raises(UserError, match=message):
        knn_predict(*change(x, np.arange(8) % 4), x)
