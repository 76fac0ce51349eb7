"""AnnData objects as the facade meets them: what was set up, and the wing for cells in memory."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.cells.config import CellsConfig
from r2mae.cells.table import CellTable
from r2mae.cells.wing import CellsWing
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from anndata import AnnData

_SETUP = "r2mae_setup"
EMPTY: Mapping[str, Any] = {"layer": None, "batch_key": None, "labels_key": None}


def write_setup(adata: "AnnData", layer: str | None, batch_key: str | None, labels_key: str | None) -> None:
    """Check and note in ``adata.uns`` where counts and covariates are."""
    raw = layer == "raw.X" and adata.raw is not None
    if layer is not None and layer not in adata.layers and not raw:
        raise unknown("layer", layer, adata.layers.keys())
    for key in (batch_key, labels_key):
        if key is not None and key not in adata.obs:
            raise unknown("column of obs", key, adata.obs.columns)
    given = {"layer": layer, "batch_key": batch_key, "labels_key": labels_key}
    adata.uns[_SETUP] = {name: value for name, value in given.items() if value is not None}


def read_setup(adata: "AnnData") -> dict[str, Any]:
    """Return what :func:`write_setup` noted."""
    setup = adata.uns.get(_SETUP)
    if not isinstance(setup, Mapping):
        raise UserError("call MaskedAutoencoder.setup_anndata(adata) first: it says where the counts are")
    return {**EMPTY, **setup}


class InMemoryWing(CellsWing):
    """The wing for cells that lie in memory: told apart by their numbers instead of a file's."""

    def __init__(self, table: CellTable) -> None:
        self._table = table

    def fingerprint(self, config: CellsConfig) -> str:
        """Return a hash of counts, genes and batches."""
        digest = hashlib.blake2b(digest_size=16)
        cells = self._table.counts.shape[0]
        for first in range(0, cells, 4096):
            part = self._table.counts.rows(np.arange(first, min(first + 4096, cells)))
            for array in (part.indptr, part.indices, part.data):
                digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\0".join((*self._table.genes, *self._table.batches)).encode())
        digest.update(self._table.batch.tobytes())
        return digest.hexdigest()
