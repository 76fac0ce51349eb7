"""A trained model on cells: representation, expected expression, imputation; on new data mapped onto its genes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from r2mae.cells.batches import CellBatches
from r2mae.cells.config import CellsConfig
from r2mae.cells.model import CountAutoencoder
from r2mae.cells.table import CellTable, load_cells, read_adata
from r2mae.errors import UserError, unknown
from r2mae.files import atomic_path, write_arrays
from r2mae.training.validation import evaluating, to_device

if TYPE_CHECKING:
    from torch import nn

    from r2mae.cells.task import GeneTask

_BATCH = 2048


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
            f"name a training batch to take for them, transform_batch={known[0]!r}"
        )
    places = np.array([known.index(name) for name in table.batches], dtype=np.int64)
    return np.asarray(places[table.batch])


def embed_source(config: CellsConfig, task: "GeneTask", model: "nn.Module", source: str) -> dict[str, np.ndarray]:
    """Embed the cells of a file: `embedding`, `cells` (their names), and each label column that is there."""
    from dataclasses import replace

    assert isinstance(model, CountAutoencoder)
    genes, known = model.gene_names, model.batch_names
    table = load_cells(source, layer=config.layer, batch_key=config.batch_key, genes=genes)
    table = replace(table, batch=align_batches(table, known), batches=known)
    arrays: dict[str, np.ndarray] = {
        "embedding": embed_table(task, model, table),
        "cells": table.obs.index.to_numpy().astype(str),
    }
    for column in (*config.labels, *config.regress, *filter(None, (config.donor_key,))):
        if column in table.obs:
            arrays[column] = table.obs[column].astype(str).to_numpy().astype(str)
    return arrays


def write_embedding(output: Path, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Write arrays as .npz, or the source's AnnData with ``.obsm["X_r2mae"]`` as .h5ad, whole or not at all."""
    if output.suffix == ".npz":
        write_arrays(output, arrays)
        return
    adata = read_adata(source)
    # The cells of the file in its order, none left out (names need not be unique).
    if list(arrays["cells"]) != list(adata.obs_names.astype(str)):
        raise UserError(f"{source} has other cells than were embedded: it changed meanwhile; embed it again")
    adata.obsm["X_r2mae"] = arrays["embedding"]
    import anndata

    # pandas 3 keeps names as its own strings, which anndata writes only when told to.
    with atomic_path(output) as place, anndata.settings.override(allow_write_nullable_strings=True):
        adata.write_h5ad(place)
