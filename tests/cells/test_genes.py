"""Highly variable genes are scanpy's."""

from pathlib import Path

import anndata
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells.counts import highly_variable_genes
from r2mae.errors import UserError


def by_scanpy(adata: anndata.AnnData, number: int) -> np.ndarray:
    scanpy = pytest.importorskip("scanpy")
    adata = adata.copy()
    scanpy.pp.normalize_total(adata)
    scanpy.pp.log1p(adata)
    scanpy.pp.highly_variable_genes(adata, n_top_genes=number)
    return np.flatnonzero(adata.var["highly_variable"])


def chosen_of(adata: anndata.AnnData, number: int) -> np.ndarray:
    library = np.asarray(adata.X.sum(axis=1), dtype=np.float64).ravel()
    return highly_variable_genes(adata.X, number, library)


@pytest.fixture(scope="module")
def adata() -> anndata.AnnData:
    rng = np.random.default_rng(1)
    rates = rng.gamma(0.3, 2.0, 500) * rng.gamma(2.0, 0.5, (300, 500))
    counts = rng.poisson(rates).astype(np.float32)
    counts[:, :3] = 0  # genes without a count
    counts[:, 3] = 5000 * (np.arange(300) == 0)  # one gene alone in its bin
    counts[7] = 0
    return anndata.AnnData(csr_matrix(counts))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [1, 60, 490])
def test_they_are_those_of_scanpy(adata: anndata.AnnData, number: int) -> None:
    np.testing.assert_array_equal(chosen_of(adata, number), by_scanpy(adata, number))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "number"), [("combat_covid_6donors", 5000), ("perez_tcells_7donors", 1000), ("csle_44donors", 500)]
)
def test_they_are_those_of_scanpy_on_real_cells(shared_data: Path, name: str, number: int) -> None:
    adata = anndata.read_h5ad(shared_data / "cells" / f"{name}.h5ad")
    chosen = chosen_of(adata, number)
    np.testing.assert_array_equal(chosen, by_scanpy(adata, number))


def test_blocks_do_not_change_the_choice(adata: anndata.AnnData, monkeypatch: pytest.MonkeyPatch) -> None:
    from r2mae.cells import counts

    whole = chosen_of(adata, 60)
    monkeypatch.setattr(counts, "_ENTRIES", 500 * 64)
    np.testing.assert_array_equal(chosen_of(adata, 60), whole)


def test_more_genes_than_there_are(adata: anndata.AnnData) -> None:
    with pytest.raises(UserError, match="n_top_genes is 501, and there are 500 genes: ask for fewer"):
        chosen_of(adata, 501)
