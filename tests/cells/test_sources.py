"""Where cells come from: paths, names, layers, and what is no AnnData."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anndata
import h5py
import numpy as np
import pytest
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix, vstack

from r2mae.cells.counts import blocks
from r2mae.cells.table import RAW, open_source, path_of, read_obs, to_csr
from r2mae.errors import UserError

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]


class Read(NamedTuple):
    """A source, with its counts read."""

    layer: str
    layers: tuple[str, ...]
    counts: csr_matrix


def read_source(source: "anndata.AnnData | Path", layer: str | None = None) -> Read:
    with open_source(source, layer) as found:
        return Read(found.layer, found.layers, vstack([block for _, block in blocks(found.matrix)]))


def test_names_and_paths(own_data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.h5ad").touch()
    assert path_of(tmp_path / "mine.h5ad") == tmp_path / "mine.h5ad"
    with pytest.raises(UserError, match=r"hlca\.h5ad is missing: place it there .*cellxgene"):
        path_of("hlca")
    with pytest.raises(UserError, match=r"cslee does not exist: name .* or a set \(did you mean 'csle'"):
        path_of("cslee")
    with pytest.raises(UserError, match=r"no\.h5ad does not exist: name an \.h5ad file"):
        path_of("no.h5ad")
    (own_data_folder / "cells").mkdir()
    (own_data_folder / "cells" / "hlca.h5ad").touch()
    assert path_of("hlca") == own_data_folder / "cells" / "hlca.h5ad"


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix, coo_matrix, np.asarray])
def test_matrices_become_csr(kind: Callable[[np.ndarray], object]) -> None:
    dense = np.random.default_rng(0).poisson(0.5, (6, 4)).astype(np.int32)
    made = to_csr(kind(dense), "x")
    assert isinstance(made, csr_matrix)
    assert made.has_canonical_format
    np.testing.assert_array_equal(made.toarray(), dense)


def test_entries_that_are_there_twice_are_summed_in_a_copy() -> None:
    twice = csr_matrix((np.ones(3, np.float32), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_array_equal(to_csr(twice, "x").toarray(), [[1, 2]])
    assert twice.indices.tolist() == [1, 1, 0]


@pytest.mark.parametrize("matrix", [np.array([["a", "b"]]), np.ones(3), np.array([[object()]])])
def test_what_is_no_matrix_of_numbers(matrix: np.ndarray) -> None:
    with pytest.raises(UserError, match=r"^x: counts must be a matrix of numbers, not"):
        to_csr(matrix, "x")


def test_layers_are_offered_and_found(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make()
    adata.raw = adata.copy()
    adata.layers["raw"] = adata.X * 3
    path = write(adata, tmp_path / "cells.h5ad")
    for find in (partial(read_source, path), partial(read_source, adata)):
        assert find(None).layers == ("raw", RAW)
        for layer, factor in ((None, 1), ("X", 1), ("raw", 3), (RAW, 1)):
            found = find(layer)
            assert found.layer == (layer or "X")
            np.testing.assert_array_equal(found.counts.toarray(), factor * make().X.toarray())
        with pytest.raises(UserError, match=r"has no layer 'rw': did you mean 'raw'"):
            find("rw")


def test_no_x(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make()
    adata.X = None
    path = write(adata, tmp_path / "cells.h5ad")
    for find in (partial(read_source, path), partial(read_source, adata)):
        with pytest.raises(UserError, match=r"has no X: name the layer that holds raw counts \(layers: raw\)"):
            find()


def test_files_of_other_making(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "cells.h5ad")
    with h5py.File(path, "r+") as file:
        del file["X"].attrs["encoding-type"]
    with pytest.raises(UserError, match=r"cannot be read .No read method registered"):
        read_source(path)
    with h5py.File(path, "r+") as file:
        del file["var"]["_index"]
    with pytest.raises(UserError, match="not a readable AnnData file"):
        read_source(path)


def test_annotations_alone(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "cells.h5ad")
    with h5py.File(path, "r+") as file:
        del file["X"], file["var"]  # which nobody asks for
    assert read_obs(path)["donor"].tolist() == make().obs["donor"].tolist()
    with h5py.File(path, "r+") as file:
        del file["obs"]
    with pytest.raises(UserError, match="not a readable AnnData file"):
        read_obs(path)


def test_cells_that_were_in_memory_are_no_file() -> None:
    with pytest.raises(UserError, match="the run was trained on an AnnData object in memory"):
        path_of("AnnData")
