"""Single cells: masked autoencoders for raw counts, with the methods that users of scverse know."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.cells.api import MaskedAutoencoder
    from r2mae.cells.baselines import pca_embedding
    from r2mae.cells.config import CellsConfig
    from r2mae.cells.domain import DOMAIN
    from r2mae.cells.donors import check_probes
    from r2mae.cells.evaluate import evaluate_embedding
    from r2mae.cells.models.mlp import CountAutoencoder
    from r2mae.cells.table import CellTable, load_cells
    from r2mae.cells.task import GeneTask

__all__ = [
    "DOMAIN",
    "CellTable",
    "CellsConfig",
    "CountAutoencoder",
    "GeneTask",
    "MaskedAutoencoder",
    "check_probes",
    "evaluate_embedding",
    "load_cells",
    "pca_embedding",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
