"""Counts on disk: the same as in memory, in every layout, in every process; and damaged files."""

import multiprocessing
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch.utils.data import DataLoader

from r2mae.cells import stored
from r2mae.cells.batches import CellBatches
from r2mae.cells.counts import Counts, MemoryCounts
from r2mae.cells.stored import StoredCounts, open_store, read_copy, write_copy
from r2mae.cells.table import CellTable
from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.training.loader import KeyedBatches
from r2mae.training.order import Share

_DENSE = np.random.default_rng(0).poisson(0.1, (200, 50)).astype(np.float32)
_DENSE[17:20] = 0
MATRIX = csr_matrix(_DENSE)

LAYOUTS = {
    "contiguous": {},
    "chunks": {"chunks": (64,)},
    "packed": {"chunks": (64,), "compression": "gzip"},
    "shuffled": {"chunks": (64,), "shuffle": True},
}


def write_h5(path: Path, kind: str = "float32", **layout: object) -> Path:
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["shape"], group.attrs["encoding-type"] = MATRIX.shape, "csr_matrix"
        group.create_dataset("data", data=MATRIX.data.astype(kind), **layout)
        group.create_dataset("indices", data=MATRIX.indices, **layout)
        group.create_dataset("indptr", data=MATRIX.indptr)
    return path


@pytest.fixture(scope="module", params=[*LAYOUTS, "zarr"])
def counts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoredCounts:
    folder = tmp_path_factory.mktemp("stored")
    if request.param != "zarr":
        return StoredCounts(write_h5(folder / "x.h5ad", **LAYOUTS[request.param]))
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "x.zarr", mode="w").create_group("X")
    group.attrs["shape"] = list(MATRIX.shape)
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(MATRIX, name), chunks=(64,))
    return StoredCounts(folder / "x.zarr")


@given(rows=st.lists(st.integers(0, 199), max_size=30))
def test_rows_are_those_in_memory(counts: StoredCounts, rows: list[int]) -> None:
    wanted = np.array(rows, dtype=np.int64)
    np.testing.assert_array_equal(counts.rows(wanted).toarray(), MATRIX[wanted].toarray())


def test_all_rows_and_copies_in_workers(counts: StoredCounts) -> None:
    assert isinstance(counts, Counts)
    np.testing.assert_array_equal(counts.rows(np.arange(200)).toarray(), MATRIX.toarray())
    copied = pickle.loads(pickle.dumps(counts))  # with its file open
    np.testing.assert_array_equal(copied.rows(np.arange(150, 20, -3)).toarray(), MATRIX[150:20:-3].toarray())


@pytest.mark.parametrize(("layout", "direct"), [*zip(LAYOUTS, (True, True, False, False), strict=True)])
def test_rows_are_read_straight_where_nothing_is_packed(tmp_path: Path, layout: str, direct: bool) -> None:
    assert StoredCounts(write_h5(tmp_path / "x.h5ad", **LAYOUTS[layout])).direct is direct


@pytest.mark.parametrize("kind", ["int32", "uint16", "float64", ">f4", ">i8"])
def test_types_are_kept(tmp_path: Path, kind: str) -> None:
    found = StoredCounts(write_h5(tmp_path / "x.h5ad", kind)).rows(np.array([3, 1]))
    np.testing.assert_array_equal(found.toarray(), MATRIX[[3, 1]].toarray())
    assert found.dtype.kind == np.dtype(kind).kind


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="workers get pickled counts here")
def test_workers_read_at_the_same_time(counts: StoredCounts) -> None:
    if counts.path.is_dir():
        pytest.skip("zarr has threads, and they do not survive a fork")
    counts.rows(np.array([0]))  # opened before the fork
    table = CellTable("x", counts, tuple("abc"), pd.DataFrame(index=range(200)), np.zeros(200, np.int64))
    order = np.random.default_rng(1).integers(0, 200, (40, 16))
    loader = DataLoader(
        KeyedBatches(CellBatches(table), Key.root(0)),
        batch_sampler=[Share(rows, 0, 0) for rows in order],
        collate_fn=_same,
        num_workers=2,
        multiprocessing_context="fork",
    )
    for rows, batch in zip(order, loader, strict=True):
        parts = (batch[name].numpy() for name in ("values", "indices", "indptr"))
        np.testing.assert_array_equal(csr_matrix(tuple(parts), shape=(16, 50)).toarray(), MATRIX[rows].toarray())


def _same(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return batch


@pytest.mark.parametrize("least", [0, 5])
def test_a_copy_holds_the_cells_with_enough_genes(tmp_path: Path, least: int) -> None:
    stored = MATRIX.copy()
    stored.data[::7] = 0
    made, kept = write_copy(MemoryCounts(stored), tmp_path / "new" / "copy.h5", least)
    dense = stored.toarray()
    np.testing.assert_array_equal(kept, np.flatnonzero((dense > 0).sum(axis=1) >= least))
    assert made.direct
    assert made.entries == (dense[kept] > 0).sum()
    np.testing.assert_array_equal(made.rows(np.arange(len(kept))).toarray(), dense[kept])
    again, kept_again = read_copy(tmp_path / "new" / "copy.h5")
    np.testing.assert_array_equal(kept_again, kept)
    assert again.shape == made.shape
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["copy.h5"]


def test_a_copy_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written .*point R2MAE_DATA at a folder with room"):
        write_copy(MemoryCounts(MATRIX), tmp_path / "file" / "copy.h5")


@pytest.mark.parametrize("entries", [0, MATRIX.nnz])
def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=(1 << 26) + 8 * MATRIX.nnz - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"copy\.h5: cannot be written \(No space left on device\): point R2MAE_DATA"):
        write_copy(MemoryCounts(MATRIX), tmp_path / "copy.h5", entries=entries)
    assert not list(tmp_path.iterdir())


def test_what_h5py_says_of_a_write_error_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> object:
        raise RuntimeError("Can't close dataset (file write failed: time = Sat\n, filename = x)")

    monkeypatch.setattr(stored, "chunks", failing)
    with pytest.raises(UserError, match=r"copy\.h5: cannot be written \(Can't close dataset .* filename = x\)") as told:
        write_copy(MemoryCounts(MATRIX), tmp_path / "copy.h5")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("break_it", ["indptr", "length", "indices", "missing", "order"])
def test_damaged_matrices_are_told(tmp_path: Path, break_it: str) -> None:
    path = write_h5(tmp_path / "x.h5ad")
    with h5py.File(path, "r+") as file:
        group = file["X"]
        if break_it == "indptr":
            group["indptr"][-1] += 5
        elif break_it == "length":
            group.attrs["shape"] = (300, 50)
        elif break_it == "indices":
            group["indices"][5] = 50
        elif break_it == "missing":
            del group["data"]
        else:
            group["indptr"][3] = 900
    with pytest.raises(UserError, match=r"x\.h5ad: the matrix X is damaged .*: export or fetch it again"):
        StoredCounts(path).rows(np.arange(200))


def test_packed_bytes_that_are_broken(tmp_path: Path) -> None:
    path = write_h5(tmp_path / "x.h5ad", **LAYOUTS["packed"])
    counts = StoredCounts(path)
    with h5py.File(path) as file:
        place = file["X/data"].id.get_chunk_info(3).byte_offset
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 40)
    with pytest.raises(UserError, match="the matrix X is damaged"):
        counts.rows(np.arange(200))


def test_a_file_that_was_cut_after_it_was_opened(tmp_path: Path) -> None:
    path = write_h5(tmp_path / "x.h5ad")
    counts = StoredCounts(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UserError, match="ends too early"):
        counts.rows(np.arange(200))


def test_stores_that_cannot_be_opened(tmp_path: Path, make: Callable[..., object], write: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="does not exist"):
        open_store(tmp_path / "nothing.h5ad")
    (tmp_path / "text.h5ad").write_text("not HDF5")
    with pytest.raises(UserError, match=r"text\.h5ad is not a readable \.h5ad or zarr file"):
        open_store(tmp_path / "text.h5ad")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder is not a readable"):
        open_store(tmp_path / "folder")
