"""The report of a comparison: one HTML file that needs no network, and can be read without scripts."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from r2mae.compare.analysis import Analysis, fixed_labels
from r2mae.compare.comparison import Comparison
from r2mae.compare.figures import NamedFigure, colours_of, comparison_figures, inline_svg
from r2mae.compare.results_json import to_json
from r2mae.compare.wording import BEST_FIXED, CONFIDENCE, chance, comparator, difference_places, interval, number
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR
from r2mae.files import atomic_write


def write_report(
    path: str | Path, comparison: Comparison, analysis: Analysis, figures: Sequence[NamedFigure] | None = None
) -> None:
    """Write ``report.html``, atomically; arguments are those of :func:`render_report`."""
    with atomic_write(path) as file:
        file.write(render_report(comparison, analysis, figures))


def render_report(comparison: Comparison, analysis: Analysis, figures: Sequence[NamedFigure] | None = None) -> str:
    """Return the page; what comes from outside is escaped. `figures` are those of the comparison, if drawn."""
    figures = comparison_figures(comparison, analysis) if figures is None else figures
    templates = Environment(
        loader=PackageLoader("r2mae.compare"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("report.html.j2").render(c=_context(comparison, analysis, figures))


def _context(comparison: Comparison, analysis: Analysis, figures: Sequence[NamedFigure]) -> dict[str, Any]:
    findings = to_json(comparison, analysis)
    return {
        "title": comparison.title,
        "headline": analysis.headline,
        "notes": analysis.notes,
        "confidence": f"{CONFIDENCE:.0%}",
        "metrics": analysis.metrics,
        "judged_metrics": analysis.judged_metrics,
        "primary": analysis.primary,
        "against": comparator(analysis.against[0]),
        "rows": _rows(comparison, analysis),
        "comparisons": _comparisons(comparison, analysis),
        "choices": findings["best_fixed"] if len(fixed_labels(comparison)) > 1 else {},
        "labels_of": {metric.name: metric.label for metric in analysis.metrics},
        "figures": [(named, Markup(inline_svg(named.svg, named.name))) for named in figures],
        "seeds": sorted(set(comparison.table["seed"])),
        "config": _yaml(findings["config"]),
        "environment": _yaml(findings["environment"]),
    }


def _rows(comparison: Comparison, analysis: Analysis) -> list[dict[str, Any]]:
    """Return the rows of the scores, each with a value for each metric: as text, and as a plain number to sort by."""
    rows, colours = [], colours_of(comparison)
    for label in comparison.labels:
        values: list[dict[str, Any] | None] = []
        for metric in analysis.metrics:
            line, places = analysis.interval(label, metric.name), analysis.decimals[metric.name]
            text, ends = number(line["mean"], places), interval(line["low"], line["high"], places)
            best = label in analysis.leaders(metric.name)
            values.append({"text": text, "ends": ends, "sort": line["mean"], "best": best} if line["n"] else None)
        rank = analysis.average_rank(label)
        row = {"label": label, "colour": to_hex(colours[label]), "n": analysis.seeds(label), "values": values}
        rows.append({**row, "rank": number(rank, 1), "rank_sort": rank if math.isfinite(rank) else None})
    return rows


def _comparisons(comparison: Comparison, analysis: Analysis) -> list[dict[str, Any]]:
    """Return the rows of differences from the headline's reference, and from the other one.

    `over` is what all intervals are over, empty where they differ or there is none. The `pairs` of a row are the
    different numbers of pairs of its differences, rising: one number where all metrics have as many.
    """
    comparisons, colours = [], colours_of(comparison)
    for number_of_table, against in enumerate(analysis.against):
        rows, over = [], set()
        for label in comparison.labels:
            values = [_difference(analysis, label, metric, against) for metric in analysis.judged_metrics]
            if pairs := sorted({value["pairs"] for value in values if value}):
                row = {"label": label, "colour": to_hex(colours[label]), "n": pairs[-1], "pairs": pairs}
                rows.append({**row, "values": values})
                over |= {value["over"] for value in values if value and value["over"]}
        if rows:
            kind = "(named by --against)" if number_of_table == 0 else "(the default)"
            kind = "ratio" if against == BEST_FIXED else kind
            only = over.pop() if len(over) == 1 else ""
            comparisons.append({"against": against, "kind": kind, "rows": rows, "over": only})
    return comparisons


def _difference(analysis: Analysis, label: str, metric: Metric, against: str) -> dict[str, Any] | None:
    """Return a difference as shown; `decides` is the smallest one that the seeds could decide, where they did not."""
    line = analysis.difference(label, metric.name, against)
    if line is None:
        return None
    verdict = line["verdict"]
    words = f"{verdict}*" if verdict != "undecided" and line["p_corrected"] > ERROR else verdict
    value = {"sort": line["mean"], "verdict": verdict, "words": words, "pairs": line["n"]}
    if verdict == "same":
        return {
            **value,
            **dict.fromkeys(("text", "ends", "decides", "over", "corrected"), ""),
            "words": "is the best fixed",
        }
    places = difference_places(line["mean"], line["low"], line["high"], analysis.decimals[metric.name])
    ends = interval(line["low"], line["high"], places, signed=True)
    missed = verdict == "undecided" and math.isfinite(line["decides"])
    value |= {"text": number(line["mean"], places, signed=True), "ends": ends, "over": line["over"] if ends else ""}
    corrected = chance(line["p_corrected"]) if math.isfinite(line["p_corrected"]) else ""
    return {**value, "decides": number(line["decides"], places) if missed else "", "corrected": corrected}


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).strip()
