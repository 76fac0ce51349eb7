"""Scores of single items: shares of a mean, fingerprints, and the file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.evaluation import items as module
from r2mae.evaluation.items import ItemRecorder, ItemScores, item_shares
from r2mae.masking.keys import Key
from r2mae.training.task import Batches
from r2mae.training.validation import RecordedBatches

KEY = Key.root(0)


class Rows(Batches):
    """Rows of an array as batches."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: np.ndarray, key: Key) -> torch.Tensor:
        return torch.from_numpy(self.values[indices])


def item_scores(values: np.ndarray, batch: int = 4, times: int = 1, labels: object = None) -> ItemScores:
    items = ItemRecorder()
    rows = RecordedBatches(Rows(values), items)
    assert len(rows) == len(values)
    if labels is not None:
        items.identify("labels", np.asarray(labels))
    for _ in range(times):
        for first in range(0, len(values), batch):
            rows.batch(np.arange(first, min(first + batch, len(values))), KEY)
    items.add("error", np.arange(len(values), dtype=np.float64))
    found = items.item_scores()
    assert found is not None
    return found


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 99))
def test_shares_have_the_mean_of_the_scores(ratios: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums, hidden = rng.gamma(1.0, size=(ratios, count)), rng.integers(1, 9, (ratios, count))
    means = sums.sum(1) / hidden.sum(1)
    found = item_shares(sums, means)
    assert found.mean() == pytest.approx(means.mean())
    by_hand = (sums / hidden.mean(1, keepdims=True)).mean(0)  # losses over the hidden entries of an average item
    np.testing.assert_allclose(found, by_hand)


def test_a_perfect_ratio_has_no_shares() -> None:
    np.testing.assert_array_equal(item_shares(np.array([[0.0, 0.0], [1.0, 3.0]]), [0.0, 2.0]), [0.5, 1.5])


def test_the_same_items_have_one_fingerprint_and_others_another() -> None:
    values = np.random.default_rng(0).random((10, 3), dtype=np.float32)
    first = item_scores(values)
    assert (
        item_scores(values.copy(), times=3).fingerprint == first.fingerprint
    )  # read again, as by several draws of masks
    changed = values.copy()
    changed[9, 2] += 1
    others = [
        item_scores(changed),
        item_scores(values[::-1].copy()),
        item_scores(values[:9]),
        item_scores(values, labels=np.arange(10)),
    ]
    assert len({one.fingerprint for one in [first, *others]}) == 5


def test_a_batch_may_be_a_mapping() -> None:
    found = set()
    for name in ("indices", "values"):
        items = ItemRecorder()
        items.identify("rows", {name: torch.arange(3)})
        items.add("error", np.ones(3))
        one = items.item_scores()
        assert one is not None
        found.add(one.fingerprint)
    assert len(found) == 2


def test_a_prefix_changes_only_names() -> None:
    items = ItemRecorder()
    items.add("error", np.ones(3))
    items.prefix = "as_trained_"
    items.add("error", np.zeros(3))
    found = items.item_scores()
    assert found is not None
    assert {name: float(one[0]) for name, one in found.scores.items()} == {"error": 1.0, "as_trained_error": 0.0}
    with pytest.raises(ValueError, match="4 items"):
        items.add("error", np.ones(4))


def test_scores_that_are_not_finite_are_not_recorded() -> None:
    items = ItemRecorder()
    items.add("error", np.array([1.0, np.nan]))
    assert items.item_scores() is None


def test_the_file_is_read_only_for_the_same_measurement(tmp_path: Path) -> None:
    path, found = tmp_path / "items.safetensors", item_scores(np.zeros((10, 2), np.float32))
    found.write(path, {"bn_statistics": "yes", "labels": ("a",)})
    again = ItemScores.read(path, {"labels": ["a"], "bn_statistics": "yes"})
    assert again is not None and (again.fingerprint, again.count) == (found.fingerprint, 10)
    np.testing.assert_array_equal(again.scores["error"], found.scores["error"])
    assert ItemScores.read(path, {"bn_statistics": "no"}) is None
    assert ItemScores.read(tmp_path / "none.safetensors", {}) is None
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("damage", [b"", b"\x80\x04garbage", b"\xff" * 64])
def test_a_damaged_file_is_read_as_none(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "items.safetensors"
    path.write_bytes(damage)
    assert ItemScores.read(path, {}) is None


def test_an_untrusted_file_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "items.safetensors"
    for total, values in ((3, np.ones(2)), (2, np.array([1.0, np.inf])), (0, np.ones(0))):
        ItemScores("x", total, {"error": values.astype(np.float32)}).write(path, {})
        assert ItemScores.read(path, {}) is None
    ItemScores("x", 2, {"error": np.ones(2, np.float32)}).write(path, {})
    assert ItemScores.read(path, {}) is not None
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 8)
    assert ItemScores.read(path, {}) is None
