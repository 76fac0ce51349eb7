"""Reading cells: checks that name file and field, batches, genes, and sources of every kind."""

from collections.abc import Callable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_array, csr_matrix

from r2mae.cells import table
from r2mae.cells.table import CellTable, load_cells
from r2mae.errors import UserError

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]


def dense(table: CellTable) -> np.ndarray:
    return table.counts.rows(np.arange(len(table))).toarray()


def test_masking_needs_two_cells(make: Make) -> None:
    with pytest.raises(UserError, match="two cells and two genes or more, not 1 and 12"):
        load_cells(make()[:1].copy())


def test_batches(make: Make) -> None:
    adata = make()
    adata.obs["plate"] = [10 + i % 2 for i in range(30)]
    found = load_cells(adata, batch_key="plate")
    assert found.batches == ("10", "11")
    np.testing.assert_array_equal(found.batch, np.arange(30) % 2)
    assert load_cells(adata).batches == ("all",)


def test_empty_cells_and_genes(make: Make) -> None:
    adata = make()
    counts = adata.X.toarray()
    counts[4] = 0
    counts[:, 7] = 0
    adata.X = csr_matrix(counts)
    with pytest.raises(UserError, match=r"1 cell without a count in the chosen genes, such as 'c4'.*--min-genes 1"):
        load_cells(adata)
    found = load_cells(adata, min_genes=1)
    np.testing.assert_array_equal(dense(found), np.delete(np.delete(counts, 4, axis=0), 7, axis=1))
    assert "g7" not in found.genes
    assert "c4" not in found.obs.index
    assert found.notes == (
        "1 genes without a count are omitted",
        "1 cell with fewer than 1 expressed genes omitted",
    )
    with pytest.raises(UserError, match="0 cells with 13 expressed genes"):
        load_cells(adata, min_genes=13)
    mapped = load_cells(adata, genes=tuple(adata.var_names))  # a model's genes: every cell is wanted
    np.testing.assert_array_equal(dense(mapped), counts)
    assert "1 cell without a count in the model's genes" in mapped.notes[0]


def test_the_object_is_left_as_it_is(make: Make) -> None:
    adata = make()
    twice = csr_matrix((np.ones(90, np.float32), np.tile([1, 1, 2], 30), np.arange(0, 91, 3)), shape=(30, 12))
    adata.X = twice.copy()
    np.testing.assert_array_equal(dense(load_cells(adata)), twice.toarray()[:, 1:3])
    assert adata.X.nnz == 90
    np.testing.assert_array_equal(adata.X.data, twice.data)


def test_sparse_dense_and_columns_first_are_the_same(make: Make, write: Write, tmp_path: Path) -> None:
    expected = dense(load_cells(make()))
    half = make()
    half.X = half.X.toarray().astype(np.float16)
    np.testing.assert_array_equal(dense(load_cells(half)), expected)
    for name, matrix in (("dense", make().X.toarray()), ("csc", csc_matrix(make().X)), ("csr", make().X)):
        other = make()
        other.X = matrix
        np.testing.assert_array_equal(dense(load_cells(other)), expected)
        path = write(other, tmp_path / f"{name}.h5ad")
        np.testing.assert_array_equal(dense(load_cells(path)), expected)


def test_raw_counts_beside_normalised_ones(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make()
    adata.raw = adata.copy()
    adata = adata[:, :5].copy()
    adata.X = adata.X / 2
    del adata.layers["raw"]
    path = write(adata, tmp_path / "portal.h5ad")
    for load in (lambda layer: load_cells(path, layer=layer), lambda layer: load_cells(adata, layer=layer)):
        with pytest.raises(UserError, match=r"whole numbers of 0 or more: .* --layer raw\.X \(layers: raw\.X\)"):
            load(None)
        found = load("raw.X")
        assert found.genes == tuple(make().var_names)
        np.testing.assert_array_equal(dense(found), make().X.toarray())


@pytest.fixture(params=["plain", "gzip"])
def stored(request: pytest.FixtureRequest, make: Make, write: Write, tmp_path: Path) -> Path:
    adata = make(300, 40)
    adata.X = adata.X.multiply(np.random.default_rng(4).random((300, 40)) < 0.5).tocsr()
    return write(adata, tmp_path / "cells.h5ad", compression="gzip" if request.param == "gzip" else None)


@pytest.mark.parametrize(
    "options", [{}, {"min_genes": 8}, {"n_top_genes": 12, "min_genes": 2}, {"genes": ("g7", "new", "g2", "g30")}]
)
def test_on_disk_equals_in_memory(
    stored: Path, options: dict[str, object], own_data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"min_genes": 1, **options}
    memory = load_cells(stored, **options)
    monkeypatch.setattr(table, "ENTRY", 1 << 40)
    disk = load_cells(stored, **options)
    assert memory.counts.places is None
    assert disk.counts.places is not None
    np.testing.assert_array_equal(dense(disk), dense(memory))
    assert disk.genes == memory.genes
    assert list(disk.obs.index) == list(memory.obs.index)
    assert [note for note in disk.notes if "copy" not in note] == list(memory.notes)
    object_ = load_cells(anndata.read_h5ad(stored), **options)
    np.testing.assert_array_equal(dense(object_), dense(memory))


def test_copies_are_made_once(stored: Path, own_data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ENTRY", 1 << 40)
    options = {"n_top_genes": 10, "min_genes": 1}
    first = load_cells(stored, **options)
    copies = list((own_data_folder / "cells").iterdir())
    assert first.counts.places is not None
    assert first.counts.places[0][0].parent == copies[0]
    assert any(str(copies[0]) in note for note in first.notes)
    stamp = copies[0].stat().st_mtime_ns
    np.testing.assert_array_equal(dense(load_cells(stored, **options)), dense(first))
    assert copies[0].stat().st_mtime_ns == stamp
    load_cells(stored, **{**options, "n_top_genes": 11})
    assert len(list((own_data_folder / "cells").iterdir())) == 2


def test_a_copy_of_linked_data_is_made_again_when_they_change(
    make: Make, write: Write, tmp_path: Path, own_data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ENTRY", 1 << 40)
    real, path = write(make(), tmp_path / "real.h5ad", compression="gzip"), tmp_path / "cells.h5ad"
    path.symlink_to(real)
    first = dense(load_cells(path, min_genes=1))
    with h5py.File(real, "r+") as file:
        file["X/data"][:] += 1
    assert (dense(load_cells(path, min_genes=1)) == first + (first > 0)).all()


def test_counts_go_to_memory_if_they_fit(
    make: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_data_folder: Path
) -> None:
    path = write(make(), tmp_path / "cells.h5ad")
    assert load_cells(path).counts.places is None
    monkeypatch.setattr(table, "memory_limit", lambda: 1800)
    assert load_cells(path).counts.places is not None
    columns_first = make()
    columns_first.X = csc_matrix(columns_first.X)
    with pytest.raises(UserError, match=r"X needs .* GB of memory, .* write counts as CSR"):
        load_cells(write(columns_first, tmp_path / "csc.h5ad"))


def test_genes_are_mapped_by_name(make: Make) -> None:
    wanted = ["g3", "new", "g0", "g5"]
    found = load_cells(make(), genes=wanted)
    assert found.genes == tuple(wanted)
    own = make().X.toarray()
    np.testing.assert_array_equal(dense(found), np.stack([own[:, 3], 0 * own[:, 0], own[:, 0], own[:, 5]], axis=1))
    assert found.notes[0] == "3 of the model's 4 genes are there, 1 missing (hidden), 9 others ignored"
    with pytest.raises(UserError, match=r"only 1 of the model's 20 genes are there .*name genes in var_names"):
        load_cells(make(), genes=["g0", *(f"x{i}" for i in range(19))])


def test_the_memory_limit_is_half_of_something() -> None:
    assert 1 << 28 < table.memory_limit() < 1 << 45


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix, csr_array, np.array])
def test_a_table_of_an_object_shares_nothing_with_it(make: Make, kind: Callable[[object], object]) -> None:
    adata = make()
    dense_counts = adata.X.toarray()
    adata.X = kind(dense_counts)
    found = load_cells(adata)
    (adata.X if kind is np.array else adata.X.data)[...] *= 3
    adata.obs["donor"] = "other"
    adata.obs_names = [f"x{i}" for i in range(30)]
    np.testing.assert_array_equal(dense(found), dense_counts)
    assert found.obs["donor"].iloc[1] == "d1"
    assert found.obs.index[1] == "c1"


def test_a_single_variable_gene_is_too_few(make: Callable[..., anndata.AnnData]) -> None:
    with pytest.raises(UserError, match="X has counts in 1 of the chosen genes, and masking needs two: choose more"):
        load_cells(make(200, 300), n_top_genes=1, min_genes=1)
