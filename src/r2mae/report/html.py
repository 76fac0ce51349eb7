"""The report of a comparison: one HTML file that needs no network, and can be read without scripts."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from r2mae.evaluation.metrics import Metric
from r2mae.files import atomic_write
from r2mae.report.analysis import Analysis, fixed_labels
from r2mae.report.comparison import Comparison
from r2mae.report.drawing import colours_of
from r2mae.report.figures import comparison_figures, inline_svg
from r2mae.report.results_json import to_json
from r2mae.report.wording import BEST_FIXED, CONFIDENCE, difference_places, interval, number

_WORDS = {"same": "is the best fixed"}


def write_report(path: str | Path, comparison: Comparison, analysis: Analysis) -> None:
    """Write ``report.html``, atomically.

    Parameters
    ----------
    path : str or Path
        The file.
    comparison, analysis
        What to report.
    """
    with atomic_write(path) as file:
        file.write(render_report(comparison, analysis))


def render_report(comparison: Comparison, analysis: Analysis) -> str:
    """Return the page; everything that comes from outside is escaped."""
    templates = Environment(
        loader=PackageLoader("r2mae.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("report.html.j2").render(c=_context(comparison, analysis))


def _context(comparison: Comparison, analysis: Analysis) -> dict[str, Any]:
    findings = to_json(comparison, analysis)
    return {
        "title": comparison.title,
        "headline": analysis.headline,
        "notes": analysis.notes,
        "confidence": f"{CONFIDENCE:.0%}",
        "metrics": analysis.metrics,
        "judged_metrics": analysis.judged_metrics,
        "primary": analysis.primary,
        "rows": _rows(comparison, analysis),
        "comparisons": _comparisons(comparison, analysis),
        "choices": findings["best_fixed"] if len(fixed_labels(comparison)) > 1 else {},
        "labels_of": {metric.name: metric.label for metric in analysis.metrics},
        "figures": [
            (named, Markup(inline_svg(named.draw(), named.name))) for named in comparison_figures(comparison, analysis)
        ],
        "seeds": sorted(set(comparison.table["seed"])),
        "config": _yaml(findings["config"]),
        "environment": _yaml(findings["environment"]),
    }


@dataclass(frozen=True)
class _Value:
    """A number with its interval, as shown; `sort` is the plain number.

    `decides` is the smallest difference that the seeds could decide, where they did not; `over` is what the interval is
    over, "seeds" or "seeds and items". `pairs` is how many seeds a difference is of.
    """

    text: str
    ends: str
    sort: float
    best: bool = False
    verdict: str = ""
    decides: str = ""
    over: str = ""
    pairs: int = 0

    @property
    def words(self) -> str:
        return _WORDS.get(self.verdict, self.verdict)


@dataclass(frozen=True)
class _TableRow:
    label: str
    colour: str
    n: int
    values: list[_Value | None]
    rank: str = ""
    rank_sort: float | None = None

    @property
    def pairs(self) -> list[int]:
        """The different numbers of pairs of the differences, rising: one number where all metrics have as many."""
        return sorted({value.pairs for value in self.values if value})


@dataclass(frozen=True)
class _Differences:
    """Differences of every label from one reference."""

    against: str
    rows: list[_TableRow]

    @property
    def over(self) -> str:
        """What all intervals are over; empty where they differ, or there is none."""
        found = {value.over for row in self.rows for value in row.values if value and value.over}
        return found.pop() if len(found) == 1 else ""


def _rows(comparison: Comparison, analysis: Analysis) -> list[_TableRow]:
    rows, colours = [], colours_of(comparison)
    for label in comparison.labels:
        values: list[_Value | None] = []
        for metric in analysis.metrics:
            line, places = analysis.interval(label, metric.name), analysis.decimals[metric.name]
            best = label in analysis.leaders(metric.name)
            ends = interval(line["low"], line["high"], places)
            values.append(_Value(number(line["mean"], places), ends, line["mean"], best) if line["n"] else None)
        rank = analysis.average_rank(label)
        rank_sort = rank if math.isfinite(rank) else None
        colour = to_hex(colours[label])
        rows.append(_TableRow(label, colour, analysis.seeds(label), values, number(rank, 1), rank_sort))
    return rows


def _comparisons(comparison: Comparison, analysis: Analysis) -> list[_Differences]:
    comparisons, colours = [], colours_of(comparison)
    for against in (BEST_FIXED, analysis.default_fixed):
        rows = []
        for label in comparison.labels:
            values = [_difference(analysis, label, metric, str(against)) for metric in analysis.judged_metrics]
            if any(values):
                pairs = max(value.pairs for value in values if value)
                rows.append(_TableRow(label, to_hex(colours[label]), pairs, values))
        if rows:
            comparisons.append(_Differences(str(against), rows))
    return comparisons


def _difference(analysis: Analysis, label: str, metric: Metric, against: str) -> _Value | None:
    line = analysis.difference(label, metric.name, against)
    if line is None:
        return None
    if line["verdict"] == "same":
        return _Value("", "", 0.0, verdict="same", pairs=line["n"])
    places = difference_places(line["mean"], line["low"], line["high"], analysis.decimals[metric.name])
    ends = interval(line["low"], line["high"], places, signed=True)
    missed = line["verdict"] == "undecided" and math.isfinite(line["decides"])
    decides = number(line["decides"], places) if missed else ""
    return _Value(
        number(line["mean"], places, signed=True),
        ends,
        line["mean"],
        verdict=line["verdict"],
        decides=decides,
        over=line["over"] if ends else "",
        pairs=line["n"],
    )


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).strip()
