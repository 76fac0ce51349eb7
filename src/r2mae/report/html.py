"""The report of a comparison: one HTML file that needs no network, and can be read without scripts."""

import math
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r2mae.evaluation.metrics import Metric
from r2mae.files import atomic_write
from r2mae.report.analysis import Analysis, fixed_labels
from r2mae.report.charts import Chart, Ink, chart, inks_of, themed
from r2mae.report.comparison import Comparison
from r2mae.report.figures import NamedFigure, comparison_figures, inline_svg
from r2mae.report.results_json import to_json
from r2mae.report.style import png
from r2mae.report.wording import BEST_FIXED, CONFIDENCE, difference_places, interval, number

_LARGEST_SVG = 300_000
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
    return templates().get_template("report.html.j2").render(c=context(comparison, analysis))


def templates() -> Environment:
    """Return the templates of pages; what they are given is escaped."""
    return Environment(
        loader=PackageLoader("r2mae.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def context(comparison: Comparison, analysis: Analysis, prefix: str = "") -> dict[str, Any]:
    """Return what the templates show of a comparison.

    Parameters
    ----------
    comparison, analysis
        What to report.
    prefix : str
        Put before every id, so that several comparisons may be on one page.
    """
    findings = to_json(comparison, analysis)
    figures = _figures(comparison, analysis, prefix)
    areas = [area.data for figure in figures if isinstance(figure, Chart) for area in figure.areas]
    return {
        "prefix": prefix,
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
        "figures": figures,
        "areas": areas,
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
    line_style: Ink
    n: int
    values: list[_Value | None]
    rank: str = ""
    rank_sort: float | None = None

    @property
    def label(self) -> str:
        return self.line_style.label

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


@dataclass(frozen=True)
class _Placed:
    name: str
    title: str
    caption: str
    invertible: bool
    image: Markup


def _rows(comparison: Comparison, analysis: Analysis) -> list[_TableRow]:
    rows, inks = [], inks_of(comparison)
    for label in comparison.labels:
        values: list[_Value | None] = []
        for metric in analysis.metrics:
            line, places = analysis.interval(label, metric.name), analysis.decimals[metric.name]
            best = label in analysis.leaders(metric.name)
            ends = interval(line["low"], line["high"], places)
            values.append(_Value(number(line["mean"], places), ends, line["mean"], best) if line["n"] else None)
        rank = analysis.average_rank(label)
        rows.append(
            _TableRow(
                inks[label], analysis.seeds(label), values, number(rank, 1), rank if math.isfinite(rank) else None
            )
        )
    return rows


def _comparisons(comparison: Comparison, analysis: Analysis) -> list[_Differences]:
    comparisons, inks = [], inks_of(comparison)
    for against in (BEST_FIXED, analysis.default_fixed):
        rows = []
        for label in comparison.labels:
            values = [_difference(analysis, label, metric, str(against)) for metric in analysis.judged_metrics]
            if any(values):
                rows.append(_TableRow(inks[label], max(value.pairs for value in values if value), values))
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


def _figures(comparison: Comparison, analysis: Analysis, prefix: str) -> list[_Placed | Chart]:
    inks, figures = inks_of(comparison), list[_Placed | Chart]()
    for named in comparison_figures(comparison, analysis):
        if named.panels:
            figures.append(chart(prefix + named.name, named.title, named.caption, named.panels, inks))
        else:
            figures.append(_placed(named, prefix))
    return figures


def _placed(named: NamedFigure, prefix: str) -> _Placed:
    figure, name = named.draw(), prefix + named.name
    image = Markup(themed(inline_svg(figure, name)))
    if len(image) > _LARGEST_SVG:
        source = "data:image/png;base64," + b64encode(png(figure)).decode()
        image = Markup('<img class="plot" alt="{}" src="{}">').format(named.title, source)
    return _Placed(name, named.title, named.caption, named.name != "reconstructions", image)


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).strip()
