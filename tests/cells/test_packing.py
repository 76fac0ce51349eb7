"""Counts on disk: the same as in memory, in every layout and every process; copies; and damaged files."""

import multiprocessing
import pickle
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anndata
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch.utils.data import DataLoader

from r2mae.cells import table as reading
from r2mae.cells.batches import CellBatches
from r2mae.cells.counts import Counts, Stored, blocks, copied, mapped, packed
from r2mae.cells.table import load_cells, open_source
from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.training.order import KeyedBatches, Share

DENSE = np.random.default_rng(0).poisson(0.1, (200, 50)).astype(np.float32)
DENSE[17:20] = 0
DENSE[np.arange(50), np.arange(50)] += 1
MATRIX = csr_matrix(DENSE)
STORED = Stored(MATRIX.data, MATRIX.indices, MATRIX.indptr.astype(np.int64), MATRIX.shape)
GENES = tuple(f"g{i}" for i in range(50))
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks": {"chunks": (64,)},
    "packed": {"chunks": (64,), "compression": "gzip"},
    "shuffled": {"chunks": (64,), "shuffle": True},
}


class Choice(NamedTuple):
    columns: np.ndarray
    min_genes: int
    entries: int


def choice(columns: object = range(50), min_genes: int = 0) -> Choice:
    found = np.array(list(columns), dtype=np.int64)  # type: ignore[call-overload]
    return Choice(found, min_genes, int((DENSE[:, found[found >= 0]] > 0).sum()))


def write_h5(path: Path, kind: str = "float32", matrix: csr_matrix = MATRIX, **layout: Any) -> Path:
    cells, genes = matrix.shape
    adata = anndata.AnnData(csr_matrix((cells, genes), dtype=np.float32))
    adata.obs_names, adata.var_names = [f"c{i}" for i in range(cells)], [f"g{i}" for i in range(genes)]
    adata.write_h5ad(path)
    with h5py.File(path, "r+") as file:
        for name in ("data", "indices", "indptr"):
            del file[f"X/{name}"]
        file["X"].create_dataset("data", data=matrix.data.astype(kind), **layout)
        file["X"].create_dataset("indices", data=matrix.indices, **layout)
        file["X"].create_dataset("indptr", data=matrix.indptr.astype(np.int64))
    return path


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    """Fail writes beyond a size, as a disk does that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module", params=["memory", "mapped", "copy"])
def counts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    folder = tmp_path_factory.mktemp("counts")
    if request.param == "memory":
        return Counts(MATRIX)
    with pytest.MonkeyPatch.context() as patch, open_source(write_h5(folder / "x.h5ad"), None) as source:
        patch.setenv("R2MAE_CACHE", str(folder))
        assert isinstance(source.matrix, Stored)
        found = mapped(source.matrix) if request.param == "mapped" else copied(source.matrix, *choice(), folder, "X")[0]
    assert found is not None
    assert found.places is not None
    return found


@given(rows=st.lists(st.integers(0, 199), max_size=30))
def test_rows_are_those_in_memory(counts: Counts, rows: list[int]) -> None:
    wanted = np.array(rows, dtype=np.int64)
    found = counts.rows(wanted)
    np.testing.assert_array_equal(found.toarray(), DENSE[wanted])
    found.data[:] = 99  # the caller's own
    np.testing.assert_array_equal(counts.rows(wanted).toarray(), DENSE[wanted])


def test_counts_are_pickled_without_what_is_mapped(counts: Counts) -> None:
    packed_counts = pickle.dumps(counts)
    assert counts.places is None or MATRIX.data.tobytes() not in packed_counts
    again = pickle.loads(packed_counts)
    np.testing.assert_array_equal(again.rows(np.arange(150, 20, -3)).toarray(), DENSE[150:20:-3])


@pytest.mark.parametrize(("layout", "plain"), [*zip(LAYOUTS, (True, False, False, False), strict=True)])
@pytest.mark.parametrize("kind", ["float32", "int32", "uint16", "float64", "float16", ">f4", ">i8"])
def test_every_layout_and_type_is_read(tmp_path: Path, layout: str, plain: bool, kind: str) -> None:
    with open_source(write_h5(tmp_path / "x.h5ad", kind, **LAYOUTS[layout]), None) as source:
        np.testing.assert_array_equal(np.concatenate([part.toarray() for _, part in blocks(source.matrix, 7)]), DENSE)
        assert isinstance(source.matrix, Stored)
        found = mapped(source.matrix)
        assert (found is not None) is (plain and kind not in ("float16", ">f4", ">i8"))
        if found is not None:
            np.testing.assert_array_equal(found.rows(np.array([3, 1])).toarray(), DENSE[[3, 1]])


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="workers get pickled counts here")
def test_workers_read_at_the_same_time(tmp_path: Path, own_data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ENTRY", 1 << 40)
    path = write_h5(tmp_path / "x.h5ad", matrix=csr_matrix(DENSE + (np.arange(50) == 7)), compression="gzip")
    table = load_cells(path)
    order = np.random.default_rng(1).integers(0, 200, (40, 16))
    loader = DataLoader(
        KeyedBatches(CellBatches(table), Key.root(0)),
        batch_size=None,
        sampler=[Share(rows, 0, 0) for rows in order],
        collate_fn=_same,
        num_workers=2,
        multiprocessing_context="fork",
    )
    for rows, batch in zip(order, loader, strict=True):
        parts = (batch[name].numpy() for name in ("values", "indices", "indptr"))
        expected = DENSE[rows] + (np.arange(50) == 7)
        np.testing.assert_array_equal(csr_matrix(tuple(parts), shape=(16, 50)).toarray(), expected)


def _same(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return batch


@given(st.data())
def test_chosen_genes_and_cells_are_numpy_indexing(data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, 49), unique=True, min_size=1, max_size=8))
    for gap in data.draw(st.lists(st.integers(0, len(places)), max_size=3)):
        places.insert(gap, -1)
    least = data.draw(st.integers(0, 2))
    expected = np.stack([DENSE[:, place] if place >= 0 else 0 * DENSE[:, 0] for place in places], axis=1)
    found, kept = packed(MATRIX, *choice(places, least))
    np.testing.assert_array_equal(kept, np.flatnonzero((expected > 0).sum(axis=1) >= least))
    np.testing.assert_array_equal(found.matrix.toarray(), expected[kept])
    assert found.matrix.has_sorted_indices
    assert found.matrix.dtype == np.float32


@pytest.mark.parametrize("least", [0, 5])
def test_a_copy_equals_what_is_in_memory(tmp_path: Path, own_data_folder: Path, least: int) -> None:
    stored = MATRIX.copy()
    stored.data[::7] = 0  # explicit zeros are no counts
    with open_source(write_h5(tmp_path / "x.h5ad", matrix=stored), None) as source:
        assert isinstance(source.matrix, Stored)
        memory, kept = packed(source.matrix, *choice(min_genes=least))
        made, kept_too, folder = copied(source.matrix, *choice(min_genes=least), tmp_path, "X")
    np.testing.assert_array_equal(kept_too, kept)
    assert made.matrix.nnz == memory.matrix.nnz == np.count_nonzero(stored.toarray()[kept])
    np.testing.assert_array_equal(made.rows(np.arange(len(kept))).toarray(), memory.matrix.toarray())
    assert list((own_data_folder / "cells").iterdir()) == [folder]


def test_a_copy_on_a_full_disk(tmp_path: Path, own_data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = r"cannot be written \(File too large\): point R2MAE_CACHE at a folder with room"
    with pytest.raises(UserError, match=told), file_size(1000):
        copied(STORED, *choice(), tmp_path, "X")
    assert not list((own_data_folder / "cells").glob("[!.]*"))


def test_a_copy_where_a_file_is_in_the_way(tmp_path: Path, own_data_folder: Path) -> None:
    (own_data_folder / "cells").touch()
    with pytest.raises(UserError, match=r"cannot be written .*point R2MAE_CACHE at a folder with room"):
        copied(STORED, *choice(), tmp_path, "X")


def break_indptr(file: h5py.File) -> None:
    file["X/indptr"][-1] += 5


def break_order(file: h5py.File) -> None:
    file["X/indptr"][3] = 900


def break_length(file: h5py.File) -> None:
    file["X"].attrs["shape"] = (300, 50)


def break_gene(file: h5py.File) -> None:
    file["X/indices"][5] = 50


def drop_data(file: h5py.File) -> None:
    del file["X/data"]


def fill_one_cell(file: h5py.File) -> None:
    """One cell has more counts than there are genes."""
    file["X/indptr"][1:-1] = 0


def declare_terabytes(file: h5py.File) -> None:
    """8 MB that unpack to 447 GiB would take days to read."""
    for name, kind in (("data", "float32"), ("indices", "int32")):
        del file[f"X/{name}"]
        file["X"].create_dataset(name, (6 * 10**10,), kind, chunks=(1 << 18,), compression="gzip")
    del file["X/indptr"], file["var/_index"]
    genes = file["var"].create_dataset("_index", data=np.array([f"g{i}" for i in range(300)], "S"))
    genes.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    file["X"].create_dataset("indptr", data=np.arange(201, dtype=np.int64) * 3 * 10**8)
    file["X"].attrs["shape"] = (200, 3 * 10**8)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (break_indptr, "the parts of X contradict each other"),
        (break_order, "the parts of X contradict each other"),
        (break_length, "the parts of X contradict each other"),
        (fill_one_cell, "the parts of X contradict each other"),
        (break_gene, r"x\.h5ad cannot be read \(indices must be < 50"),
        (drop_data, "cannot be read .*data.*: not a readable AnnData file"),
        (declare_terabytes, "X has shape .200, 300000000., obs and var 200 and 300 rows"),
    ],
)
def test_damaged_matrices_are_refused(tmp_path: Path, change: Callable[[h5py.File], None], told: str) -> None:
    path = write_h5(tmp_path / "x.h5ad")
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(UserError, match=told):
        load_cells(path)


@pytest.mark.parametrize("part", ["X/indptr", "obs/_index", "var/_index"])
def test_parts_larger_than_memory_are_refused(tmp_path: Path, part: str) -> None:
    path = write_h5(tmp_path / "x.h5ad")
    with h5py.File(path, "r+") as file:
        attributes = dict(file[part].attrs)
        del file[part]
        file.create_dataset(part, (10**12,), "int64", chunks=(1 << 18,), compression="gzip").attrs.update(attributes)
    with pytest.raises(UserError, match=r"x\.h5ad: .* needs [\d.,]+ GB of memory, and the limit is"):
        load_cells(path)
