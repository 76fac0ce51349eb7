"""Batches of windows: apart from strands, they are the store's; strands hang on the key and row alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, Intervals, WindowBatches, WindowStarts, add_track, window_starts
from r2mae.genome.store.tokens import reverse_complement
from r2mae.masking.keys import Key
from r2mae.training.task import Batches, count_samples

KEY = Key.root(0).fold("batch", 5)


@pytest.fixture
def starts(store: AlignmentStore) -> WindowStarts:
    return window_starts(store, Intervals.whole(store.layout), 8, 3, most_unknown=1.0)


@pytest.fixture
def weighted(store: AlignmentStore, tmp_path: Path) -> AlignmentStore:
    rows = [f"{name}\t{place}\t{place + 1}\t{place}\n" for name, size in _lengths(store) for place in range(0, size, 2)]
    (tmp_path / "a.bg").write_text("".join(rows))
    add_track(store.folder, store.layout, tmp_path / "a.bg", "w")
    return store


def _lengths(store: AlignmentStore) -> list[tuple[str, int]]:
    return list(zip(store.contigs, store.layout.lengths, strict=True))


def test_windows_as_they_are(store: AlignmentStore, starts: WindowStarts) -> None:
    batches = WindowBatches(store, starts, reverse=0)
    assert isinstance(batches, Batches)
    indices = [5, 0, len(batches) - 1]
    batch = batches.batch(indices, KEY)
    tokens, soft = store.soft_windows(*starts.at(indices), 8)
    assert count_samples(batch) == 3
    assert (batch["target"].numpy() == tokens[:, :, 0]).all()
    assert (batch["aligned"].numpy() == tokens[:, :, 1:]).all()
    assert (batch["soft"].numpy() == soft).all()
    assert batch["weights"].dtype == torch.float32
    assert (batch["weights"] == 1).all()


def test_strands_hang_on_key_and_row(weighted: AlignmentStore, starts: WindowStarts) -> None:
    batches = WindowBatches(weighted, starts, weights="w", missing=0.5)
    plain = WindowBatches(weighted, starts, weights="w", missing=0.5, reverse=0)
    indices = np.arange(min(24, len(batches)))
    whole = batches.batch(indices, KEY)
    forward = plain.batch(indices, KEY)
    tokens, _ = weighted.soft_windows(*starts.at(indices), 8)
    turned = []
    for row in range(len(indices)):
        shown = np.concatenate([whole["target"][row, :, None], whole["aligned"][row]], axis=1)
        other = reverse_complement(tokens[row : row + 1])[0]
        is_turned = not torch.equal(whole["weights"][row], forward["weights"][row])
        assert (shown == (other if is_turned else tokens[row])).all()
        for name in ("soft", "weights"):
            assert torch.equal(whole[name][row], forward[name][row].flip(0) if is_turned else forward[name][row])
        turned.append(is_turned)
    assert any(turned)
    assert not all(turned)
    part = batches.batch(indices[10:], KEY.rows(10))
    for name in ("target", "aligned", "soft", "weights"):
        assert torch.equal(part[name], whole[name][10:])
    assert not torch.equal(batches.batch(indices, KEY.fold(1))["weights"], whole["weights"])


def test_missing_weights(weighted: AlignmentStore, starts: WindowStarts) -> None:
    weights = WindowBatches(weighted, starts, weights="w", missing=0.25, reverse=0).batch([0], KEY)["weights"]
    assert weights.tolist() == [[0, 0.25, 2, 0.25, 4, 0.25, 6, 0.25]]


def test_wrong_options(store: AlignmentStore, starts: WindowStarts) -> None:
    with pytest.raises(UserError, match="must be from 0 to 1"):
        WindowBatches(store, starts, reverse=2)
    with pytest.raises(UserError, match="has no tracks"):
        WindowBatches(store, starts, weights="w")
