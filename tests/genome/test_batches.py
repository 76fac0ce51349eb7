"""Batches of windows: apart from strands, they are the store's; strands hang on the key and row alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, add_track
from r2mae.genome.batches import WindowBatches
from r2mae.genome.store.intervals import POSITION, SHIFT, Intervals, window_starts
from r2mae.genome.store.tokens import reverse_complement
from r2mae.masking.keys import Key
from r2mae.training.task import Batches, count_samples

KEY = Key.root(0).fold("batch", 5)


@pytest.fixture
def starts(store: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr("r2mae.genome.store.intervals._MOST_UNKNOWN", 1.0)
    return window_starts(store, Intervals.everywhere(store.layout), 8, 3)[0]


@pytest.fixture
def weighted(store: AlignmentStore, tmp_path: Path) -> AlignmentStore:
    rows = [f"{name}\t{place}\t{place + 1}\t{place}\n" for name, size in _lengths(store) for place in range(0, size, 2)]
    (tmp_path / "a.bg").write_text("".join(rows))
    add_track(store, tmp_path / "a.bg", "w")
    return store


def _lengths(store: AlignmentStore) -> list[tuple[str, int]]:
    return list(zip(store.contigs, store.layout.lengths, strict=True))


def test_windows_as_they_are(store: AlignmentStore, starts: np.ndarray) -> None:
    batches = WindowBatches(store, starts, 8, reverse=0)
    assert isinstance(batches, Batches)
    indices = [5, 0, len(batches) - 1]
    batch = batches.batch(indices, KEY)
    tokens, soft = store.soft_windows(starts[indices] >> SHIFT, starts[indices] & POSITION, 8)
    assert count_samples(batch) == 3
    assert (batch["target"].numpy() == tokens[:, :, 0]).all()
    assert (batch["aligned"].numpy() == tokens[:, :, 1:]).all()
    assert (batch["soft"].numpy() == soft).all()
    assert batch["weights"].dtype == torch.float32
    assert (batch["weights"] == 1).all()


def test_strands_hang_on_key_and_row(weighted: AlignmentStore, starts: np.ndarray) -> None:
    batches = WindowBatches(weighted, starts, 8, weights="w")
    plain = WindowBatches(weighted, starts, 8, weights="w", reverse=0)
    indices = np.arange(min(24, len(batches)))
    whole = batches.batch(indices, KEY)
    forward = plain.batch(indices, KEY)
    tokens, _ = weighted.soft_windows(starts[indices] >> SHIFT, starts[indices] & POSITION, 8)
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
    for name in ("target", "aligned", "soft", "weights", "neutral"):
        assert torch.equal(part[name], whole[name][10:])
    assert not torch.equal(batches.batch(indices, KEY.fold(1))["weights"], whole["weights"])


def test_missing_weights(weighted: AlignmentStore, starts: np.ndarray) -> None:
    weights = WindowBatches(weighted, starts, 8, weights="w", reverse=0).batch([0], KEY)["weights"]
    assert weights.tolist() == [[0, 0, 2, 0, 4, 0, 6, 0]]


def test_conservation_weighs_positions_as_gpn_msa_does(store: AlignmentStore, tmp_path: Path) -> None:
    """max(phyloP, 1) x (0.1 + the maximum of phastCons over 7 positions); missing values are 0."""
    name, size = _lengths(store)[0]
    rng = np.random.default_rng(0)
    values = {
        "phylop": rng.normal(0, 3, size),
        "phastcons": rng.choice([0.0, 0.02, 0.1, 0.7], size, p=(0.8, 0.1, 0.05, 0.05)),
    }
    given = {track: rng.random(size) < 0.8 for track in values}
    for track, found in values.items():
        rows = [f"{name}\t{n}\t{n + 1}\t{found[n]}\n" for n in range(size) if given[track][n]]
        (tmp_path / "a.bg").write_text("".join(rows))
        add_track(store, tmp_path / "a.bg", track)
    phylop, phastcons = (np.where(given[track], values[track], 0) for track in values)
    largest = np.array([phastcons[max(n - 3, 0) : n + 4].max() for n in range(size)])
    starts = np.arange(size - 7)
    batches = WindowBatches(store, starts, 8, reverse=0, conservation=("phylop", "phastcons"))
    batch = batches.batch([0, 11], KEY)
    for row, first in enumerate((0, 11)):
        part = slice(first, first + 8)
        expected = np.maximum(phylop[part], 1) * (0.1 + largest[part])
        np.testing.assert_allclose(batch["weights"][row], expected, rtol=2e-3)
        assert batch["neutral"][row].tolist() == (largest[part] < 0.1).tolist()
    assert batch["neutral"].any()
    turned = WindowBatches(store, starts, 8, reverse=1, conservation=("phylop", "phastcons")).batch([0, 11], KEY)
    assert torch.equal(turned["neutral"].flip(1), batch["neutral"])
    with pytest.raises(UserError, match="unknown track 'x'"):
        WindowBatches(store, starts, 8, conservation=("phylop", "x")).batch([0], KEY)
