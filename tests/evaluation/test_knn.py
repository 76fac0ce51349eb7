"""Votes of nearest neighbours: against similarities and votes by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from r2mae.errors import UserError
from r2mae.evaluation.knn import knn_predict


def sample(count: int = 300, width: int = 6, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    return (rng.normal(size=(count, width)) + 1.5 * np.eye(classes, width)[labels]).astype(np.float32), labels


def test_votes_are_those_of_all_similarities() -> None:
    x, y = sample()
    unit = x.astype(np.float64) / np.linalg.norm(x, axis=1, keepdims=True)
    similarity = unit[200:] @ unit[:200].T
    nearest = np.argsort(-similarity, axis=1)[:, :20]
    weights = np.exp(np.take_along_axis(similarity, nearest, axis=1) / 0.07)
    votes = np.stack([(weights * (y[nearest] == label)).sum(axis=1) for label in range(4)], axis=1)
    predicted = knn_predict(torch.from_numpy(x[:200]), y[:200], x[200:])
    assert predicted.dtype == np.int64 and np.array_equal(predicted, votes.argmax(axis=1))


def test_few_samples_and_rows_of_zeros() -> None:
    x, y = sample(6)
    assert set(knn_predict(x, np.array([0, 1, 1, 1, 2, 2]), np.zeros_like(x))) == {1}
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
