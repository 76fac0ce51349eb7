"""A trained model on cells: representation, expected expression, imputation; on new data mapped onto its genes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from errno import EACCES, EEXIST, EISDIR, ENOENT, ENOTDIR, EPERM, EROFS
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from r2mae.cells.batches import CellBatches
from r2mae.cells.config import CellsConfig
from r2mae.cells.covariate import align_batches
from r2mae.cells.hdf5 import atomic_hdf5
from r2mae.cells.sources import path_of, read_adata, read_obs
from r2mae.cells.stored import opened
from r2mae.cells.table import CellTable, load_cells, tell
from r2mae.errors import UserError, unknown
from r2mae.files import write_arrays
from r2mae.training.validation import EVALUATION_KEY, evaluating, to_device

if TYPE_CHECKING:
    from r2mae.cells.task import CountModel, GeneTask

_BATCH = 2048
_NO_PLACE = (EACCES, EPERM, EROFS, ENOTDIR, EISDIR, EEXIST, ENOENT)


def batches_of(
    table: CellTable, device: torch.device, size: int = _BATCH, rows: Int64[np.ndarray, " n"] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield a table's cells (or some of them) in order, on the device."""
    batches = CellBatches(table, rows)
    for first in range(0, len(batches), size):
        places = np.arange(first, min(first + size, len(batches)))
        yield to_device(batches.batch(places, EVALUATION_KEY.rows(first)), device)


def embed_rows(
    task: "GeneTask",
    model: "CountModel",
    table: CellTable,
    rows: Int64[np.ndarray, " n"] | None = None,
    size: int = _BATCH,
) -> Float32[np.ndarray, "n latent"]:
    """Embed cells of a table, without a mask.

    Parameters
    ----------
    task, model
        Of a run.
    table : CellTable
        Its batches numbered as the model's.
    rows : ndarray of int, optional
        Which cells; by default all.
    size : int
        Cells at a time.
    """
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        parts = [task.embed(model, batch).float().cpu() for batch in batches_of(table, device, size, rows)]
    return torch.cat(parts).numpy()


def expected_expression(
    task: "GeneTask",
    model: "CountModel",
    table: CellTable,
    genes: Sequence[str],
    *,
    hide: bool = False,
    library_size: float | str = 1.0,
    decoder_batch: str | None = None,
    size: int = _BATCH,
) -> pd.DataFrame:
    """Return what the decoder expects of some genes, cells by genes.

    Parameters
    ----------
    task, model
        Of a run.
    table : CellTable
        Its genes those of the model, its batches numbered as the model's.
    genes : sequence of str
    hide : bool
        Hide these genes from the model.
    library_size : float or "observed"
        Multiplies the share of the library that a gene is expected to have; "observed" is each cell's own total.
    decoder_batch : str, optional
        Training batch that the decoder takes for all cells; by default that of the encoder.
    size : int
        Cells at a time.

    Raises
    ------
    UserError
        For genes that the model does not have, or none; or another text than "observed".
    """
    if isinstance(library_size, str) and library_size != "observed":
        raise UserError(f"library_size takes a number or 'observed', not {library_size!r}")
    places = {gene: place for place, gene in enumerate(table.genes)}
    for gene in genes:
        if gene not in places:
            raise unknown("gene", gene, places)
    if not genes:
        raise UserError("genes is empty: name one gene or more")
    device = next(model.parameters()).device
    columns = torch.tensor([places[gene] for gene in genes], device=device)
    parts = []
    with evaluating(model):
        for batch in batches_of(table, device, size):
            other = None
            if decoder_batch is not None:
                other = torch.full_like(batch["batch"], table.batches.index(decoder_batch))
            share, library = task.expected(model, batch, hidden=columns if hide else None, decoder_batch=other)
            scale = library[:, None] if library_size == "observed" else float(library_size)
            parts.append((share[:, columns] * scale).cpu().numpy())
    return pd.DataFrame(np.concatenate(parts), index=table.obs.index, columns=list(genes))


def embed_source(
    config: CellsConfig,
    task: "GeneTask",
    model: "CountModel",
    source: str,
    *,
    transform_batch: str | None = None,
    layer: str | None = None,
) -> dict[str, np.ndarray]:
    """Embed the cells of a file: `embedding`, `cells` (their names), and each label column that is there.

    Parameters
    ----------
    config, task, model
        Of a run.
    source : str
        A named set or a path.
    transform_batch : str, optional
        See :func:`align_batches`.
    layer : str, optional
        Where the counts of this file are ("X" for X); by default as in the run.

    Raises
    ------
    UserError
        As :func:`r2mae.cells.table.load_cells` and :func:`align_batches`.
    """
    # Batches come first: what is wrong with them is told before the counts of a large file are read.
    batch = align_batches(source, read_obs(source), config.batch_key, model.batch_names, transform_batch)
    table = tell(load_cells(source, layer=config.layer if layer is None else layer, genes=model.gene_names))
    table = replace(table, batch=batch, batches=model.batch_names)
    arrays: dict[str, np.ndarray] = {
        "embedding": embed_rows(task, model, table),
        "cells": table.obs.index.to_numpy().astype(str),
    }
    for column in (*config.labels, *config.regress, *filter(None, (config.donor_key,))):
        if column in table.obs:
            arrays[column] = table.obs[column].astype(str).to_numpy().astype(str)
    return arrays


def write_embedding(output: Path, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Write arrays as .npz, or the source with ``.obsm["X_r2mae"]`` as .h5ad, whole or not at all.

    An .h5ad file is copied and the embedding added: all else stays as it is, and needs no memory.

    Raises
    ------
    UserError
        If the source has other cells than were embedded, or the output's place cannot be written.
    OSError
        If the disk is full.
    """
    write = write_arrays if output.suffix == ".npz" else partial(_write_h5ad, source=source)
    try:
        write(output, arrays)
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise UserError(f"{output} cannot be written ({error.strerror}): name another place, -o FILE") from None


def _write_h5ad(output: Path, arrays: Mapping[str, np.ndarray], source: str) -> None:
    import anndata
    from anndata.io import write_elem

    path = path_of(source)
    with opened(path) as store:
        copied = not path.is_dir() and not hasattr(store.get("obsm", {}), "dtype")  # long ago obsm was one array
    with pd.option_context("mode.string_storage", "python"):  # anndata writes no strings of pyarrow's
        adata = None if copied else read_adata(source)
    # pandas 3 keeps names as its own strings, which anndata writes only when told to.
    with (
        anndata.settings.override(allow_write_nullable_strings=True),
        atomic_hdf5(output, path if copied else None) as made,
    ):
        if adata is not None:
            write_elem(made, "/", adata)
        _check_cells(made, arrays["cells"], source)
        obsm = made.require_group("obsm")
        if not obsm.attrs:
            obsm.attrs["encoding-type"], obsm.attrs["encoding-version"] = "dict", "0.1.0"
        write_elem(obsm, "X_r2mae", arrays["embedding"])


def _check_cells(store: Any, cells: np.ndarray, source: str) -> None:
    """Make sure that these are the cells of the file in its order, none left out (names need not be unique)."""
    from anndata.io import read_elem

    if list(cells) != list(read_elem(store["obs"]).index.astype(str)):
        raise UserError(f"{source} has other cells than were embedded: it changed meanwhile; embed it again")
