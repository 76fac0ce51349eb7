"""Print scores as a table on the terminal."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from rich.markup import escape
from rich.table import Table

from r2mae.evaluation.metrics import Metric, label_of, metrics_by_ratio
from r2mae.terminal import Terminal

_END = re.compile(r"_[a-z]+_(low|high)")
_SPREAD = "_sd"


def scores_table(columns: Mapping[str, Mapping[str, float]], metrics: Sequence[Metric]) -> None:
    """Print scores, with a column for each model. The domain's metrics are first, under their labels.

    ``name_UNITS_low`` and ``name_UNITS_high`` are shown as the interval of ``name`` (over units such as donors), and
    ``name_sd`` after ±. Scores at several mask ratios, such as ``name_0.15``, are in a separate table.
    """
    labels = [metric.name for metric in metrics]
    every = dict.fromkeys(name for scores in columns.values() for name in scores)
    ratios = metrics_by_ratio(name for name in every if name not in labels)
    apart = {name for names in ratios.values() for name in names.values()}
    shown = [name for name in every if name not in apart and not _is_part_of_estimate(name, every)]
    table = _table("", columns if len(columns) > 1 else [""] * len(columns), justify="left")
    for name in [*(n for n in labels if n in shown), *(n for n in shown if n not in labels)]:
        table.add_row(escape(label_of(name, metrics)), *_estimates(columns.values(), name))
    tables = [table] if shown else []
    if ratios:
        tables.append(_ratio_table(columns, ratios, metrics))
    for index, one in enumerate(tables):
        if index:
            print()
        Terminal().print_trimmed(one)


def _table(first: str, headings: Iterable[str], *, justify: Literal["left", "right"]) -> Table:
    names = [escape(heading) for heading in headings]
    table = Table(first, show_header=any([first, *names]), box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify=justify)
    return table


def _ratio_table(
    columns: Mapping[str, Mapping[str, float]], ratios: Mapping[str, Mapping[float, str]], metrics: Sequence[Metric]
) -> Table:
    """Return a table with a row for each ratio, and a column with equal decimals for each metric of each model."""
    pairs = [(metric, model) for metric in ratios for model in columns]
    several = len(columns) > 1
    table = _table(
        "mask ratio", [label_of(m, metrics) + (f", {model}" if several else "") for m, model in pairs], justify="right"
    )
    written = {
        (metric, model): _with_equal_decimals([columns[model].get(name) for name in ratios[metric].values()])
        for metric, model in pairs
    }
    for ratio in sorted({ratio for names in ratios.values() for ratio in names}):
        table.add_row(
            f"{ratio:g}", *(dict(zip(ratios[pair[0]], written[pair], strict=True)).get(ratio, "") for pair in pairs)
        )
    return table


def _is_part_of_estimate(name: str, every: Collection[str]) -> bool:
    """Return whether a score is an interval end or the standard deviation of another score."""
    if name.endswith(_SPREAD):
        return name.removesuffix(_SPREAD) in every
    return any(name.startswith(one) and _END.fullmatch(name, len(one)) for one in every)


def _interval_ends(scores: Mapping[str, float], name: str) -> tuple[float, float]:
    """Return the ends of a score's interval; NaN without one."""
    ends = {
        found[1]: scores[key] for key in scores if key.startswith(name) and (found := _END.fullmatch(key, len(name)))
    }
    return ends.get("low", math.nan), ends.get("high", math.nan)


def _estimates(models: Iterable[Mapping[str, float]], name: str) -> list[str]:
    """Format a score of every model, with its interval or deviation; scores without either have equal decimals."""
    several = list(models)
    plain = _with_equal_decimals([scores.get(name) for scores in several])
    return [_estimate(scores, name) or text for scores, text in zip(several, plain, strict=True)]


def _estimate(scores: Mapping[str, float], name: str) -> str:
    from r2mae.compare.wording import decimals, interval, number

    value, spread = scores.get(name), scores.get(name + _SPREAD)
    if value is None:
        return ""
    if spread is not None:
        decimal_places = decimals([value], [spread])
        return f"{number(value, decimal_places)} ± {number(spread, decimal_places)}"
    ends = interval(*_interval_ends(scores, name), 3)
    return f"{number(value, 3)} ({ends})" if ends else ""


def _with_equal_decimals(values: Sequence[float | None]) -> list[str]:
    """Format numbers with equal decimals, so that the largest has four digits."""
    from r2mae.compare.wording import decimals, number

    sizes = [abs(value) for value in values if value is not None and math.isfinite(value)]
    decimal_places = decimals([max(sizes, default=0.0)], [])
    return ["" if value is None else number(value, decimal_places) for value in values]
