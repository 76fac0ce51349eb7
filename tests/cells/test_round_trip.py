"""The README's example: what the libraries that are installed together write, read, and read in part."""

from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np
import pytest

from r2mae.cells import MaskedAutoencoder
from r2mae.cells.table import load_cells

Make = Callable[..., anndata.AnnData]


@pytest.mark.slow
def test_a_trained_object_is_saved_and_comes_back(make: Make, tmp_path: Path) -> None:
    adata = make()
    adata.obs["cell_type"] = np.where(np.arange(30) % 2, "T", "B")
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=8, n_latent=4)
    model.train(max_epochs=1, batch_size=10, progress=False)
    adata.obsm["X_r2mae"] = model.get_latent_representation()
    adata.write_h5ad(tmp_path / "a.h5ad")
    found = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(found.obsm["X_r2mae"], adata.obsm["X_r2mae"])
    assert found.uns["r2mae_setup"] == adata.uns["r2mae_setup"]
    np.testing.assert_allclose(model.get_latent_representation(found), adata.obsm["X_r2mae"], rtol=1e-6)


@pytest.mark.parametrize("names", ["str", object])
def test_files_come_back(make: Make, tmp_path: Path, names: object) -> None:
    adata = make()
    adata.obs.index, adata.var.index = adata.obs.index.astype(names), adata.var.index.astype(names)
    adata.write_h5ad(tmp_path / "a.h5ad")
    found = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert list(found.obs_names) == list(adata.obs_names)
    assert list(found.obs["donor"]) == list(adata.obs["donor"])
    assert (found.X != adata.X).nnz == 0
    found.write_h5ad(tmp_path / "again.h5ad")
    assert load_cells(tmp_path / "again.h5ad").genes == tuple(adata.var_names)


def test_a_part_of_a_file_on_disk(make: Make, tmp_path: Path) -> None:
    adata = make()
    adata.write_h5ad(tmp_path / "a.h5ad")
    found = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    rows = [3, 1, 4]
    for part in (found.X[rows], found[rows].to_memory().X, found[rows, :].X):
        np.testing.assert_array_equal(part.toarray(), adata.X[rows].toarray())
    mask = np.arange(30) % 3 == 0
    np.testing.assert_array_equal(found[mask, ["g1", "g5"]].to_memory().X.toarray(), adata.X[mask][:, [1, 5]].toarray())
    found.file.close()
