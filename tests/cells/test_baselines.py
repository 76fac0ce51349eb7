"""Expression, principal components, scVI and embeddings of others."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.stats import nbinom
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA

from r2mae.cells import baselines
from r2mae.cells.baselines import (
    fit_mean_cell,
    log_normalized_expression,
    obsm_embedding,
    pca_embedding,
)
from r2mae.cells.batches import CellBatches, split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts
from r2mae.cells.domain import DOMAIN
from r2mae.cells.donors import split_donors
from r2mae.cells.evaluate import LOSS_RATIOS, RATIOS, evaluate_embedding
from r2mae.cells.table import CellTable, load_cells
from r2mae.domains import baselines as registered
from r2mae.errors import UserError
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.evaluation.items import ItemRecorder
from r2mae.masking.keys import Key
from r2mae.masking.masks import column_mask

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


@pytest.fixture
def written(adata: anndata.AnnData, tmp_path: Path) -> str:
    adata.write_h5ad(tmp_path / "a.h5ad")
    return str(tmp_path / "a.h5ad")


def test_expression_that_does_not_fit_into_memory_is_refused(table: CellTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on cells counts."""
    data = split_data(table, CONFIG)
    monkeypatch.setattr(registered, "memory_share", lambda: 3 * 4 * CELLS * GENES)
    DOMAIN.check_baseline_sizes(CONFIG, ["expression"], data)
    monkeypatch.setattr(registered, "memory_share", lambda: 3 * 4 * CELLS * GENES - 1)
    with pytest.raises(UserError, match=r"the baseline expression needs .* GB of memory"):
        DOMAIN.check_baseline_sizes(CONFIG, ["expression"], data)
    assert scores_of(table, CONFIG, "expression") == {}  # where it was not refused before
    monkeypatch.setattr("r2mae.cells.evaluate._RANK_CELLS", 10)
    few = CONFIG.replace(max_cells=tuple(f"{name}=20" for name in (*CONFIG.data.labels, *CONFIG.data.regress)))
    DOMAIN.check_baseline_sizes(few, ["expression"], data)


def scores_of(table: CellTable, config: CellsConfig, name: str, **options: Any) -> dict[str, float]:
    """Return the scores of a baseline."""
    return DOMAIN.score_baseline(config, name, split_data(table, config), **options)


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


def test_embeddings_of_others_are_found_by_name(table: CellTable, adata: anndata.AnnData, tmp_path: Path) -> None:
    expected = np.arange(2.0 * (CELLS + 1)).reshape(-1, 2)[:CELLS][::-1]
    adata.obsm["X_sparse"] = csr_matrix(adata.obsm["X_scgpt"])
    adata.obsm["X_frame"] = pd.DataFrame(adata.obsm["X_scgpt"], index=adata.obs_names, columns=["one", "two"])
    adata.write_h5ad(tmp_path / "a.h5ad")
    for key in ("X_scgpt", "X_sparse", "X_frame"):
        np.testing.assert_array_equal(obsm_embedding(table, str(tmp_path / "a.h5ad"), key), expected)


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
def test_embeddings_of_others_that_do_not_fit(table: CellTable, adata: anndata.AnnData, tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    adata[1:].copy().write_h5ad(path)
    with pytest.raises(UserError, match="obsm 'X_scgpt' has no row for the cell 'cell149'"):
        obsm_embedding(table, str(path), "X_scgpt")
    adata.obs_names = ["cell0"] * (CELLS + 1)
    adata.write_h5ad(path)
    with pytest.raises(UserError, match="names of cells are not unique"):
        obsm_embedding(table, str(path), "X_scgpt")


def test_baselines_are_scored_on_the_cells_of_the_models(table: CellTable, written: str) -> None:
    config = CONFIG.replace(data=written)
    scores = {name: scores_of(table, config, name) for name in ("expression", "pca", "X_scgpt")}
    assert scores["pca"] == evaluate_embedding(table, pca_embedding(table), CONFIG)
    assert scores["expression"] == pytest.approx(evaluate_embedding(table, normalized(table), CONFIG), rel=1e-5)
    assert scores["expression"]["cell_type_bacc"] > 0.9 > scores["X_scgpt"]["cell_type_bacc"]


@pytest.mark.filterwarnings("ignore")
def test_scvi_is_a_row(table: CellTable) -> None:
    pytest.importorskip("scvi")
    scores = scores_of(table, CONFIG.replace(epochs=2), "scvi")
    expected = {"score", "cell_type_bacc", "cell_type_bacc_donors_low", "effective_rank", "reconstruction_r_0.7"}
    assert expected <= scores.keys()


def held_out(table: CellTable) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the training cells and of the validation cells."""
    data = split_data(table, CONFIG)
    assert data.validation is not None
    return table.counts.rows(data.train.rows).toarray(), table.counts.rows(data.validation.rows).toarray()


def hidden_genes(ratio: float) -> np.ndarray:
    """Those of the first mini-batch, in `reconstruction_r` and `gene_r`."""
    key = Key.root(0).fold("reconstruction masks")
    return column_mask(GENES, ratio, key.fold(RATIOS.index(ratio), 0)).numpy()


def logs(counts: np.ndarray) -> np.ndarray:
    return np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))


def test_the_mean_cell_is_one_vector_for_all_cells(table: CellTable) -> None:
    """Its r by cell is high and its r by gene zero; the loss is that of the moments' negative binomial."""
    train, test = held_out(table)
    recorder = ItemRecorder()
    scores = scores_of(table, CONFIG, "mean", items=recorder, progress=lambda done, total: None)
    mean, hidden = logs(train).mean(axis=0), hidden_genes(0.5)
    each = [np.corrcoef(mean[hidden], row[hidden])[0, 1] for row in logs(test)]
    assert scores["reconstruction_r_0.5"] == pytest.approx(np.nanmean(each), abs=1e-5)
    assert {scores["gene_r"], scores["gene_r_0.1"], scores["gene_r_0.7"]} == {0.0}
    library = train.sum(axis=1, keepdims=True)
    shares = (train / library).mean(axis=0)
    expected = library * shares
    excess = ((train - expected) ** 2 - expected).sum(axis=0) / (expected**2).sum(axis=0)
    theta = 1 / np.maximum(excess, 1e-6)
    mu = test.sum(axis=1, keepdims=True) * shares
    losses = -nbinom.logpmf(test, theta, theta / (theta + mu))
    mean_cell = fit_mean_cell(table, split_data(table, CONFIG).train.rows)
    np.testing.assert_allclose(mean_cell.shares, shares, rtol=1e-5)
    np.testing.assert_allclose(mean_cell.theta, theta, rtol=1e-3)
    # Every gene is hidden in about as many of the 32 draws.
    assert scores["masked_loss"] == pytest.approx(losses.mean(), rel=0.05)
    assert scores["masked_loss"] == pytest.approx(np.mean([scores[f"masked_loss_{ratio:g}"] for ratio in LOSS_RATIOS]))
    found = recorder.item_scores()
    assert found is not None
    assert found.scores["masked_loss"].mean() == pytest.approx(scores["masked_loss"], rel=1e-5)
    assert not {"score", "effective_rank"} & scores.keys()


def test_genes_without_counts_have_a_finite_loss(table: CellTable) -> None:
    """A gene that no training cell has, and one that varies less than by chance."""
    train = split_data(table, CONFIG).train.rows
    counts = table.counts.rows(np.arange(CELLS)).toarray()
    counts[train, 0], counts[:, 1] = 0, 5
    changed = replace(table, counts=Counts(csr_matrix(counts)))
    mean_cell = fit_mean_cell(changed, train)
    assert mean_cell.shares[0] == pytest.approx(0.5 / counts[train].sum(), rel=1e-2)
    assert mean_cell.theta[1] == pytest.approx(1e6)
    assert np.isfinite(scores_of(changed, CONFIG, "mean")["masked_loss"])


def test_the_gaussian_predicts_hidden_genes_from_kept_ones(table: CellTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the textbook formula with the covariance of scikit-learn; the library is estimated from the kept genes."""
    monkeypatch.setattr(baselines, "_FEW_CELLS", 40)
    train, test = held_out(table)
    scores = scores_of(table, CONFIG, "gaussian")
    fitted, hidden = LedoitWolf().fit(logs(train)), hidden_genes(0.3)
    kept = ~hidden
    shares = (train / train.sum(axis=1, keepdims=True)).mean(axis=0)
    library = np.maximum(test[:, kept].sum(axis=1, keepdims=True) / shares[kept].sum(), 1)
    seen = np.log1p(1e4 * test[:, kept] / library) - fitted.location_[kept]
    weights = np.linalg.solve(fitted.covariance_[np.ix_(kept, kept)], seen.T)
    predicted = (fitted.location_[hidden] + (fitted.covariance_[np.ix_(hidden, kept)] @ weights).T).clip(0)
    measured = logs(test)[:, hidden]
    varies = measured.std(axis=0) > 0
    by_gene = [
        np.corrcoef(one, other)[0, 1] for one, other in zip(predicted.T[varies], measured.T[varies], strict=True)
    ]
    assert scores["gene_r_0.3"] == pytest.approx(np.mean(by_gene), abs=1e-4)
    by_cell = [np.corrcoef(one, other)[0, 1] for one, other in zip(predicted, measured, strict=True)]
    assert scores["reconstruction_r_0.3"] == pytest.approx(np.nanmean(by_cell), abs=1e-4)
    assert scores["gene_r"] > 0.2
    assert "masked_loss" not in scores


def test_hidden_counts_do_not_change_what_the_gaussian_predicts(table: CellTable) -> None:
    cells, hidden = CellBatches(table), torch.tensor([2, 5, 7])
    shares = torch.from_numpy(fit_mean_cell(table, np.arange(CELLS)).shares)
    gaussian = GaussianConditionalMean.fit(baselines.log_normalized_expression(table, np.arange(CELLS)))
    predict = partial(baselines.expected_by_gaussian, gaussian, shares)
    batch = cells.batch(np.arange(20), Key.root(0))
    other = {**batch, "values": batch["values"].clone()}
    other["values"][torch.isin(batch["indices"].long(), hidden)] += 100
    np.testing.assert_array_equal(predict(batch, hidden)[:, hidden], predict(other, hidden)[:, hidden])


def test_a_covariance_that_does_not_fit_into_memory_is_refused(
    table: CellTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "memory_share", lambda: 10 * 8 * GENES**2 - 1)
    with pytest.raises(UserError, match=r"the baseline gaussian needs .* omit the"):
        DOMAIN.check_baseline_sizes(CONFIG, ["mean", "gaussian"], split_data(table, CONFIG))


def test_without_validation_cells_there_is_nothing_to_predict(table: CellTable, written: str) -> None:
    none = CONFIG.replace(validation=0.0)
    for name in ("mean", "gaussian"):
        with pytest.raises(UserError, match=f"unknown baseline '{name}'"):
            scores_of(table, none.replace(data=written), name)


def test_an_embedding_that_is_not_there_is_named(table: CellTable, written: str) -> None:
    with pytest.raises(UserError, match=r"unknown key of \.obsm 'X_uce': .*X_scgpt"):
        obsm_embedding(table, written, "X_uce")


@pytest.mark.usefixtures("shared_data")
def test_expression_of_real_cells_tells_their_types() -> None:
    """B cells, memory and regulatory T cells of 44 donors: cell types are easy, ages are not."""
    config = CellsConfig.make(data="csle", donor_key="donor", labels=("cell_type", "condition"), regress=("age",))
    table = load_cells("csle")
    assert split_donors(table, config).test.sum() == 44 - 26
    scores = scores_of(table, config, "pca")
    assert scores["cell_type_bacc"] > 0.85
    assert scores["cell_type_auroc"] > 0.95
    assert -0.2 < scores["age_spearman_cell"] < 0.8
