"""Embeddings that models of cells are compared with: expression, its principal components, scVI, any ``.obsm``."""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int64

from r2mae.cells.config import CellsConfig
from r2mae.cells.donors import MAX_CELLS
from r2mae.cells.evaluate import TARGET_SUM, evaluate_embedding
from r2mae.cells.sources import path_of
from r2mae.cells.stored import opened
from r2mae.errors import UserError, nearest, unknown
from r2mae.masking.keys import Key, permutation

if TYPE_CHECKING:
    from anndata import AnnData
    from scipy.sparse import csr_matrix

    from r2mae.cells.table import CellTable

BASELINES = ("expression", "pca", "scvi")
_FIT_CELLS = 100_000  # principal axes of more cells are found on so many of them
_CHUNK = 8192


def log_normalized_expression(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n genes"]:
    """Return ``log(1 + 10,000 x / total)`` of some cells, dense: the paper's "Normalized exp."."""
    return np.asarray(_log_normalized(table, rows).toarray(), dtype=np.float32)


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


def scvi_embedding(table: "CellTable", config: CellsConfig, **options: Any) -> Float32[np.ndarray, "cells latent"]:
    """Train scVI with scvi-tools and return the means of its posteriors.

    By default at the sizes and with the training of the configuration: n_hidden, n_latent, two hidden layers (as our
    encoder), negative binomial likelihood, epochs (or as many as make its steps), batch_size, lr, weight_decay, the
    same part of the cells held out, and batch_key as its batch. scvi-tools seeds the global generators of NumPy and
    torch.

    Parameters
    ----------
    table : CellTable
    config : CellsConfig
    **options
        `n_hidden`, `n_latent`, `n_layers`, `gene_likelihood`, `max_epochs` or `batch_size`, to depart from these.

    Raises
    ------
    UserError
        If scvi-tools is not installed, or an option is unknown.
    """
    try:
        import scvi
    except ImportError:
        raise UserError(
            "scVI needs scvi-tools: pip install 'r2mae[scvi]', or leave scvi out of the baselines"
        ) from None
    from anndata import AnnData

    values: dict[str, Any] = {
        "n_hidden": config.n_hidden,
        "n_latent": config.n_latent,
        "n_layers": 2,
        "gene_likelihood": "nb",
        "max_epochs": _epochs_of(config, table.counts.shape[0]),
        "batch_size": config.batch_size,
    }
    for name in options:
        if name not in values:
            raise unknown("option of scVI", name, values)
    values.update(options)
    cells = table.counts.shape[0]
    parts = [table.counts.rows(np.arange(first, min(first + _CHUNK, cells))) for first in range(0, cells, _CHUNK)]
    adata = AnnData(_stack(parts).astype(np.float32), obs=_scvi_obs(table))
    with _quietly():
        scvi.settings.seed = config.seed
        scvi.model.SCVI.setup_anndata(adata, batch_key="batch" if len(table.batches) > 1 else None)
        sizes = {name: values[name] for name in ("n_hidden", "n_latent", "n_layers", "gene_likelihood")}
        model = scvi.model.SCVI(adata, **sizes)
        held_out = round(config.validation * cells) if config.validation else 0
        batch = min(values["batch_size"], max(2, cells - held_out))
        model.train(
            max_epochs=values["max_epochs"],
            batch_size=batch,
            train_size=(cells - held_out) / cells,
            accelerator="cpu" if config.device == "cpu" else "auto",
            plan_kwargs={"lr": config.lr, "weight_decay": config.weight_decay},
            # A last mini-batch of one cell cannot be normalised.
            datasplitter_kwargs={"drop_last": (cells - held_out) % batch == 1},
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        return np.asarray(model.get_latent_representation(batch_size=_CHUNK), dtype=np.float32)


def _epochs_of(config: CellsConfig, cells: int) -> int:
    """Passes over the training cells, where the configuration counts steps."""
    if config.steps is None:
        return max(1, round(config.epochs))
    trained = cells - round(config.validation * cells) if config.validation else cells
    return max(1, round(config.steps / math.ceil(trained / config.batch_size)))


def obsm_embedding(table: "CellTable", adata: "AnnData", key: str) -> Float32[np.ndarray, "cells width"]:
    """Take an embedding that lies in ``.obsm`` (of scGPT or UCE, for instance), for the cells of a table by name.

    Raises
    ------
    UserError
        No such key, names of cells that are not unique, or a cell of the table that has none.
    """
    if key not in adata.obsm:
        known = list(adata.obsm.keys())
        remedy = nearest(key, known) if known else "it has none"
        raise UserError(f"{table.name}: no embedding {key!r} in obsm: {remedy}")
    if not adata.obs_names.is_unique:
        raise UserError(f"{table.name}: names of cells are not unique: call adata.obs_names_make_unique()")
    places = adata.obs_names.get_indexer(table.obs.index)
    if (places < 0).any():
        missing = table.obs.index[int(np.argmax(places < 0))]
        raise UserError(f"{table.name}: obsm {key!r} has no row for the cell {missing!r}: take it from the same file")
    values = adata.obsm[key]
    values = values.to_numpy() if hasattr(values, "to_numpy") else values
    values = values.toarray() if hasattr(values, "toarray") else values
    rows: np.ndarray = np.asarray(values, dtype=np.float32)[places]
    return rows


def stored_obsm(source: str) -> "AnnData":
    """Read the names of a file's cells and its ``.obsm``, and no counts."""
    from anndata import AnnData
    from anndata.io import read_elem

    with opened(path_of(source)) as store:
        obs, obsm = read_elem(store["obs"]), read_elem(store["obsm"]) if "obsm" in store else {}
    return AnnData(obs=obs[[]], obsm=dict(obsm))


def baseline_scores(
    table: "CellTable",
    config: CellsConfig,
    baselines: Sequence[str] = ("expression", "pca"),
    *,
    adata: "AnnData | None" = None,
    scvi: Mapping[str, Any] | None = None,
    intervals: bool = False,
    max_cells: int = MAX_CELLS,
) -> dict[str, dict[str, float]]:
    """Score baselines as :func:`r2mae.cells.evaluate.evaluate_embedding` scores a model, on the same cells.

    Parameters
    ----------
    table : CellTable
    config : CellsConfig
        Its seed divides the donors and seeds scVI.
    baselines : sequence of str
        ``expression``, ``pca``, ``scvi``, or a key of ``adata.obsm``.
    adata : AnnData, optional
        Where other embeddings are.
    scvi : mapping, optional
        Options of :func:`scvi_embedding`.
    intervals, max_cells
        As in :func:`r2mae.cells.evaluate.evaluate`.

    Returns
    -------
    dict
        Scores by baseline.

    Raises
    ------
    UserError
        For a baseline that is none.
    """
    there = [] if adata is None else [str(key) for key in adata.obsm]
    for name in baselines:  # before any of them takes hours
        if name not in BASELINES and name not in there:
            raise unknown("baseline", name, [*BASELINES, *there])
    made: dict[str, dict[str, float]] = {}
    for name in baselines:
        embedding: Any
        if name in there and adata is not None:
            embedding = obsm_embedding(table, adata, name)
        elif name == "expression":
            embedding = partial(log_normalized_expression, table)
        elif name == "pca":
            embedding = pca_embedding(table, seed=config.seed)
        else:
            embedding = scvi_embedding(table, config, **(scvi or {}))
        made[name] = evaluate_embedding(table, embedding, config, intervals=intervals, max_cells=max_cells)
    return made


def _log_normalized(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> "csr_matrix":
    parts = []
    for first in range(0, len(rows), _CHUNK):
        part = table.counts.rows(rows[first : first + _CHUNK]).astype(np.float32)
        total = np.maximum(np.asarray(part.sum(axis=1)).ravel(), 1.0)
        part.data = np.log1p(part.data * np.repeat((TARGET_SUM / total).astype(np.float32), np.diff(part.indptr)))
        parts.append(part)
    return _stack(parts)


def _stack(parts: "Sequence[csr_matrix]") -> "csr_matrix":
    from scipy.sparse import csr_matrix, vstack

    return csr_matrix(vstack(parts, format="csr"))


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep Lightning's advice and its warnings of its own deprecated calls out of a comparison's output."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _scvi_obs(table: "CellTable") -> Any:
    import pandas as pd

    names = pd.Categorical.from_codes(table.batch, categories=pd.Index([str(name) for name in table.batches]))
    return pd.DataFrame({"batch": names}, index=table.obs.index.astype(str))
