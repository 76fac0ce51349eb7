"""The baselines of cells by name. No torch: :mod:`r2mae.cells.baselines` measures them."""

from functools import partial
from typing import TYPE_CHECKING, Any

from r2mae.cells.config import CellsConfig
from r2mae.domains.baselines import Baseline, baseline

if TYPE_CHECKING:
    from r2mae.cells.batches import CellData
    from r2mae.evaluation.items import ItemRecorder


def _hides_genes(config: CellsConfig) -> bool:
    """Whether there are validation cells, of which hidden genes are predicted."""
    return bool(config.data.validation)


def _expression_bytes(config: CellsConfig, data: "CellData") -> int:
    from r2mae.cells.baselines import dense_bytes

    return dense_bytes(data.table, config)


def _gaussian_bytes(config: CellsConfig, data: "CellData") -> int:
    from r2mae.evaluation.gaussian import GaussianConditionalMean

    return GaussianConditionalMean.bytes_to_fit(len(data.table.obs), data.table.counts.shape[1])


@baseline("expression", "cells", gives=("features",), help="log-normalised counts", memory=_expression_bytes)
def expression(config: CellsConfig, domain: Any, data: "CellData", **_: Any) -> dict[str, float]:
    """Probe log-normalised expression, dense."""
    from r2mae.cells.baselines import log_normalized_expression
    from r2mae.cells.evaluate import evaluate_embedding

    return evaluate_embedding(data.table, partial(log_normalized_expression, data.table), config)


@baseline("pca", "cells", gives=("features",), help="its principal components")
def pca(config: CellsConfig, domain: Any, data: "CellData", **_: Any) -> dict[str, float]:
    """Probe 50 principal components of log-normalised expression."""
    from r2mae.cells.baselines import pca_embedding
    from r2mae.cells.evaluate import evaluate_embedding

    return evaluate_embedding(data.table, pca_embedding(data.table, seed=config.seed), config)


@baseline("scvi", "cells", gives=("features", "filling"), help="scVI of scvi-tools", package="scvi")
def scvi(config: CellsConfig, domain: Any, data: "CellData", **_: Any) -> dict[str, float]:
    """Train scVI, probe its embedding, and let it predict hidden genes."""
    from r2mae.cells.baselines import score_scvi

    return score_scvi(data.table, config)


@baseline("mean", "cells", gives=("filling",), help="one mean cell for all", default=True, applies=_hides_genes)
def mean(
    config: CellsConfig, domain: Any, data: "CellData", *, items: "ItemRecorder | None" = None
) -> dict[str, float]:
    """Predict hidden genes by the mean training cell."""
    from r2mae.cells.baselines import score_mean

    return score_mean(data.table, config, items)


@baseline(
    "gaussian", "cells", gives=("filling",), help="mean given the kept genes", applies=_hides_genes,
    memory=_gaussian_bytes,
)  # fmt: skip
def gaussian(config: CellsConfig, domain: Any, data: "CellData", **_: Any) -> dict[str, float]:
    """Predict hidden genes by the conditional mean of a Gaussian fitted to the training cells; it has no loss."""
    from r2mae.cells.baselines import score_gaussian

    return score_gaussian(data.table, config)


def embedding_baseline(key: str) -> Baseline:
    """Return the embedding under a key of ``.obsm``, of scGPT or UCE for instance, as a baseline."""

    def score(config: CellsConfig, domain: Any, data: "CellData", **_: Any) -> dict[str, float]:
        from r2mae.cells.baselines import obsm_embedding
        from r2mae.cells.evaluate import evaluate_embedding

        return evaluate_embedding(data.table, obsm_embedding(data.table, config.data.source, key), config)

    return Baseline(key, "cells", score, ("features",), f".obsm[{key!r}]")
