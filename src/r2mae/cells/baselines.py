"""Baselines for cells: expression, its principal components, scVI, keys of ``.obsm``; the mean; a Gaussian."""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from r2mae.cells.batches import split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.donors import probe_cells
from r2mae.cells.evaluate import (
    LOSS_RATIOS,
    TARGET_SUM,
    by_ratio,
    embedded_rows,
    evaluate_embedding,
    masked_gene_losses,
    reconstruction_scores,
)
from r2mae.cells.models.mlp import CountAutoencoder
from r2mae.cells.table import opened, path_of, read_element, read_obs
from r2mae.cells.task import CSR, GeneTask, dense
from r2mae.errors import UserError, unknown
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.masking.keys import Key, permutation

if TYPE_CHECKING:
    from anndata import AnnData
    from scipy.sparse import csr_matrix

    from r2mae.cells.table import CellTable
    from r2mae.evaluation.items import ItemRecorder

_FIT_CELLS = 100_000  # principal axes are computed from at most this many cells
_CHUNK = 8192
_COPIES = 3  # of dense expression while it is probed: all rows, those of a probe, and its training rows as float64
_KL_WARMUP = 400  # epochs, as in scvi-tools
_FEW_CELLS = 1024  # whose expression, dense, a Gaussian is fitted to at a time
_POISSON = 1e6  # inverse dispersion of genes that vary no more than by chance


def log_normalized_expression(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n genes"]:
    """Return ``log(1 + 10,000 x / total)`` of some cells, dense: the paper's "Normalized exp."."""
    return np.asarray(_log_normalized(table, rows).toarray(), dtype=np.float32)


def dense_bytes(table: "CellTable", config: CellsConfig) -> int:
    """Return the memory that dense expression needs while it is probed, in bytes."""
    rows = len(embedded_rows(table, config, probe_cells(table, config)[0])[1])
    return _COPIES * 4 * rows * table.counts.shape[1]


def pca_embedding(table: "CellTable", width: int = 50, seed: int = 0) -> Float32[np.ndarray, "cells width"]:
    """Project log-normalised expression on its principal axes (as many as cells and genes allow)."""
    from sklearn.decomposition import PCA

    cells, genes = table.counts.shape
    chosen = np.sort(permutation(Key.root(seed).fold("principal axes"), cells)[:_FIT_CELLS])
    width = min(width, len(chosen) - 1, genes - 1)
    if width < 1:
        raise UserError(f"{table.name}: principal components need two cells and two genes")
    axes = PCA(width, svd_solver="arpack", random_state=seed).fit(_log_normalized(table, chosen))
    parts = [
        axes.transform(_log_normalized(table, np.arange(first, min(first + _CHUNK, cells))))
        for first in range(0, cells, _CHUNK)
    ]
    return np.concatenate(parts).astype(np.float32)


def obsm_embedding(table: "CellTable", source: str, key: str) -> Float32[np.ndarray, "cells width"]:
    """Return an embedding from ``.obsm`` of a file (of scGPT or UCE, for instance) for the cells of a table, by name.

    Raises
    ------
    UserError
        If the key does not exist, names of cells are not unique, or a cell of the table has no embedding.
    """
    path = path_of(source)
    with opened(path) as store:
        stored = tuple(map(str, store.get("obsm", ())))
        if key not in stored:
            raise unknown("key of .obsm", key, stored)
        values = read_element(path, store, f"obsm/{key}")
    names = read_obs(source).index
    if not names.is_unique:
        raise UserError(f"{table.name}: names of cells are not unique: call adata.obs_names_make_unique()")
    rows_of_cells = names.get_indexer(table.obs.index)
    if (rows_of_cells < 0).any():
        missing = table.obs.index[int(np.argmax(rows_of_cells < 0))]
        raise UserError(f"{table.name}: obsm {key!r} has no row for the cell {missing!r}: take it from the same file")
    values = values.toarray() if hasattr(values, "toarray") else values
    rows: np.ndarray = np.asarray(values, dtype=np.float32)[rows_of_cells]
    return rows


class MeanCell(NamedTuple):
    """The mean cell, by gene: shares of the library and dispersions, above zero; means of log-normalised expression."""

    shares: Float32[np.ndarray, " genes"]
    theta: Float32[np.ndarray, " genes"]
    mean_log: Float32[np.ndarray, " genes"]

    @torch.no_grad()
    def model(self) -> CountAutoencoder:
        """Return a model that predicts the mean cell for every cell: its biases at the end, and otherwise zeros."""
        model = CountAutoencoder(len(self.shares), n_hidden=1, n_latent=1)
        for weights in model.parameters():
            weights.zero_()
        model.get_parameter("decoder.2.bias").copy_(torch.from_numpy(np.log(self.shares)))
        model.log_theta.copy_(torch.from_numpy(np.log(self.theta)))
        return model


def fit_mean_cell(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> MeanCell:
    """Return the mean cell of some cells.

    Shares are means of the cells' own; genes without counts get half a count of all. With library L and share f of a
    gene, the dispersion 1/θ is (Σ (x − L f)² − Σ L f) / Σ (L f)²: the moments of a negative binomial.
    """
    genes = table.counts.shape[1]
    shares, logs, squares, weighted = np.zeros((4, genes))
    library, library_squares = 0.0, 0.0
    for part in np.array_split(rows, -(-len(rows) // _CHUNK)):
        counts = table.counts.rows(part).astype(np.float64)
        total = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
        shares += counts.T @ (1 / total)
        weighted += counts.T @ total
        squares += np.asarray(counts.power(2).sum(axis=0)).ravel()
        logs += np.asarray(_log_normalized(table, part).sum(axis=0)).ravel()
        library, library_squares = library + total.sum(), library_squares + (total**2).sum()
    shares = np.maximum(shares / len(rows), 0.5 / library)
    shares /= shares.sum()
    expected_squares = shares**2 * library_squares
    excess = squares - 2 * shares * weighted + expected_squares - shares * library
    theta = 1 / np.clip(excess / expected_squares, 1 / _POISSON, _POISSON)
    return MeanCell(*(values.astype(np.float32) for values in (shares, theta, logs / len(rows))))


@torch.no_grad()
def expected_by_gaussian(
    gaussian: GaussianConditionalMean,
    shares: Float[Tensor, " genes"],
    batch: CSR,
    hidden: Int64[Tensor, " hidden"],
) -> Float[Tensor, "cells genes"]:
    """Predict log-normalised expression of hidden genes by a Gaussian's conditional mean, at least zero.

    As the models it sees nothing of the hidden counts. So it estimates a cell's library from the kept ones: their sum
    by the share of the kept genes in the mean cell, which `shares` gives.
    """
    mask = torch.zeros(len(shares), dtype=torch.bool).index_fill_(0, hidden, True)
    kept = dense(batch, len(mask)).index_fill_(1, hidden, 0.0)
    library = (kept.sum(1, keepdim=True) / shares[~mask].sum()).clamp(min=1.0)
    filled = gaussian.fill((kept * (TARGET_SUM / library)).log1p().numpy(), mask.numpy())
    return torch.from_numpy(filled.clip(0.0).astype(np.float32))


def score_mean(table: "CellTable", config: CellsConfig, items: "ItemRecorder | None" = None) -> dict[str, float]:
    """Score the mean training cell at hidden genes of validation cells.

    The loss takes its shares of the library, correlations its mean log-normalised expression. `items` records the share
    of each cell in the loss.
    """
    data, genes = split_data(table, config), table.counts.shape[1]
    if data.validation is None:
        return {}
    mean = fit_mean_cell(table, data.train.rows)
    losses = masked_gene_losses(GeneTask(genes), mean.model(), data.validation, items=items)

    def mean_of(batch: CSR, hidden: Tensor) -> Tensor:
        return torch.from_numpy(mean.mean_log).expand(len(batch["batch"]), -1)

    reconstructed = reconstruction_scores(mean_of, genes, data.validation, logged=True)
    return by_ratio("masked_loss", LOSS_RATIOS, losses) | reconstructed


def score_gaussian(table: "CellTable", config: CellsConfig) -> dict[str, float]:
    """Score the conditional mean of a Gaussian (:func:`expected_by_gaussian`) at hidden genes of validation cells."""
    data = split_data(table, config)
    if data.validation is None:
        return {}
    rows = data.train.rows

    def parts() -> Iterator[np.ndarray]:
        starts = range(0, len(rows), _FEW_CELLS)
        return (log_normalized_expression(table, rows[first : first + _FEW_CELLS]) for first in starts)

    shares = torch.from_numpy(fit_mean_cell(table, rows).shares)
    expected = partial(expected_by_gaussian, GaussianConditionalMean.fit(parts), shares)
    return reconstruction_scores(expected, table.counts.shape[1], data.validation, logged=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages and warnings of scvi-tools and of Lightning, which trains it."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def scvi_data(table: "CellTable") -> "AnnData":
    """Return the counts of a table and their batches, set up for scVI."""
    import scvi
    from anndata import AnnData
    from pandas import Categorical, DataFrame

    names = Categorical(np.array(table.batches, dtype=object)[table.batch], categories=list(table.batches))
    obs = DataFrame({"batch": names}, index=table.obs.index.astype(str))
    adata = AnnData(table.counts.rows(np.arange(table.counts.shape[0])).astype(np.float32), obs=obs)
    scvi.model.SCVI.setup_anndata(adata, batch_key="batch" if len(table.batches) > 1 else None)
    return adata


def train_scvi(table: "CellTable", config: CellsConfig) -> Any:
    """Train scVI with scvi-tools, and return its model.

    Sizes and training are those of the configuration: n_hidden, n_latent, two hidden layers (as our
    encoder), negative binomial likelihood, epochs (or the number of epochs that makes its steps), batch_size, lr,
    weight_decay, the same validation cells, and batch_key. As in scvi-tools the decoder has as many hidden layers as
    the encoder (ours has one). The weight of the Kullback-Leibler term rises to one over 400 epochs, or over the whole
    training if that is shorter; otherwise the term would have little effect. scvi-tools seeds the global generators of
    NumPy and torch.
    """
    import scvi

    data = split_data(table, config)
    trained, held_out = data.train.rows, np.zeros(0, np.int64) if data.validation is None else data.validation.rows
    batch = min(config.optimizer.batch_size, max(2, len(trained)))
    steps, passes = config.optimizer.steps, config.optimizer.epochs
    epochs = max(1, round(passes if steps is None else steps / math.ceil(len(trained) / config.optimizer.batch_size)))
    with _quiet():
        scvi.settings.seed = config.seed
        adata = scvi_data(table)
        sizes = {"n_hidden": config.model.n_hidden, "n_latent": config.model.n_latent, "n_layers": 2}
        model = scvi.model.SCVI(adata, gene_likelihood="nb", **sizes)
        model.train(
            max_epochs=epochs,
            batch_size=batch,
            accelerator="cpu" if config.machine.device == "cpu" else "auto",
            plan_kwargs={
                "lr": config.optimizer.peak_lr,
                "weight_decay": config.optimizer.weight_decay,
                "n_epochs_kl_warmup": min(_KL_WARMUP, epochs),
            },
            datasplitter_kwargs={
                "external_indexing": [trained, held_out],
                "drop_last": len(trained) % batch == 1,  # a last mini-batch of one cell cannot be normalised
            },
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    model.to_device("cpu")
    return model


@torch.no_grad()
def expected_by_scvi(model: Any, batch: CSR, hidden: Int64[Tensor, " hidden"]) -> Float[Tensor, "cells genes"]:
    """Return each gene's expected fraction of the library, at the posterior's mean; hidden genes are zeros."""
    module = model.module.eval()
    counts = dense(batch, model.summary_stats.n_vars)
    library = counts.sum(1, keepdim=True).clamp(min=1.0).log()
    counts.index_fill_(1, hidden, 0.0)
    covariate = batch["batch"][:, None]
    # scVI's own library size is the logarithm of zero for a cell whose expressed genes are all hidden.
    posterior, _ = module.z_encoder(counts.log1p(), covariate)
    share: Tensor = module.generative(posterior.loc, library, covariate)["px"].scale
    return share


def score_scvi(table: "CellTable", config: CellsConfig) -> dict[str, float]:
    """Train scVI (:func:`train_scvi`), and score its embedding and its prediction of hidden genes."""
    model = train_scvi(table, config)
    with _quiet():
        embedding = np.asarray(model.get_latent_representation(batch_size=_CHUNK), dtype=np.float32)
    scores = evaluate_embedding(table, embedding, config)
    if (held_out := split_data(table, config).validation) is None:
        return scores
    return scores | reconstruction_scores(partial(expected_by_scvi, model), table.counts.shape[1], held_out)


def _log_normalized(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> "csr_matrix":
    chosen = table.counts.rows(rows).astype(np.float32)
    total = np.maximum(np.asarray(chosen.sum(axis=1)).ravel(), 1.0)
    chosen.data = np.log1p(chosen.data * np.repeat((TARGET_SUM / total).astype(np.float32), np.diff(chosen.indptr)))
    return chosen
