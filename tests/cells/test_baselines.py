"""Expression, principal components, scVI and embeddings of others."""

import os
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA

from r2mae.cells import baselines
from r2mae.cells.baselines import (
    baseline_scores,
    log_normalized_expression,
    obsm_embedding,
    pca_embedding,
)
from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts
from r2mae.cells.donors import split_donors
from r2mae.cells.evaluate import evaluate_embedding
from r2mae.cells.table import CellTable, load_cells
from r2mae.errors import UserError

pytestmark = pytest.mark.slow

CELLS, GENES = 150, 30
CONFIG = CellsConfig.make(
    data="x", donor_key="donor", labels=("cell_type",), n_hidden=16, n_latent=4, epochs=3, batch_size=32, device="cpu"
)


@pytest.fixture
def table() -> CellTable:
    rng = np.random.default_rng(0)
    kind = np.arange(CELLS) % 3
    counts = rng.poisson(np.random.default_rng(1).gamma(0.5, 3.0, (3, GENES))[kind])
    counts[np.arange(CELLS), np.arange(CELLS) % GENES] += 1
    obs = pd.DataFrame(
        {"donor": [f"D{i}" for i in np.arange(CELLS) // 15], "cell_type": np.array(["B", "NK", "T"])[kind]},
        index=[f"cell{i}" for i in range(CELLS)],
    )
    batch = (np.arange(CELLS) % 2).astype(np.int64)
    genes = tuple(f"gene{i}" for i in range(GENES))
    return CellTable("some.h5ad", Counts(csr_matrix(counts.astype(np.int32))), genes, obs, batch, ("a", "b"), ())


@pytest.fixture
def adata(table: CellTable) -> anndata.AnnData:
    """The cells in another order, and one more, with an embedding."""
    names = np.array([*table.obs.index[::-1], "another"])
    made = anndata.AnnData(obs=pd.DataFrame(index=names))
    made.obsm["X_scgpt"] = np.arange(2.0 * len(names)).reshape(-1, 2)
    return made


def test_expression_that_does_not_fit_into_memory_is_refused(
    table: CellTable, adata: anndata.AnnData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on cells counts, and an embedding may have this name."""
    monkeypatch.setattr(baselines, "memory_limit", lambda: 3 * 4 * CELLS * GENES)
    baselines.check_expression(table, CONFIG)
    monkeypatch.setattr(baselines, "memory_limit", lambda: 3 * 4 * CELLS * GENES - 1)
    with pytest.raises(UserError, match=rf"makes {CELLS} cells of {GENES} genes dense, which needs .* GiB of memory"):
        baseline_scores(table, CONFIG, "expression")
    adata.obsm["expression"] = adata.obsm["X_scgpt"]
    assert "score" in baseline_scores(table, CONFIG, "expression", adata=adata)
    monkeypatch.setattr("r2mae.cells.evaluate._RANK_CELLS", 10)
    baselines.check_expression(
        table, CONFIG.replace(max_cells=tuple(f"{name}=20" for name in (*CONFIG.data.labels, *CONFIG.data.regress)))
    )


def normalized(table: CellTable) -> np.ndarray:
    counts = table.counts.rows(np.arange(CELLS)).toarray()
    return np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))


def test_expression(table: CellTable) -> None:
    rows = np.array([3, 140, 7])
    np.testing.assert_allclose(log_normalized_expression(table, rows), normalized(table)[rows], rtol=1e-6)


def test_principal_components(table: CellTable, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = PCA(5, svd_solver="full").fit_transform(normalized(table))
    made = pca_embedding(table, width=5)
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.abs(made), np.abs(expected), rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(baselines, "_CHUNK", 11)
    np.testing.assert_allclose(pca_embedding(table, width=5), made, rtol=1e-4, atol=1e-4)


def test_components_are_as_many_as_there_can_be(table: CellTable) -> None:
    assert pca_embedding(table).shape == (CELLS, GENES - 1)


def test_axes_are_found_on_some_cells(table: CellTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_FIT_CELLS", 20)
    made = pca_embedding(table, seed=1)
    assert made.shape == (CELLS, 19)
    assert np.isfinite(made).all()


def test_embeddings_of_others_are_found_by_name(table: CellTable, adata: anndata.AnnData) -> None:
    expected = np.arange(2.0 * (CELLS + 1)).reshape(-1, 2)[:CELLS][::-1]
    np.testing.assert_array_equal(obsm_embedding(table, adata, "X_scgpt"), expected)
    adata.obsm["X_sparse"] = csr_matrix(adata.obsm["X_scgpt"])
    np.testing.assert_array_equal(obsm_embedding(table, adata, "X_sparse"), expected)
    adata.obsm["X_frame"] = pd.DataFrame(adata.obsm["X_scgpt"], index=adata.obs_names, columns=["one", "two"])
    np.testing.assert_array_equal(obsm_embedding(table, adata, "X_frame"), expected)


def test_embeddings_of_others_that_do_not_fit(table: CellTable, adata: anndata.AnnData) -> None:
    with pytest.raises(UserError, match="no embedding 'X_scgtp' in obsm: did you mean 'X_scgpt'"):
        obsm_embedding(table, adata, "X_scgtp")
    with pytest.raises(UserError, match="obsm 'X_scgpt' has no row for the cell 'cell149'"):
        obsm_embedding(table, adata[1:].copy(), "X_scgpt")
    bare = anndata.AnnData(obs=pd.DataFrame(index=["cell0"]))
    with pytest.raises(UserError, match="no embedding 'X_scgpt' in obsm: it has none"):
        obsm_embedding(table, bare, "X_scgpt")
    twice = anndata.AnnData(obs=pd.DataFrame(index=["cell0", "cell1"]), obsm={"X": np.zeros((2, 2))})
    twice.obs_names = ["cell0", "cell0"]
    with pytest.raises(UserError, match="names of cells are not unique"):
        obsm_embedding(table, twice, "X")


def test_baselines_are_scored_on_the_cells_of_the_models(table: CellTable, adata: anndata.AnnData) -> None:
    scores = {name: baseline_scores(table, CONFIG, name, adata=adata) for name in ("expression", "pca", "X_scgpt")}
    assert scores["pca"] == evaluate_embedding(table, pca_embedding(table), CONFIG)
    assert scores["expression"] == pytest.approx(evaluate_embedding(table, normalized(table), CONFIG), rel=1e-5)
    assert scores["expression"]["cell_type_bacc"] > 0.9 > scores["X_scgpt"]["cell_type_bacc"]


@pytest.mark.filterwarnings("ignore")
def test_scvi_is_a_row(table: CellTable) -> None:
    pytest.importorskip("scvi")
    scores = baseline_scores(table, CONFIG.replace(epochs=2), "scvi")
    expected = {"score", "cell_type_bacc", "cell_type_bacc_donors_low", "effective_rank", "reconstruction_r_0.7"}
    assert expected <= scores.keys()


def test_unknown_baselines_are_named(table: CellTable, adata: anndata.AnnData) -> None:
    with pytest.raises(UserError, match="unknown baseline 'scvii': did you mean 'scvi'"):
        baseline_scores(table, CONFIG, "scvii")
    with pytest.raises(UserError, match="unknown baseline 'X_uce': choose from: expression, pca, scvi, X_scgpt"):
        baseline_scores(table, CONFIG, "X_uce", adata=adata)


def test_expression_of_real_cells_tells_their_types() -> None:
    """B cells, memory and regulatory T cells of 44 donors: cell types are easy, ages are not."""
    root = os.environ.get("R2MAE_DATA")
    if not root or not (Path(root) / "cells").is_dir():
        if os.environ.get("CI"):
            pytest.fail("R2MAE_DATA must point at the shared data in CI")
        pytest.skip("R2MAE_DATA has no single-cell files")
    config = CellsConfig.make(data="csle", donor_key="donor", labels=("cell_type", "condition"), regress=("age",))
    table = load_cells("csle", donor_key="donor", columns=("cell_type", "condition", "age"))
    assert split_donors(table, config).test.sum() == 44 - 26
    scores = baseline_scores(table, config, "pca")
    assert scores["cell_type_bacc"] > 0.85
    assert scores["cell_type_auroc"] > 0.95
    assert -0.2 < scores["age_spearman_cell"] < 0.8
