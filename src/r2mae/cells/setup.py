"""AnnData objects for `MaskedAutoencoder`: the recorded setup, checked options, and the domain for cells in memory."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import CellsDomain
from r2mae.cells.sources import IN_MEMORY, RAW, named_layer
from r2mae.cells.table import CellTable
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from anndata import AnnData

    from r2mae.cells.saved import TrainedModel

_SETUP = "r2mae_setup"


def write_setup(adata: "AnnData", layer: str | None, batch_key: str | None, labels_key: str | None) -> None:
    """Check where counts and covariates are, and record it in ``adata.uns``."""
    layer = named_layer(layer, adata.layers)
    raw = layer == RAW and adata.raw is not None
    if layer is not None and layer not in adata.layers and not raw:
        raise unknown("layer", layer, adata.layers.keys())
    for key in (batch_key, labels_key):
        if key is not None and key not in adata.obs:
            raise unknown("column of obs", key, adata.obs.columns)
    given = {"layer": layer, "batch_key": batch_key, "labels_key": labels_key}
    adata.uns[_SETUP] = {name: value for name, value in given.items() if value is not None}


def read_setup(adata: "AnnData") -> dict[str, Any]:
    """Return the setup that :func:`write_setup` recorded, as fields of a configuration."""
    setup = adata.uns.get(_SETUP)
    if not isinstance(setup, Mapping):
        raise UserError("call MaskedAutoencoder.setup_anndata(adata) first: it records where the counts are")
    labels = (setup["labels_key"],) if "labels_key" in setup else ()
    return {"layer": setup.get("layer"), "batch_key": setup.get("batch_key"), "labels": labels}


def make_config(fields: Mapping[str, Any]) -> CellsConfig:
    """Make and check the configuration of a model for cells in memory."""
    return CellsConfig.from_dict({"data": IN_MEMORY, **fields}, source="MaskedAutoencoder")


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple, from one name or several."""
    return (names,) if isinstance(names, str) else tuple(names)


def with_current_obs(table: CellTable, adata: "AnnData", batch_key: str | None) -> CellTable:
    """Return the table with its counts and batches, and with the other columns of obs as they are in `adata` now.

    If `adata` now has other cells than the table, or another order of cells, it is refused.
    """
    obs, kept = adata.obs, table.obs
    if not obs.index.equals(kept.index):
        raise UserError(
            f"adata has other cells ({len(obs):,}) than when the model was made ({len(kept):,}), or another order: "
            "pass adata=adata to use its current cells, or make a new model"
        )
    if batch_key is not None and batch_key in kept:
        obs = obs.assign(**{batch_key: kept[batch_key].array})
    return replace(table, obs=obs)


_HOMES = (
    (("labels", "regress", "donor_key", "exclude", "only", "auroc_labels", "test_donors", "max_cells"), "evaluate()"),
    (("layer", "batch_key"), "MaskedAutoencoder.setup_anndata(), before the model is made"),
    (("model", "preset", "representation", "mask_input", "norm"), "MaskedAutoencoder(), as n_hidden and the like"),
    (
        ("n_top_genes", "min_genes", "data"),
        "adata, before the model is made (scanpy.pp.highly_variable_genes)",
    ),
    (("epochs",), "max_epochs"),
    (("validation",), "train_size, which is 1 - validation"),
)
"""Options of a configuration that are set elsewhere, and where."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse fields of a configuration that the AnnData object or other methods set."""
    for names, home in _HOMES:
        for name in names:
            if name in options:
                raise UserError(f"train() does not take {name}: it is set by {home}")


class InMemoryDomain(CellsDomain):
    """The domain for cells in memory, identified by a hash of their counts instead of a file's."""

    def __init__(self, table: CellTable) -> None:
        self.table = table

    def completed(self, trained: "TrainedModel") -> "TrainedModel":
        """Return the model to use, from the one that was trained."""
        return trained

    def fingerprint(self, config: CellsConfig) -> str:
        """Return a hash of counts, genes and batches."""
        matrix, digest = self.table.counts.matrix, hashlib.blake2b(self.table.batch.tobytes(), digest_size=16)
        for array in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\0".join((*self.table.genes, *self.table.batches)).encode())
        return digest.hexdigest()
