"""Scores as a table on the terminal."""

import math
import re
from collections.abc import Collection, Mapping, Sequence

from r2mae.compare.wording import decimals, interval, number
from r2mae.evaluation.metrics import Metric, label_of
from r2mae.terminal import print_table

_END = re.compile(r"_[a-z]+_(low|high)")
_DEVIATION = "_sd"


def print_scores(columns: Mapping[str, Mapping[str, float]], metrics: Sequence[Metric]) -> None:
    """Print scores, with a column for each model. The domain's metrics are first, under their labels.

    ``name_UNITS_low`` and ``name_UNITS_high`` are shown as the interval of ``name`` (over units such as donors), and
    ``name_sd`` after ±.
    """
    models = columns.values()
    every = dict.fromkeys(name for scores in models for name in scores)
    names = dict.fromkeys([*(metric.name for metric in metrics if metric.name in every), *every])
    rows = [(label_of(name, metrics), *_cells(models, name)) for name in names if not _is_part(name, every)]
    print_table(["", *(columns if len(columns) > 1 else [""])], rows)


def _is_part(name: str, every: Collection[str]) -> bool:
    """Return whether a score is an interval end or the standard deviation of another score."""
    if name.endswith(_DEVIATION):
        return name.removesuffix(_DEVIATION) in every
    return any(name.startswith(one) and _END.fullmatch(name, len(one)) for one in every)


def _cells(models: Collection[Mapping[str, float]], name: str) -> list[str]:
    """Format a score of every model, with its interval or deviation; others have equal decimals, and four digits."""
    sizes = [abs(scores[name]) for scores in models if math.isfinite(scores.get(name, math.nan))]
    places = decimals([max(sizes, default=0.0)], [])
    return [_cell(scores, name, places) if name in scores else "" for scores in models]


def _cell(scores: Mapping[str, float], name: str, places: int) -> str:
    ends = {
        found[1]: scores[key] for key in scores if key.startswith(name) and (found := _END.fullmatch(key, len(name)))
    }
    if (deviation := scores.get(name + _DEVIATION)) is not None:
        places = decimals([scores[name]], [deviation])
        return f"{number(scores[name], places)} ± {number(deviation, places)}"
    if within := interval(ends.get("low", math.nan), ends.get("high", math.nan), 3):
        return f"{number(scores[name], 3)} ({within})"
    return number(scores[name], places)
