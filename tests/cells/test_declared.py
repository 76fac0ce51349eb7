"""Files that declare more than they hold are refused before they are read."""

import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells import declared
from r2mae.cells.declared import check_part
from r2mae.cells.sources import read_adata, read_obs
from r2mae.cells.stored import StoredCounts
from r2mae.cells.table import load_cells
from r2mae.errors import UserError

MATRIX = csr_matrix(np.random.default_rng(0).poisson(0.5, (40, 30)).astype(np.float32))
PACKED = {"chunks": (1 << 18,), "compression": "gzip"}


def write(path: Path, cells: int = 40, genes: int = 30) -> Path:
    """Write counts by rows; with other than the defaults, zeros that take no room, each cell full."""
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"], file.attrs["encoding-version"] = "anndata", "0.1.0"
        for name, length in (("obs", cells), ("var", genes)):
            group = file.create_group(name)
            group.attrs.update(
                {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "names"},
            )
            group.attrs["column-order"] = np.zeros(0)
            names = group.create_dataset("names", data=np.array([f"{name}{i}" for i in range(min(length, 1000))], "S"))
            names.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = np.array([cells, genes])
        if (cells, genes) == MATRIX.shape:
            for part in ("data", "indices", "indptr"):
                group.create_dataset(part, data=getattr(MATRIX, part))
            return path
        for part, kind in (("data", "float32"), ("indices", "int32")):
            group.create_dataset(part, (cells * genes,), kind, **PACKED)
        group.create_dataset("indptr", data=np.arange(cells + 1, dtype=np.int64) * genes)
    return path


def replace(path: Path, name: str, shape: tuple[int, ...]) -> Path:
    with h5py.File(path, "a") as file:
        attributes = dict(file[name].attrs)
        del file[name]
        file.create_dataset(name, shape, "int64", chunks=(1 << 18,), compression="gzip").attrs.update(attributes)
    return path


def test_an_honest_file_is_read(tmp_path: Path) -> None:
    counts = StoredCounts(write(tmp_path / "x.h5ad"))
    np.testing.assert_array_equal(counts.rows(np.arange(40)).toarray(), MATRIX.toarray())


def test_counts_that_no_file_of_that_size_can_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5ad", 300_000, 200_000)  # 447 GiB
    assert path.stat().st_size < 1 << 23
    with pytest.raises(
        UserError, match=r"X declares 447 GiB of counts in [\d,]+ bytes, more than counts can be packed"
    ):
        StoredCounts(path)


def test_large_counts_that_are_there_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "memory_limit", lambda: 1 << 10)
    path = write(tmp_path / "x.h5ad")
    assert StoredCounts(path).shape == (40, 30)


@pytest.mark.parametrize("read", [load_cells, read_adata], ids=["counts", "whole"])
@pytest.mark.parametrize("part", ["X/indptr", "obs/names", "var/names"])
def test_parts_larger_than_memory(tmp_path: Path, part: str, read: Callable[[Path], object]) -> None:
    path = replace(write(tmp_path / "x.h5ad"), part, (10**12,))
    with pytest.raises(UserError, match=r"declares [\d.e+,]+ GiB or more, the limit is"):
        read(path)


def test_a_row_with_more_entries_than_genes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5ad")
    with h5py.File(path, "a") as file:
        indptr = file["X/indptr"][:]
        indptr[1:-1] = 0
        file["X/indptr"][:] = indptr
    with pytest.raises(UserError, match="the matrix X is damaged"):
        StoredCounts(path)


def test_a_chunk_that_unpacks_beyond_its_size(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5ad")
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 22)) for _ in range(8)) + packer.flush()
    with h5py.File(path, "a") as file:
        del file["X/data"]
        data = file["X"].create_dataset("data", (MATRIX.nnz,), "float32", chunks=(MATRIX.nnz,), compression="gzip")
        data.id.write_direct_chunk((0,), packed)
    with pytest.raises(UserError, match=r"a chunk of /X/data has [0-9,]+ packed bytes and should unpack to"):
        StoredCounts(path)


def test_links_that_name_the_same_part_again_and_again(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5ad")
    with h5py.File(path, "a") as file:
        below = file.create_group("uns/0")
        for level in range(1, 12):
            group = file.create_group(f"uns/{level}")
            for place in range(10):
                group[str(place)] = below
            below = group
        file["obs/all"] = below
        file["obs"].attrs["column-order"] = np.array(["all"], dtype="S")
    with pytest.raises(UserError, match="obs has too many parts"):
        read_obs(path)


def test_a_group_that_holds_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5ad")
    with h5py.File(path, "a") as file:
        file["obs/again"] = file["obs"]
        with pytest.raises(UserError, match="parts that hold themselves"):
            check_part(path, file["obs"], "obs")


def test_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    store = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group = store.create_group("X")
    group.attrs["shape"] = [300_000, 200_000]
    for name, kind in (("data", "float32"), ("indices", "int32")):
        group.create_array(name, shape=(6 * 10**10,), dtype=kind, chunks=(1 << 20,))
    group.create_array("indptr", data=np.arange(300_001, dtype=np.int64) * 200_000)
    with pytest.raises(UserError, match="X declares 447 GiB of counts in 0 bytes"):
        StoredCounts(tmp_path / "x.zarr")


def test_a_piece_of_zarr_that_unpacks_beyond_its_size(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "x.zarr", mode="w").create_group("X")
    group.attrs["shape"] = list(MATRIX.shape)
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(MATRIX, name), chunks=(64,))
    piece = next(place for place in (tmp_path / "x.zarr" / "X" / "data").rglob("0") if place.is_file())
    piece.write_bytes(bytes(1 << 16))
    with pytest.raises(UserError, match="packed bytes and should unpack to 256"):
        StoredCounts(tmp_path / "x.zarr")
