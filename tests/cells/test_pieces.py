"""Pieces of zarr folders that are not there: lost ones are refused where that is certain, and named where it is not."""

import logging
from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np
import pytest
from scipy.sparse import csc_matrix

from r2mae.cells.pieces import missing_pieces
from r2mae.cells.sources import column_notes
from r2mae.cells.stored import opened
from r2mae.cells.table import load_cells
from r2mae.cli.main import main
from r2mae.errors import UserError

pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")  # of format 3, when anndata writes it

Make = Callable[..., anndata.AnnData]
Store = Callable[..., Path]
WRONG = "which is wrong if anything was lost"


@pytest.fixture(params=[2, 3])
def store(request: pytest.FixtureRequest, tmp_path: Path, make: Make) -> Store:
    """Write 100 cells of 60 genes, in both formats of zarr, as csr, csc or dense."""

    def written(kind: str = "csr", **columns: object) -> Path:
        adata = make(100, 60)
        adata.obs["batch"] = np.array(["a", "b"] * 50, dtype=object)
        for name, values in columns.items():
            adata.obs[name] = values
        adata.strings_to_categoricals()
        options = {}
        if kind == "dense":
            adata.X, options = adata.X.toarray(), {"chunks": (50, 30)}
        elif kind == "csc":
            adata.X = csc_matrix(adata.X)
        path = tmp_path / f"{kind}.zarr"
        with anndata.settings.override(zarr_write_format=request.param):
            adata.write_zarr(path, **options)
        return path

    return written


def lose(path: Path, array: str, count: int | None = None) -> list[str]:
    """Delete stored pieces of an array, the last ones first; return their names."""
    known = (".zarray", ".zattrs", ".zgroup", "zarr.json")
    pieces = sorted(file for file in (path / array).rglob("*") if file.is_file() and file.name not in known)
    for piece in pieces[::-1][:count]:
        piece.unlink()
    return [str(piece.relative_to(path)) for piece in pieces[::-1][:count]]


def test_what_is_whole_has_no_note(store: Store) -> None:
    for kind in ("csr", "csc", "dense"):
        path = store(kind)
        assert load_cells(path, batch_key="batch", donor_key="donor").notes == ()
        with opened(path) as group:
            assert missing_pieces(group["obs/batch/codes"]) == []


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize(("part", "said"), [("data", "its values"), ("indices", "its indices"), ("indptr", "its indp")])
def test_lost_pieces_of_a_sparse_matrix(store: Store, kind: str, part: str, said: str) -> None:
    path = store(kind)
    assert lose(path, f"X/{part}")
    with pytest.raises(UserError, match=rf"the matrix X is damaged \(pieces of {said}.* are missing\): export or"):
        load_cells(path)


def test_indices_that_are_all_zero_are_not_stored(store: Store, make: Make, tmp_path: Path) -> None:
    adata = make(3, 12)
    adata.X = adata.X.toarray() * (np.arange(12) == 0) + np.ones((3, 1)) * (np.arange(12) == 0)
    adata = anndata.AnnData(csc_matrix(adata.X).tocsr(), obs=adata.obs, var=adata.var)
    adata.write_zarr(tmp_path / "few.zarr")
    with opened(tmp_path / "few.zarr") as group:
        assert missing_pieces(group["X/indices"]) == [(0,)]
    assert (load_cells(tmp_path / "few.zarr", genes=("g0", "g1")).counts.rows(np.arange(3)).toarray()[:, 0] > 0).all()


def test_missing_pieces_of_a_dense_matrix_are_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = store("dense")
    (name,) = lose(path, "X", 1)
    told = f"1 of 4 pieces of X is not stored ({name}): read as zeros, {WRONG}"
    assert load_cells(path).notes == (told,)
    lose(path, "X", 1)
    assert "2 of 4 pieces of X are not stored (" in load_cells(path, min_genes=1).notes[0]
    lose(path, "X")
    with pytest.raises(UserError, match="no piece of X is stored, so that it holds no count: export or fetch"):
        load_cells(path, genes=("g0", "g1"))


@pytest.mark.parametrize(
    ("array", "said"),
    [("obs/batch/categories", "obs is damaged"), ("obs/_index", "obs is damaged"), ("var/_index", "var is damaged")],
)
def test_lost_names(store: Store, array: str, said: str) -> None:
    path = store()
    name = lose(path, array)[0]
    with pytest.raises(UserError, match=rf"{said} \(1 of 1 piece of {array}.* is not stored \({name}\)\): export or"):
        load_cells(path)


def test_a_column_of_which_nothing_is_stored(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """zarr would read that every cell is in the first category."""
    path = store()
    lose(path, "obs/batch/codes")
    assert load_cells(path).notes == ()  # nobody asked for it
    with pytest.raises(UserError, match=r"no piece of obs/batch/codes is stored, .* of 'batch': export or fetch"):
        load_cells(path, batch_key="batch")
    assert main(["pretrain", "cells", str(path), "--batch-key", "batch", "--out", str(path.parent / "run")]) == 2
    assert "no piece of obs/batch/codes is stored" in capsys.readouterr().err


def test_columns_may_be_zero_throughout(store: Store) -> None:
    """zarr stores no piece of them, and neither of a column with one category or of masks."""
    names = np.array(["x"] * 100, dtype=object)
    path = store(zero=0, one=names, age=np.arange(100.0))
    used = ("batch", "donor", "zero", "one", "age")
    zero = column_notes(path, used)
    assert [note.split(" (")[0] for note in zero] == ["1 of 1 piece of obs/zero is not stored"]
    assert zero[0].endswith(f": read as 0, {WRONG}")
    assert zero == load_cells(path, columns=used).notes
    lose(path, "obs/age")
    assert len(column_notes(path, (*used, None, "none"))) == 2


def test_a_part_of_a_column_is_named(make: Make, tmp_path: Path) -> None:
    import zarr

    adata = make(100, 12)
    adata.strings_to_categoricals()
    adata.write_zarr(tmp_path / "a.zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="a")
    codes = np.asarray(group["obs/donor/codes"][:])
    group["obs/donor"].create_array("codes", data=codes, chunks=(40,), overwrite=True)
    zarr.consolidate_metadata(tmp_path / "a.zarr")
    assert column_notes(tmp_path / "a.zarr", ["donor"]) == ()
    (name,) = lose(tmp_path / "a.zarr", "obs/donor/codes", 1)
    told = f"1 of 3 pieces of obs/donor/codes is not stored ({name}): read as 0, the first category, {WRONG}"
    assert column_notes(tmp_path / "a.zarr", ["donor"]) == (told,)


@pytest.mark.slow
def test_embedding_says_what_it_takes_for_zeros(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    path = store("dense")
    run = path.parent / "run"
    options = f"--n-hidden 8 --n-latent 4 --steps 2 --batch-size 10 --threads 1 --batch-key batch --out {run}"
    assert main(["pretrain", "cells", str(path), *options.split()]) == 0
    lose(path, "X", 1)
    with caplog.at_level(logging.WARNING, "r2mae"):
        assert main(["embed", str(run), str(path), "-o", str(path.parent / "e.npz")]) == 0
    assert "1 of 4 pieces of X is not stored" in caplog.text
    lose(path, "obs/batch/codes")
    assert main(["embed", str(run), str(path), "-o", str(path.parent / "f.npz")]) == 2
