"""The probe of attributes: what it learns, what its scores mean, and that a seed decides everything."""

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, roc_auc_score

from r2mae.errors import UserError
from r2mae.evaluation import attributes as module
from r2mae.evaluation.attributes import AttributeHead, fit_attributes, score_attributes


def data(rows: int = 1500, width: int = 8, attributes: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features, and attributes that are the signs of directions in them; the last one is noise."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, width)).astype(np.float32)
    directions = np.random.default_rng(7).standard_normal((width, attributes))
    y = (x @ directions > np.linspace(0, 2, attributes)).astype(np.uint8)
    y[:, -1] = random.integers(0, 2, rows)
    return x, y


def test_the_scores_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    train, truth = ((random.random((rows, 6)) < np.linspace(0.1, 0.9, 6)).astype(np.uint8) for rows in (80, 60))
    logits = random.standard_normal((60, 6)) + truth
    found = score_attributes(logits, truth, train)
    raw, scaled = [], []
    for k in range(6):
        majority = DummyClassifier(strategy="most_frequent").fit(train, train[:, k]).predict(truth)
        base = accuracy_score(truth[:, k], majority)
        raw.append(accuracy_score(truth[:, k], logits[:, k] > 0))
        scaled.append((raw[-1] - base) / (1 - base))
    assert found["attribute_accuracy_raw"] == pytest.approx(np.median(raw))
    assert found["attribute_accuracy"] == pytest.approx(np.median(scaled))
    assert found["attribute_auroc"] == pytest.approx(
        np.mean([roc_auc_score(truth[:, k], logits[:, k]) for k in range(6)])
    )


def test_perfect_is_one_and_the_majority_is_zero() -> None:
    _, truth = data(200)
    perfect = score_attributes(truth - 0.5, truth, truth)
    assert list(perfect.values()) == [1, 1, 1]
    common = np.where(truth.mean(0) > 0.5, 1.0, -1.0) * np.ones(truth.shape)
    majority = score_attributes(common, truth, truth)
    assert (majority["attribute_accuracy"], majority["attribute_auroc"]) == (0, 0.5)


def test_attributes_with_one_value_are_not_scored() -> None:
    _, truth = data(50)
    some = truth.copy()
    some[:, 0], some[:, 1] = 0, 1
    logits = np.random.default_rng(0).standard_normal(truth.shape)
    assert score_attributes(logits, some, truth) == score_attributes(logits[:, 2:], truth[:, 2:], truth[:, 2:])
    assert score_attributes(logits, truth, some) == score_attributes(logits, some, truth)
    assert score_attributes(logits, np.zeros_like(truth), truth) == {}
    assert score_attributes(logits, truth.astype(bool), truth) == score_attributes(logits, truth, truth)


@pytest.mark.slow
def test_only_learnable_attributes_are_learned() -> None:
    (x, y), (test, truth) = data(), data(800, seed=1)
    head = fit_attributes(x, y, seed=0)
    logits = head.logits(test)
    assert logits.shape == (800, 5)
    accuracy = ((logits > 0) == truth).mean(axis=0)
    assert (accuracy[:4] > 0.9).all()
    assert abs(accuracy[4] - 0.5) < 0.08
    assert score_attributes(logits, truth, y)["attribute_accuracy"] > 0.5


@pytest.mark.slow
def test_a_seed_determines_weights_order_and_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(300)
    torch.manual_seed(1)
    first = fit_attributes(x, y, hidden=32, epochs=2, batch_size=64, seed=3).logits(x)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = fit_attributes(x, y, hidden=32, epochs=2, batch_size=64, seed=3).logits(x)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, fit_attributes(x, y, hidden=32, epochs=2, batch_size=64, seed=4).logits(x))
    monkeypatch.setattr(module, "_DROPOUT", 0.1)
    assert not np.array_equal(first, fit_attributes(x, y, hidden=32, epochs=2, batch_size=64, seed=3).logits(x))


def test_the_network_is_the_papers() -> None:
    head = AttributeHead(24, 40)
    assert [tuple(value.shape) for value in head.parameters()] == [(512, 24), (512,), (40, 512), (40,)]
    x = torch.randn(3, 24)
    expected = head.heads(head.shared(x).clamp(min=0))
    torch.testing.assert_close(head(x), expected)
    torch.testing.assert_close(head(x, torch.zeros(3, 512)), head.heads.bias.expand(3, 40))
    np.testing.assert_allclose(head.logits(x, rows=2), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_dropout_keeps_the_mean() -> None:
    from r2mae.evaluation.attributes import _dropout_factors
    from r2mae.masking.keys import Key

    kept = _dropout_factors(Key.root(0), 2000, 64, torch.device("cpu"))
    assert sorted(kept.unique().tolist()) == [0, 2]
    assert float(kept.mean()) == pytest.approx(1, abs=0.02)


def test_bad_features_and_attributes_are_refused() -> None:
    x, y = data(20)
    for features, attributes, message in (
        (x[:10], y, "10 rows of features and 20"),
        (x[:0], y[:0], "0 rows"),
        (np.full_like(x, np.nan), y, "NaN"),
        (x, y + 1, "0 or 1; found 2"),
    ):
        with pytest.raises(UserError, match=message):
            fit_attributes(features, attributes)
