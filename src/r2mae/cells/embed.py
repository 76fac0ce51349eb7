"""Embeds cells with a trained model, and writes embeddings; new data are mapped by gene."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from r2mae.cells.batches import CellBatches
from r2mae.cells.config import CellsConfig
from r2mae.cells.sources import opened, path_of, read_adata, read_obs
from r2mae.cells.table import CellTable, load_cells, log_notes
from r2mae.errors import UserError
from r2mae.files import atomic_path
from r2mae.training.validation import EVALUATION_KEY, evaluating, to_device

if TYPE_CHECKING:
    from r2mae.cells.task import CountModel, GeneTask

_BATCH = 2048
_SLACK = 1 << 20  # bytes of an .h5ad file in addition to its arrays


def batches_of(
    table: CellTable, device: torch.device, size: int = _BATCH, rows: Int64[np.ndarray, " n"] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield a table's cells (or some of them) in order, on the device."""
    batches = CellBatches(table, rows)
    for first in range(0, len(batches), size):
        indices = np.arange(first, min(first + size, len(batches)))
        yield to_device(batches.batch(indices, EVALUATION_KEY.rows(first)), device)


def embed_rows(
    task: "GeneTask",
    model: "CountModel",
    table: CellTable,
    rows: Int64[np.ndarray, " n"] | None = None,
    size: int = _BATCH,
) -> Float32[np.ndarray, "n latent"]:
    """Embed cells of a table (by default all), without a mask, `size` cells at a time.

    The table's batches must be numbered as in the model.
    """
    device = next(model.parameters()).device
    hidden = torch.from_numpy(table.missing).to(device) if len(table.missing) else None
    with evaluating(model), torch.no_grad():
        parts = [task.embed(model, batch, hidden).float().cpu() for batch in batches_of(table, device, size, rows)]
    return torch.cat(parts).numpy()


def embed_source(
    config: CellsConfig,
    task: "GeneTask",
    model: "CountModel",
    source: str,
    *,
    transform_batch: str | None = None,
    layer: str | None = None,
) -> dict[str, np.ndarray]:
    """Embed the cells of a named set or path: `embedding`, `cells` (their names), and each label column that exists.

    `transform_batch` is as in :func:`r2mae.cells.table.align_batches`; `layer` is by default that of the run.

    Raises
    ------
    UserError
        As :func:`r2mae.cells.table.load_cells`.
    """
    data = config.data if layer is None else replace(config.data, layer=layer)
    mapped = load_cells(
        source, layer=data.layer, batch_key=data.batch_key, genes=model.gene_names, batches=model.batch_names,
        transform_batch=transform_batch,
    )  # fmt: skip
    table = log_notes(mapped)
    copied = (*data.labels, *data.regress, *filter(None, (data.donor_key,)))
    arrays: dict[str, np.ndarray] = {
        "embedding": embed_rows(task, model, table),
        "cells": table.obs.index.to_numpy().astype(str),
    }
    for column in copied:
        if column in table.obs:
            arrays[column] = table.obs[column].astype(str).to_numpy().astype(str)
    return arrays


def write_h5ad(output: Path, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Write the source with ``.obsm["X_r2mae"]`` as .h5ad, atomically.

    An .h5ad file is copied and the embedding is added to the copy; nothing else is changed or read into memory.

    Raises
    ------
    UserError
        If the source has other cells than were embedded.
    OSError
        If the output cannot be written, or the disk is full.
    """
    try:
        _write_h5ad(output, arrays, source)
    except OSError as error:  # of the temporary file
        raise OSError(error.errno, error.strerror or str(error), str(output)) from None


def _write_h5ad(output: Path, arrays: Mapping[str, np.ndarray], source: str) -> None:
    import anndata
    import h5py
    from anndata.io import write_elem

    path = path_of(source)
    if list(arrays["cells"]) != list(read_obs(source).index.astype(str)):
        raise UserError(f"{source} has other cells than were embedded: it changed meanwhile; embed it again")
    with opened(path) as store:
        copied = not path.is_dir() and not hasattr(store.get("obsm", {}), "dtype")  # in old files obsm is one array
    with atomic_path(output) as temporary:
        if copied:
            shutil.copyfile(path, temporary)
            size = path.stat().st_size
        else:
            adata = read_adata(source)
            h5py.File(temporary, "w").close()
            size = adata.__sizeof__()
        if hasattr(os, "posix_fallocate"):  # the HDF5 library ends the process if a full disk fails its writes
            with temporary.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size + arrays["embedding"].nbytes + _SLACK)
        # Columns of pandas' own string type, which a source may have, are written only with this setting.
        with anndata.settings.override(allow_write_nullable_strings=True), h5py.File(temporary, "r+") as store:
            if not copied:
                write_elem(store, "/", adata)
            obsm = store.require_group("obsm")
            if not obsm.attrs:
                obsm.attrs["encoding-type"], obsm.attrs["encoding-version"] = "dict", "0.1.0"
            write_elem(obsm, "X_r2mae", arrays["embedding"])
