"""The cells of a run, and mini-batches of them in CSR form, which the task makes dense on the device."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from r2mae.cells.config import LEAST_STEPS, CellsConfig
from r2mae.cells.donors import check_probes, kept_cells, probe_cells, target_of
from r2mae.cells.table import CellTable, load_cells, log_notes
from r2mae.errors import UserError
from r2mae.masking.keys import Key, permutation
from r2mae.training.task import Batches, Data
from r2mae.training.validation import EVALUATION_KEY, evaluating, to_device

if TYPE_CHECKING:
    from r2mae.cells.task import CountModel, GeneTask

_BATCH = 2048


class CellBatches(Batches):
    """Cells of a table (those of `rows`, by default all), read as mini-batches."""

    def __init__(self, table: CellTable, rows: np.ndarray | None = None) -> None:
        self.counts, self._batch = table.counts, table.batch
        self.rows = np.arange(self.counts.shape[0]) if rows is None else rows

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.rows)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> dict[str, Tensor]:
        """Return these cells in CSR form with the counts above zero; the key has no effect, as nothing is random.

        They are `indptr` (int64, cells + 1), `indices` (int32 or int64), `values` (float32) and `batch` (int64, cells).
        """
        rows = self.rows[np.asarray(indices, dtype=np.int64)]
        counts = self.counts.rows(rows)
        return {
            "indptr": torch.from_numpy(counts.indptr.astype(np.int64)),
            "indices": torch.from_numpy(counts.indices),
            "values": torch.from_numpy(counts.data.astype(np.float32, copy=False)),
            "batch": torch.from_numpy(self._batch[rows]),
        }


@dataclass(frozen=True, repr=False)
class CellData(Data):
    """The data of a run on cells: all cells, training and validation cells, and from what the model is built."""

    table: CellTable
    train: CellBatches
    validation: CellBatches | None
    architecture: dict[str, Any]

    def __repr__(self) -> str:
        return f"CellData({self.table!r})"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on cells and genes that were omitted or filled in."""
        return self.table.notes


def load_data(config: CellsConfig) -> CellData:
    """Read the cells of a run and split them into training and validation; the split depends on the seed alone.

    Mistakes in the columns of the probes are found here, before a model is trained.
    """
    table = load_cells(
        config.data.source,
        layer=config.data.layer,
        batch_key=config.data.batch_key,
        columns=(*filter(None, (config.data.donor_key,)), *config.data.labels, *config.data.regress),
        n_top_genes=config.data.n_top_genes,
        min_genes=config.data.min_genes,
    )
    table = replace(table, notes=table.notes + check_probes(table, config)[1])
    data = split_data(table, config)
    return replace(data, table=replace(table, notes=table.notes + _note_on_length(config, len(data.train))))


def _note_on_length(config: CellsConfig, cells: int) -> tuple[str, ...]:
    """Return a note if the default number of epochs makes a short run."""
    steps, default = config.optimizer.total_steps(cells), CellsConfig.default_of("epochs")
    if steps >= LEAST_STEPS or config.optimizer.steps is not None or config.optimizer.epochs != default:
        return ()
    return (
        f"{default:g} epochs of {cells:,} cells are {steps} steps; the embedding of 1,000 cells was worse than "
        f"principal components after {LEAST_STEPS // 2} steps, and not after {LEAST_STEPS}: "
        f"pass --steps {LEAST_STEPS}",
    )


def load_other_data(
    config: CellsConfig,
    source: str,
    architecture: Mapping[str, Any],
    *,
    transform_batch: str | None = None,
    layer: str | None = None,
) -> tuple[CellsConfig, CellData]:
    """Read external cells, mapped onto a model's genes and batches by name. All of them are validation cells.

    Probes predict the run's columns, and are fitted on training donors of these cells. `transform_batch` and `layer`
    are as in :func:`embed_source`.

    Probes that are impossible for these cells are omitted with a note, so that everything else can be measured: those
    of columns that obs lacks, or that have fewer than two values, or whose own rules cannot be followed. If the donor
    column or a column of a rule for all is missing, or such rules leave no cell, these are all probes: such that share
    donors, or use other cells, would not be comparable with those of the run.

    Returns
    -------
    config : CellsConfig
        Without the impossible probes.
    data : CellData
    """
    config = config.replace(data=source, **({} if layer is None else {"layer": layer}))
    genes, batches, own = tuple(architecture["genes"]), tuple(architecture["batches"]), config.data
    table = load_cells(
        own.source, layer=own.layer, batch_key=own.batch_key, genes=genes, batches=batches,
        transform_batch=transform_batch,
    )  # fmt: skip
    columns, notes = [], []
    for column in (*own.labels, *own.regress):
        try:
            kept_cells(table, config, column)
            why = "" if column in table.obs else "obs has no such column"
        except UserError as error:
            why = str(error).removeprefix(f"{table.name}: ")
        if why:
            notes.append(f"{column}: no probe, as {why}")
        else:
            columns.append(column)
    try:
        probes, more = probe_cells(table, _with_probes(config, table, columns))
    except UserError as error:
        probes, more = (), (f"no probes, as {str(error).removeprefix(f'{table.name}: ')}",)
    config = _with_probes(config, table, [one.column for one in probes])
    table = replace(table, notes=(*table.notes, *notes, *more))
    cells = CellBatches(table)
    return config, CellData(table, cells, cells, architecture_of(genes, batches, config))


def _with_probes(config: CellsConfig, table: CellTable, columns: Collection[str]) -> CellsConfig:
    """Return the configuration with the probes of these columns alone; without any, also without donors and rules."""
    if not columns:
        config = config.replace(donor_key=None, exclude=(), only=())

    def kept(field: str) -> tuple[str, ...]:
        return tuple(entry for entry in getattr(config.data, field) if entry.partition("=")[0] in columns)

    def followed(field: str) -> tuple[str, ...]:
        of = {rule: target_of(rule, table, config)[0] for rule in getattr(config.data, field)}
        return tuple(rule for rule, probe in of.items() if probe is None or probe in columns)

    fields = ("labels", "regress", "auroc_labels", "max_cells", "limit_first")
    return config.replace(
        **{field: kept(field) for field in fields}, exclude=followed("exclude"), only=followed("only")
    )


def split_data(table: CellTable, config: CellsConfig) -> CellData:
    """Split off validation cells (paper: a tenth); at least two training cells remain, for batch normalisation."""
    train, validation = CellBatches(table), None
    cells = table.counts.shape[0]
    if config.data.validation and cells > 2:
        order = permutation(Key.root(config.seed).fold("validation"), cells)
        held_out = min(max(1, round(config.data.validation * cells)), cells - 2)
        validation = CellBatches(table, np.sort(order[:held_out]))
        train = CellBatches(table, np.sort(order[held_out:]))
    return CellData(table, train, validation, architecture_of(table.genes, table.batches, config))


def architecture_of(genes: Sequence[str], batches: Sequence[str], config: CellsConfig) -> dict[str, Any]:
    """Describe a model in plain types, for :meth:`r2mae.cells.domain.CellsDomain.build` and for run folders."""
    return {**config.model.architecture(), "genes": list(genes), "batches": list(batches)}


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
    """Embed the cells of a named set or path: `embedding`, `index`, `cells` (their names), and known label columns.

    There is a row for each cell, in the order of obs; `index` counts them from 0.
    A column of the name of one of these arrays is ``obs_index``, or accordingly.
    `transform_batch` is as in :func:`r2mae.cells.table.align_batches`; `layer` is by default that of the run.
    """
    data = config.data if layer is None else replace(config.data, layer=layer)
    mapped = load_cells(
        source, layer=data.layer, batch_key=data.batch_key, genes=model.gene_names, batches=model.batch_names,
        transform_batch=transform_batch,
    )  # fmt: skip
    table = log_notes(mapped)
    copied = (*data.labels, *data.regress, *filter(None, (data.donor_key,)))
    names = table.obs.index.to_numpy().astype(str)
    own = {"embedding": embed_rows(task, model, table), "index": np.arange(len(table)), "cells": names}
    columns = {
        f"obs_{name}" if name in own else name: table.obs[name].astype(str).to_numpy().astype(str)
        for name in copied
        if name in table.obs
    }
    return columns | own
