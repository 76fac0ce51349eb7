"""Baseline embeddings of cells: expression, its principal components, scVI, and any key of ``.obsm``."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int64

from r2mae.cells.batches import split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.donors import probe_cells
from r2mae.cells.evaluate import TARGET_SUM, embedded_rows, evaluate_embedding, reconstruction_scores
from r2mae.cells.scvi_baseline import train_scvi
from r2mae.cells.sources import memory_limit, opened, path_of, read_element, read_obs
from r2mae.errors import UserError, nearest, unknown
from r2mae.masking.keys import Key, permutation

if TYPE_CHECKING:
    from anndata import AnnData
    from scipy.sparse import csr_matrix

    from r2mae.cells.table import CellTable

BASELINES = ("expression", "pca", "scvi")
_FIT_CELLS = 100_000  # principal axes are computed from at most this many cells
_CHUNK = 8192
_COPIES = 3  # of dense expression while it is probed: all rows, those of a probe, and its training rows as float64


def log_normalized_expression(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n genes"]:
    """Return ``log(1 + 10,000 x / total)`` of some cells, dense: the paper's "Normalized exp."."""
    return np.asarray(_log_normalized(table, rows).toarray(), dtype=np.float32)


def check_expression(table: "CellTable", config: CellsConfig) -> None:
    """Refuse expression of cells that, dense and with its copies, does not fit into memory."""
    rows = len(embedded_rows(table, config, probe_cells(table, config)[0])[1])
    genes, limit = table.counts.shape[1], memory_limit()
    if (size := _COPIES * 4 * rows * genes) > limit:
        raise UserError(
            f"the baseline expression makes {rows:,} cells of {genes:,} genes dense, which needs {size / 2**30:,.3g} "
            f"GiB of memory, and the limit is {limit / 2**30:,.3g} GiB: take fewer cells (--max-cells COLUMN=NUMBER) "
            "or genes (--n-top-genes), lower --jobs of a comparison, or omit the baseline"
        )


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


def obsm_embedding(table: "CellTable", adata: "AnnData", key: str) -> Float32[np.ndarray, "cells width"]:
    """Return an embedding from ``.obsm`` (of scGPT or UCE, for instance) for the cells of a table, matched by name.

    Raises
    ------
    UserError
        If the key does not exist, names of cells are not unique, or a cell of the table has no embedding.
    """
    if key not in adata.obsm:
        known = list(adata.obsm.keys())
        hint = nearest(key, known) if known else "it has none"
        raise UserError(f"{table.name}: no embedding {key!r} in obsm: {hint}")
    if not adata.obs_names.is_unique:
        raise UserError(f"{table.name}: names of cells are not unique: call adata.obs_names_make_unique()")
    rows_of_cells = adata.obs_names.get_indexer(table.obs.index)
    if (rows_of_cells < 0).any():
        missing = table.obs.index[int(np.argmax(rows_of_cells < 0))]
        raise UserError(f"{table.name}: obsm {key!r} has no row for the cell {missing!r}: take it from the same file")
    values = adata.obsm[key]
    values = values.to_numpy() if hasattr(values, "to_numpy") else values
    values = values.toarray() if hasattr(values, "toarray") else values
    rows: np.ndarray = np.asarray(values, dtype=np.float32)[rows_of_cells]
    return rows


def stored_obsm(source: str, keys: Sequence[str] | None = None) -> "AnnData":
    """Read the names of a file's cells and some of its ``.obsm`` (by default all), and no counts."""
    from anndata import AnnData

    path = path_of(source)
    with opened(path) as store:
        chosen = [str(key) for key in store.get("obsm", {}) if keys is None or key in keys]
        obsm = {key: read_element(path, store, f"obsm/{key}") for key in chosen}
    return AnnData(obs=read_obs(source)[[]], obsm=obsm)


def baselines_of(source: str) -> tuple[str, ...]:
    """Return the baselines that are possible for a file: :data:`BASELINES` and the keys of ``.obsm``."""
    with opened(path_of(source)) as store:
        stored = tuple(str(key) for key in store.get("obsm", {}))
    return (*BASELINES, *stored)


def baseline_scores(
    table: "CellTable", config: CellsConfig, name: str, *, adata: "AnnData | None" = None, intervals: bool = True
) -> dict[str, float]:
    """Score a baseline as :func:`~r2mae.cells.evaluate.evaluate_embedding` scores a model, on the same cells.

    The name is ``expression``, ``pca``, ``scvi`` or a key of ``adata.obsm``; the configuration's seed divides the
    donors and seeds scVI, whose reconstruction of hidden genes is also scored.

    Raises
    ------
    UserError
        For an unknown baseline, or expression that does not fit into memory.
    """
    stored = () if adata is None else tuple(map(str, adata.obsm))
    reconstructed: dict[str, float] = {}
    embedding: Any
    if adata is not None and name in stored:
        embedding = obsm_embedding(table, adata, name)
    elif name == "expression":
        check_expression(table, config)
        embedding = partial(log_normalized_expression, table)
    elif name == "pca":
        embedding = pca_embedding(table, seed=config.seed)
    elif name == "scvi":
        model = train_scvi(table, config)
        embedding = model.embedding()
        if (held_out := split_data(table, config).validation) is not None:
            reconstructed = reconstruction_scores(model.expected, table.counts.shape[1], held_out)
    else:
        raise unknown("baseline", name, [*BASELINES, *stored])
    return evaluate_embedding(table, embedding, config, intervals=intervals) | reconstructed


def _log_normalized(table: "CellTable", rows: Int64[np.ndarray, " n"]) -> "csr_matrix":
    chosen = table.counts.rows(rows).astype(np.float32)
    total = np.maximum(np.asarray(chosen.sum(axis=1)).ravel(), 1.0)
    chosen.data = np.log1p(chosen.data * np.repeat((TARGET_SUM / total).astype(np.float32), np.diff(chosen.indptr)))
    return chosen
