"""Cells as the loop wants them: batches in CSR form, made dense on the device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from r2mae.cells.config import CellsConfig
from r2mae.cells.donors import check_probes
from r2mae.cells.table import CellTable, load_cells
from r2mae.masking.keys import Key, permutation


class CellBatches:
    """Cells of a table, whole batches at a time.

    Parameters
    ----------
    table : CellTable
    rows : ndarray of int, optional
        Which of its cells; all by default.
    """

    def __init__(self, table: CellTable, rows: np.ndarray | None = None) -> None:
        self.counts, self.batch = table.counts, table.batch
        self.rows = rows

    def __len__(self) -> int:
        """Return the number of cells."""
        return self.counts.shape[0] if self.rows is None else len(self.rows)

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> dict[str, Tensor]:
        """Return these cells in CSR form, counts above zero alone.

        Returns
        -------
        dict
            `indptr` (int64, cells + 1), `indices` (int32 or int64), `values` (float32), `batch` (int64, cells).
        """
        rows = np.asarray(indices, dtype=np.int64)
        rows = rows if self.rows is None else self.rows[rows]
        found = self.counts.rows(rows)
        if not found.data.all():
            found.eliminate_zeros()
        return {
            "indptr": torch.from_numpy(found.indptr.astype(np.int64)),
            "indices": torch.from_numpy(found.indices),
            "values": torch.from_numpy(found.data.astype(np.float32, copy=False)),
            "batch": torch.from_numpy(self.batch[rows]),
        }


@dataclass(frozen=True)
class CellData:
    """What a run on cells reads.

    Parameters
    ----------
    table : CellTable
        All cells.
    train, validation : CellBatches
        Those that are learned from, and those held out.
    architecture : dict
        From which the model is built.
    """

    table: CellTable
    train: CellBatches
    validation: CellBatches | None
    architecture: dict[str, Any]


def load_data(config: CellsConfig) -> CellData:
    """Read the cells of a run and divide them; the division depends on the seed alone.

    Raises
    ------
    UserError
        As :func:`r2mae.cells.table.load_cells`; and what :func:`r2mae.cells.donors.check_probes` finds wrong with the
        columns of the probes, before a model is trained.
    """
    table = load_cells(
        config.data,
        layer=config.layer,
        batch_key=config.batch_key,
        donor_key=config.donor_key,
        columns=(*config.labels, *config.regress, *(rule.partition("=")[0] for rule in config.exclude)),
        n_top_genes=config.n_top_genes,
        min_genes=config.min_genes,
    )
    return split_data(replace(table, notes=table.notes + check_probes(table, config)), config)


def split_data(table: CellTable, config: CellsConfig) -> CellData:
    """Hold cells out for validation (the paper: a tenth); batch normalisation needs two to learn from."""
    train, validation = CellBatches(table), None
    cells = table.counts.shape[0]
    if config.validation and cells > 2:
        order = permutation(Key.root(config.seed).fold("validation"), cells)
        held_out = min(max(1, round(config.validation * cells)), cells - 2)
        validation = CellBatches(table, np.sort(order[:held_out]))
        train = CellBatches(table, np.sort(order[held_out:]))
    architecture = {
        "model": "mlp",
        "genes": list(table.genes),
        "batches": list(table.batches),
        "n_hidden": config.n_hidden,
        "n_latent": config.n_latent,
    }
    return CellData(table, train, validation, architecture)
