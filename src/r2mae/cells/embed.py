"""A trained model on cells: representation, expected expression, imputation; on new data mapped onto its genes."""

from collections.abc import Iterator, Mapping
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
from r2mae.cells.hdf5 import atomic_hdf5
from r2mae.cells.model import CountAutoencoder
from r2mae.cells.sources import path_of, read_adata
from r2mae.cells.stored import opened
from r2mae.cells.table import CellTable, load_cells, tell
from r2mae.errors import UserError, unknown
from r2mae.files import write_arrays
from r2mae.training.validation import evaluating, to_device

if TYPE_CHECKING:
    from torch import nn

    from r2mae.cells.task import GeneTask

_BATCH = 2048
_NO_PLACE = (EACCES, EPERM, EROFS, ENOTDIR, EISDIR, EEXIST, ENOENT)


def batches_of(table: CellTable, device: torch.device, size: int = _BATCH) -> Iterator[dict[str, Tensor]]:
    """Yield a table's cells in order, on the device."""
    batches = CellBatches(table)
    for first in range(0, len(batches), size):
        rows = np.arange(first, min(first + size, len(batches)))
        yield to_device(batches.__getitems__(rows), device)


def embed_table(
    task: "GeneTask", model: "nn.Module", table: CellTable, size: int = _BATCH
) -> Float32[np.ndarray, "cells latent"]:
    """Embed every cell of a table, without a mask."""
    device = next(model.parameters()).device
    with evaluating(model):
        parts = [task.embed(model, batch) for batch in batches_of(table, device, size)]
    return torch.cat(parts).float().cpu().numpy()


def align_batches(
    table: CellTable, known: tuple[str, ...], transform_batch: str | None = None
) -> Int64[np.ndarray, " cells"]:
    """Number a table's batches as in training.

    Parameters
    ----------
    table : CellTable
    known : tuple of str
        The model's batches.
    transform_batch : str, optional
        Take this training batch for all cells.

    Raises
    ------
    UserError
        If a batch is new to the model, or `transform_batch` is none of its own.
    """
    if transform_batch is not None:
        if transform_batch not in known:
            raise unknown("batch", transform_batch, known)
        return np.full(len(table.batch), known.index(transform_batch))
    if len(known) == 1:
        return np.zeros(len(table.batch), dtype=np.int64)
    new = [name for name in table.batches if name not in known]
    if new:
        listed = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
        raise UserError(
            f"{table.name}: the model has never seen the batch{'es' if len(new) > 1 else ''} {listed}: "
            f"name a training batch to take for them, such as transform_batch={known[0]!r} (--transform-batch)"
        )
    places = np.array([known.index(name) for name in table.batches], dtype=np.int64)
    return np.asarray(places[table.batch])


def embed_source(
    config: CellsConfig, task: "GeneTask", model: "nn.Module", source: str, transform_batch: str | None = None
) -> dict[str, np.ndarray]:
    """Embed the cells of a file: `embedding`, `cells` (their names), and each label column that is there."""
    from dataclasses import replace

    assert isinstance(model, CountAutoencoder)
    genes, known = model.gene_names, model.batch_names
    batch_key = None if transform_batch is not None else config.batch_key
    table = tell(load_cells(source, layer=config.layer, batch_key=batch_key, genes=genes))
    table = replace(table, batch=align_batches(table, known, transform_batch), batches=known)
    arrays: dict[str, np.ndarray] = {
        "embedding": embed_table(task, model, table),
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
