"""Windows are the positions that they name, at edges too; and a changed byte is found."""

import json
import pickle
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, export_zarr, reverse_complement
from r2mae.genome.store import alignment
from r2mae.genome.store.tokens import UNKNOWN


def expected(store: AlignmentStore, contig: int, start: int, length: int) -> np.ndarray:
    """A window, position by position."""
    offset, size = int(store.layout.offsets[contig]), store.layout.lengths[contig]
    missing = np.full(len(store.species), UNKNOWN, np.uint8)
    rows = [store.tokens[offset + place] if 0 <= place < size else missing for place in range(start, start + length)]
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


def test_a_window_by_name(store: AlignmentStore) -> None:
    name = store.contigs[1]
    window = store.window(name, -3, 20)
    assert (window == expected(store, 1, -3, 20) & 0x7F).all()
    assert (store.window(name, -3, 20, strand="-") == reverse_complement(window[None])[0]).all()
    with pytest.raises(UserError, match="unknown contig 'chr9'"):
        store.window("chr9", 0, 5)


def test_contigs_that_are_not_there(store: AlignmentStore) -> None:
    with pytest.raises(IndexError):
        store.windows(np.array([2]), np.array([0]), 5)
    with pytest.raises(ValueError, match="1 position or more"):
        store.windows(np.array([0]), np.array([0]), 0)


def test_windows_are_new_memory(store: AlignmentStore) -> None:
    first = store.window(store.contigs[0], 0, 10)
    kept = first.copy()
    first[:] = 77
    assert (store.window(store.contigs[0], 0, 10) == kept).all()


def test_a_file_that_becomes_shorter(store: AlignmentStore) -> None:
    with (store.folder / "alignment.bin").open("r+b") as file:
        file.truncate(50)
    with pytest.raises(UserError, match="became shorter"):
        store.window(store.contigs[0], 0, store.layout.lengths[0])


def test_a_store_travels_as_a_path(store: AlignmentStore) -> None:
    data = pickle.dumps(store)
    assert len(data) < 500
    other = pickle.loads(data)
    assert other.fingerprint == store.fingerprint
    assert (other.tokens == store.tokens).all()


def flip(path: Path, place: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["alignment.bin", "reference.bin"])
def test_a_flipped_byte_is_found(store: AlignmentStore, name: str) -> None:
    flip(store.folder / name, 40)
    opened = AlignmentStore(store.folder)  # sizes are right
    with pytest.raises(UserError, match=f"is damaged \\({name} has changed between .*:1 to "):
        opened.verify()
    first, start = np.array([0]), np.array([0])
    for read in (opened.windows, opened.soft_windows, opened.reference_windows):
        with pytest.raises(UserError, match=f"{name} has changed"):
            read(first, start, 5)
    with pytest.raises(UserError, match=f"{name} has changed"):
        export_zarr(opened, store.folder.with_name("out.zarr"))


@pytest.mark.parametrize("bit", [8, 64])
def test_no_window_has_a_value_that_is_no_letter(
    store: AlignmentStore, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    """Of a store too large to compare all of it with its checksums."""
    monkeypatch.setattr(alignment, "_SMALL", 0)
    flip(store.folder / "alignment.bin", 0, bit)
    flip(store.folder / "reference.bin", 0, bit)
    opened = AlignmentStore(store.folder)
    first, start = np.array([0]), np.array([0])
    told = "alignment.bin holds values that are no letters"
    for read in (opened.windows, opened.soft_windows):
        with pytest.raises(UserError, match=told):
            read(first, start, 5)
    with pytest.raises(UserError, match=told.replace("alignment", "reference")):
        opened.reference_windows(first, start, 5)
    assert opened.windows(first, start + 1, 5).max() <= UNKNOWN


def test_lazily_only_what_is_read_is_verified(tmp_path: Path, small_chunks: None) -> None:
    from r2mae.genome import build_store

    (tmp_path / "a.fa").write_text(">ref\n" + "ACGT" * 20 + "\n>x\n" + "A-CG" * 20 + "\n")
    store = build_store(tmp_path / "a.fa", tmp_path / "s")
    flip(store.folder / "alignment.bin", 2 * 40)
    opened = AlignmentStore(store.folder)
    opened.window("ref", 0, 32)
    opened.window("ref", 48, 40)
    with pytest.raises(UserError, match="between ref:33 to ref:48"):
        opened.window("ref", 31, 2)


def test_other_damage(store: AlignmentStore) -> None:
    meta = json.loads((store.folder / "meta.json").read_text())

    def told(match: str, **changes: object) -> None:
        (store.folder / "meta.json").write_text(json.dumps({**meta, **changes}))
        with pytest.raises(UserError, match=match):
            AlignmentStore(store.folder)

    told("the store is of version 7, and this r2mae reads version 1", format=7)
    told("meta.json has wrong entries", offsets=[0, 1, 2])
    told("meta.json has wrong entries", lengths="many")
    told("meta.json has wrong entries", lengths=[2**70] * len(meta["lengths"]))
    told("meta.json has wrong entries", species=[*meta["species"][1:], meta["species"][1]])
    told("alignment.bin has .* bytes, not", species=[*meta["species"], "another"])
    told("checksums.bin has changed", checksums="0" * 32)
    (store.folder / "meta.json").write_text("{")
    with pytest.raises(UserError, match=r"meta\.json cannot be read"):
        AlignmentStore(store.folder)
    (store.folder / "meta.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="is not that of an alignment store"):
        AlignmentStore(store.folder)
    (store.folder / "meta.json").write_text(json.dumps(meta))
    (store.folder / "reference.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"reference\.bin has 0 bytes"):
        AlignmentStore(store.folder)
    (store.folder / "reference.bin").unlink()
    with pytest.raises(UserError, match=r"reference\.bin: No such file"):
        AlignmentStore(store.folder)
    (store.folder / "meta.json").unlink()
    with pytest.raises(UserError, match="is no alignment store"):
        AlignmentStore(store.folder)


@pytest.mark.usefixtures("unchecked")
def test_words_that_mean_nothing(store: AlignmentStore) -> None:
    with pytest.raises(UserError, match="unknown strand"):
        store.window(store.contigs[0], 0, 5, strand="*")  # type: ignore[arg-type]
