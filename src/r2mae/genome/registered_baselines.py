"""The baselines of genomes by name. No torch: :mod:`r2mae.genome.evaluate` measures them."""

from typing import TYPE_CHECKING, Any

from r2mae.domains.baselines import Baseline, baseline
from r2mae.genome.config import GenomeConfig

if TYPE_CHECKING:
    from r2mae.genome.batches import GenomeData


@baseline("alignment", "genome", gives=("filling", "variants"), help="bases of the other species", default=True)
def alignment(config: GenomeConfig, domain: Any, data: "GenomeData", **options: Any) -> dict[str, float]:
    """Predict each base by its frequency among the aligned species at the position."""
    from r2mae.genome.evaluate import score_alignment

    return score_alignment(config, data, **options)


@baseline("composition", "genome", gives=("filling", "variants"), help="how frequent each base is")
def composition(config: GenomeConfig, domain: Any, data: "GenomeData", **options: Any) -> dict[str, float]:
    """Predict each base by its frequency in the training windows."""
    from r2mae.genome.evaluate import score_composition

    return score_composition(config, data, **options)


def column_baseline(name: str) -> Baseline:
    """Return a column of the file of variants as a baseline; it has no scores in windows."""

    def score(config: GenomeConfig, domain: Any, data: "GenomeData", **_: Any) -> dict[str, float]:
        from r2mae.genome.variants.labelled import measure_variants

        return measure_variants(config.evaluation, data.store, data.held_out, name)

    return Baseline(name, "genome", score, ("variants",), f"the column {name}")
