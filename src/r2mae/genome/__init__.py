"""DNA: an alignment store, batches of its windows, and masked models of them."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.genome.batches import load_data
    from r2mae.genome.config import GenomeConfig
    from r2mae.genome.domain import DOMAIN
    from r2mae.genome.models.gpn_msa import AlignmentTransformer
    from r2mae.genome.score import score_variants
    from r2mae.genome.store.alignment import AlignmentStore
    from r2mae.genome.store.build import build_store
    from r2mae.genome.store.tracks import add_track
    from r2mae.genome.store.zarr_exchange import export_zarr

__all__ = [
    "DOMAIN",
    "AlignmentStore",
    "AlignmentTransformer",
    "GenomeConfig",
    "add_track",
    "build_store",
    "export_zarr",
    "load_data",
    "score_variants",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
