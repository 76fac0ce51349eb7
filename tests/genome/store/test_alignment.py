"""Windows are the positions that they name, at edges too; and a changed byte is found."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, export_zarr
from r2mae.genome.store import alignment
from r2mae.genome.store.tokens import UNKNOWN


def expected(store: AlignmentStore, contig: int, start: int, length: int) -> np.ndarray:
    """A window, position by position."""
    tokens = store.tokens(contig)
    missing = np.full(len(store.species), UNKNOWN, np.uint8)
    rows = [tokens[place] if 0 <= place < len(tokens) else missing for place in range(start, start + length)]
    return np.stack(rows)


@given(
    places=st.lists(st.tuples(st.integers(0, 1), st.integers(-40, 130)), max_size=12),
    length=st.integers(1, 150),
    small=st.sampled_from([0, 1 << 30]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_windows_anywhere(store: AlignmentStore, places: list[tuple[int, int]], length: int, small: int) -> None:
    with patch.object(alignment, "_SMALL", small):
        opened = AlignmentStore(store.folder)
    contigs, starts = (np.array([place[n] for place in places], np.int64) for n in (0, 1))
    tokens, soft = opened.soft_windows(contigs, starts, length)
    assert tokens.shape == (len(places), length, len(store.species))
    assert (tokens == opened.windows(contigs, starts, length)).all()
    assert (tokens[:, :, 0] == opened.reference_windows(contigs, starts, length)).all()
    for (contig, start), window, mask in zip(places, tokens, soft, strict=True):
        whole = expected(store, contig, start, length)
        assert (mask == (whole[:, 0] >= 0x80)).all()
        assert (window == whole & 0x7F).all()


def test_contigs_that_are_not_there(store: AlignmentStore) -> None:
    with pytest.raises(IndexError):
        store.windows(np.array([2]), np.array([0]), 5)
    with pytest.raises(ValueError, match="1 position or more"):
        store.windows(np.array([0]), np.array([0]), 0)
    with pytest.raises(IndexError, match="not -1"):
        store.tokens(-1)


def test_a_store_travels_as_a_path(store: AlignmentStore) -> None:
    data = pickle.dumps(store)
    assert len(data) < 500
    other = pickle.loads(data)
    assert other.fingerprint == store.fingerprint
    assert (other.tokens(1) == store.tokens(1)).all()


def flip(path: Path, place: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def all_reads(store: AlignmentStore) -> list[Callable[[], object]]:
    first, start = np.array([0]), np.array([0])
    return [
        lambda: store.windows(first, start, 5),
        lambda: store.soft_windows(first, start, 5),
        lambda: store.reference_windows(first, start, 5),
    ]


@pytest.mark.parametrize("name", ["contigs/0.npy", "reference.npy"])
def test_a_flipped_byte_is_found(store: AlignmentStore, name: str) -> None:
    flip(store.folder / name, -1)
    opened = AlignmentStore(store.folder)  # sizes are right
    with pytest.raises(UserError, match=f"is damaged \\({name} has changed\\)"):
        opened.verify()
    for read in all_reads(opened)[2:] if name == "reference.npy" else all_reads(opened)[:2]:
        with pytest.raises(UserError, match=f"{name} has changed"):
            read()
    with pytest.raises(UserError, match=f"{name} has changed"):
        export_zarr(opened, store.folder.with_name("out.zarr"))


@pytest.mark.parametrize("bit", [8, 64])
def test_no_window_has_a_value_that_is_no_letter(
    store: AlignmentStore, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    """Of a store too large to compare all of it with its checksums."""
    monkeypatch.setattr(alignment, "_SMALL", 0)
    flip(store.folder / "contigs/0.npy", 128, bit)
    flip(store.folder / "reference.npy", 128, bit)
    opened = AlignmentStore(store.folder)
    for read in all_reads(opened):
        with pytest.raises(UserError, match="it holds values that are no letters"):
            read()
    assert opened.windows(np.array([0]), np.array([1]), 5).max() <= UNKNOWN


def test_files_of_another_size_or_shape(store: AlignmentStore) -> None:
    path = store.folder / "contigs" / "1.npy"
    data, whole = path.read_bytes(), store.tokens(1).copy()
    meta = store.folder / "meta.json"
    said = json.loads(meta.read_text())

    def refused(match: str, content: bytes, *, resized: bool = True) -> None:
        path.write_bytes(content)
        files = {**said["files"], "contigs/1.npy": [len(content), said["files"]["contigs/1.npy"][1]]}
        meta.write_text(json.dumps({**said, "files": files} if resized else said))
        with pytest.raises(UserError, match=match) as caught:
            AlignmentStore(store.folder).tokens(1)
        assert "\n" not in str(caught.value)

    refused(r"contigs/1\.npy is missing, or has not .* bytes", data[:-1], resized=False)
    refused(r"contigs/1\.npy cannot be read", data[:-1])
    refused(r"contigs/1\.npy cannot be read", b"")
    refused(r"contigs/1\.npy cannot be read", b"PK\3\4" + data[4:])
    refused(r"contigs/1\.npy is uint8 of shape \(7, 2\), not uint8 of", npy(np.zeros((7, 2), np.uint8)))
    refused(r"contigs/1\.npy is int64 of shape", npy(whole.astype(np.int64)))
    refused("is uint8 of shape", npy(np.asfortranarray(whole)))
    pickled = np.array([{}], object)
    refused(r"contigs/1\.npy cannot be read", npy(pickled, allow_pickle=True))
    path.unlink()
    with pytest.raises(UserError, match=r"contigs/1\.npy is missing"):
        AlignmentStore(store.folder)


def npy(array: np.ndarray, **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_other_damage(store: AlignmentStore) -> None:
    meta = json.loads((store.folder / "meta.json").read_text())

    def told(match: str, **changes: object) -> None:
        (store.folder / "meta.json").write_text(json.dumps({**meta, **changes}))
        with pytest.raises(UserError, match=match):
            AlignmentStore(store.folder)

    told("the store is not of version 2, which this r2mae reads: delete the folder, and build it again", format=1)
    told("meta.json has wrong entries", files={"contigs/0.npy": meta["files"]["contigs/0.npy"]})
    told("meta.json has wrong entries", files={**meta["files"], "../x": [1, ""]})
    told("meta.json has wrong entries", lengths="many")
    told("meta.json has wrong entries", lengths=[2**70] * len(meta["lengths"]))
    told("meta.json has wrong entries", species=[*meta["species"][1:], meta["species"][1]])
    for text in ("{", '{"format": 2}', None):
        (store.folder / "meta.json").write_text(text) if text else (store.folder / "meta.json").unlink()
        with pytest.raises(UserError, match="is no alignment store"):
            AlignmentStore(store.folder)


def test_more_contigs_than_a_process_may_map(store: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MOST_MAPPED", 1)
    opened = AlignmentStore(store.folder)
    both = opened.windows(np.array([0, 1, 0]), np.array([0, 0, 0]), 5)
    assert (both[0] == both[2]).all()
    assert opened.mapped.cache_info().currsize == 1
