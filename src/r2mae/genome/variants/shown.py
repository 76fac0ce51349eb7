"""The metrics of variants that tables show. No torch."""

from dataclasses import replace

from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.genome.variants.labelled import shape_of
from r2mae.genome.variants.settings import VariantSettings

_RANKING = (
    Metric("auroc", "AUROC of variants", bounds=(0, 1)),
    Metric("auprc", "AUPRC of variants", bounds=(0, 1)),
    Metric("partial_auroc", "partial AUROC of variants", bounds=(0, 1)),
)
_CORRELATION = (Metric("spearman", "Spearman of variants", bounds=(-1, 1)),)


def metrics_on(settings: VariantSettings) -> tuple[Metric, ...]:
    """Return the metrics of variants, the most important first; none without variants."""
    if settings.variants is None:
        return ()
    try:
        binary, classes = shape_of(settings)
    except UserError:  # the file has gone: scores that were measured are shown
        return tuple(replace(one, optional=True) for one in (*_RANKING, *_CORRELATION))
    usual, main = (_RANKING, _RANKING[1]) if binary else (_CORRELATION, _CORRELATION[0])
    return (
        *usual,
        *(
            Metric(f"{main.name}_{name}", f"{main.label}, {name}", bounds=main.bounds, ranked=False, optional=True)
            for name in classes
        ),
    )
