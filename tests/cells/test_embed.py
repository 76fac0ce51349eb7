"""Embeddings as files: everything of the source stays, and a source that changed is told."""

from collections.abc import Callable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest

from r2mae.cells.embed import write_embedding
from r2mae.errors import UserError

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]
EMBEDDING = np.random.default_rng(0).random((30, 5), dtype=np.float32)
ARRAYS = {"embedding": EMBEDDING, "cells": np.array([f"c{i}" for i in range(30)])}


@pytest.mark.parametrize("kind", ["plain", "gzip", "zarr"])
def test_the_source_comes_along(make: Make, write: Write, tmp_path: Path, kind: str) -> None:
    adata = make()
    adata.obs["age"] = np.arange(30)
    adata.uns["note"] = "kept"
    adata.obsm["X_other"] = EMBEDDING * 2
    options = {"compression": "gzip"} if kind == "gzip" else {}
    path = write(adata, tmp_path / ("a.zarr" if kind == "zarr" else "a.h5ad"), **options)
    for output in (tmp_path / "new" / "out.h5ad", *((path,) if kind != "zarr" else ())):  # also in its own place
        write_embedding(output, ARRAYS, str(path))
        found = anndata.read_h5ad(output)
        np.testing.assert_array_equal(found.obsm["X_r2mae"], EMBEDDING)
        np.testing.assert_array_equal(found.obsm["X_other"], EMBEDDING * 2)
        np.testing.assert_array_equal(found.X.toarray(), adata.X.toarray())
        np.testing.assert_array_equal(found.layers["raw"].toarray(), adata.X.toarray())
        assert found.obs["age"].tolist() == list(range(30))
        assert found.uns["note"] == "kept"
    if kind == "gzip":
        with h5py.File(tmp_path / "new" / "out.h5ad") as file:
            assert file["X/data"].compression == "gzip"


def test_an_earlier_embedding_is_replaced_and_the_file_does_not_grow(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(3000), tmp_path / "a.h5ad")
    names = np.array([f"c{i}" for i in range(3000)])
    sizes = []
    for number in range(4):
        embedding = np.full((3000, 64), number, dtype=np.float32)
        write_embedding(path, {"embedding": embedding, "cells": names}, str(path))
        np.testing.assert_array_equal(anndata.read_h5ad(path).obsm["X_r2mae"], embedding)
        sizes.append(path.stat().st_size)
    assert sizes[-1] < sizes[0] + 64 * 3000


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
def test_files_without_obsm_and_names_that_occur_twice(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make()
    adata.obs.index = ["c0", "c0", *adata.obs.index[2:]]
    path = write(adata, tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file:
        del file["obsm"]
    arrays = {"embedding": EMBEDDING, "cells": np.array(["c0", "c0", *ARRAYS["cells"][2:]])}
    write_embedding(tmp_path / "out.h5ad", arrays, str(path))
    np.testing.assert_array_equal(anndata.read_h5ad(tmp_path / "out.h5ad").obsm["X_r2mae"], EMBEDDING)


def test_a_source_that_changed_meanwhile(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make()[::-1].copy(), tmp_path / "a.h5ad")
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"a\.h5ad has other cells than were embedded"):
        write_embedding(path, ARRAYS, str(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5ad"]


@pytest.mark.parametrize("suffix", [".h5ad", ".npz"])
def test_places_that_cannot_be_written(make: Make, write: Write, tmp_path: Path, suffix: str) -> None:
    path = write(make(), tmp_path / "a.h5ad")
    (tmp_path / "file").touch()
    (tmp_path / f"folder{suffix}").mkdir()
    for output in (tmp_path / "file" / f"out{suffix}", tmp_path / f"folder{suffix}"):
        with pytest.raises(UserError, match=rf"{output.name} cannot be written \(.*\): name another place, -o FILE"):
            write_embedding(output, ARRAYS, str(path))
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.h5ad", "file", f"folder{suffix}"}
