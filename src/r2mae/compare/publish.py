"""Write the output of a comparison (tables, figures, report), and print the table on the terminal.

The report is one HTML file that needs no network, and can be read without scripts. ``results.json`` has the runs and
findings as plain types, for other programs.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex
from rich.console import Console

from r2mae.compare.analysis import Analysis, analyse, fixed_labels
from r2mae.compare.answers import answers
from r2mae.compare.comparison import Comparison
from r2mae.compare.figures import NamedFigure, colours_of, comparison_figures, inline_svg, save_figures
from r2mae.compare.run_states import read_looks
from r2mae.compare.table import UNLIMITED, print_comparison
from r2mae.compare.wording import BEST_FIXED, CONFIDENCE, chance, difference_places, interval, number, seeds
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR
from r2mae.files import atomic_write, check_contents, write_json
from r2mae.terminal import Terminal

if TYPE_CHECKING:
    import pandas as pd


def publish(comparison: Comparison, out: Path, *, console: Console | None = None) -> Comparison:
    """Write ``results.csv``, ``times.csv``, ``results.json``, ``figures/`` and ``report.html``, and print the table.

    The seeds of each corrected verdict are written into ``looks.json``: verdicts count the looks with other seeds, or
    with another reference. The comparison is returned with its looks.
    """
    check_contents(out)
    analysis = analyse(comparison)
    looks = _count_looks(out, comparison, analysis)
    if max(looks.values(), default=1) > 1:
        comparison = replace(comparison, looks=looks)
        analysis = analyse(comparison)
    # One line per run. results.csv contains no times: the same runs give the same bytes on every machine.
    _write(comparison.table.drop(columns="seconds"), out / "results.csv")
    _write(comparison.table[["label", "seed", "seconds"]], out / "times.csv")
    write_json(out / "results.json", to_json(comparison, analysis, out))
    figures = comparison_figures(comparison, analysis)
    save_figures(figures, out / "figures")
    with atomic_write(out / "report.html") as file:
        file.write(render_report(comparison, analysis, figures, out))
    print_comparison(console or _console(), comparison, analysis, out)
    return comparison


def _count_looks(out: Path, comparison: Comparison, analysis: Analysis) -> dict[str, int]:
    """Record the seeds of each scheme that has a corrected verdict, and return the number of looks at each."""
    looks, differences, runs = read_looks(out), analysis.differences, comparison.table
    for label in map(str, differences.loc[differences["p_corrected"].notna(), "label"]):
        seeds = sorted({int(seed) for seed in runs.loc[runs["label"] == label, "seed"]})
        shown = looks.setdefault(analysis.against[0], {}).setdefault(label, [])
        if seeds not in shown:
            shown.append(seeds)
    write_json(out / "looks.json", looks)
    labels = looks.get(analysis.against[0], {})
    return {label: sum(len(one.get(label, ())) for one in looks.values()) for label in labels}


def _console() -> Console:
    """Return a console; for a file or pipe, which has no width, one of any width."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=UNLIMITED)


def _write(table: "pd.DataFrame", path: Path) -> None:
    with atomic_write(path) as file:
        table.to_csv(file, index=False, lineterminator="\n", float_format="%.10g")


def render_report(
    comparison: Comparison, analysis: Analysis, figures: Sequence[NamedFigure] | None = None, out: Path | None = None
) -> str:
    """Return the page; what comes from outside is escaped. `figures` are those of the comparison, if drawn."""
    figures = comparison_figures(comparison, analysis) if figures is None else figures
    templates = Environment(
        loader=PackageLoader("r2mae.compare"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("report.html.j2").render(c=_context(comparison, analysis, figures, out))


_MAIN = ("reconstructions", "differences")  # figures above the table


def _context(
    comparison: Comparison, analysis: Analysis, figures: Sequence[NamedFigure], out: Path | None
) -> dict[str, Any]:
    findings, told, against = (
        to_json(comparison, analysis, out),
        answers(comparison, analysis, out),
        analysis.against[0],
    )
    seeds_of = sorted(set(comparison.table["seed"]))
    chosen = "It is chosen for every seed on the other seeds." if against == BEST_FIXED and len(seeds_of) > 1 else ""
    return {
        "title": comparison.title,
        "headline": told.headline,
        "next": told.next,
        "notes": told.warnings,
        "measured": comparison.measured,
        "confidence": f"{CONFIDENCE:.0%}",
        "against": against,
        "reference": chosen,
        "chosen_on": "the other seeds" if len(seeds_of) > 1 else "the one seed there is",
        "seeds": seeds(len(seeds_of)),
        "scores": _scores(comparison, analysis),
        "measures": _measures(comparison, analysis),
        "differences": _differences(comparison, analysis),
        "choices": _choices(comparison, analysis),
        "main": _MAIN,
        "figures": [(named, Markup(inline_svg(named.svg, named.name))) for named in figures],
        "config": _yaml({name: value for name, value in findings["config"].items() if value is not None}),
        "environment": _yaml(findings["environment"]),
    }


_Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""Headings and rows of a table. A cell has a text, perhaps an interval below it, and the number to sort by."""


def _scores(comparison: Comparison, analysis: Analysis) -> _Rows:
    """Return the table of the page: for each question the means, and the differences from the reference."""
    headings, cells = [{"text": "scheme"}], {label: list[dict[str, Any]]() for label in comparison.labels}
    for metric in dict.fromkeys((analysis.primary, *analysis.questions)):
        headings.append(_heading(metric))
        differs = metric.name in analysis.references
        headings += (
            [{**_heading(metric), "text": f"minus {analysis.against[0]}"}, {"text": "verdict"}] if differs else []
        )
        for label, row in cells.items():
            row.append(_mean(analysis, metric, label) | {"ends": ""})
            if differs:
                line = analysis.difference(label, metric.name)
                row.append(_difference(analysis, metric, line))
                words = _verdict(line) if line else ""
                row.append(_cell({"same": analysis.against[0]}.get(words, words), style=words.rstrip("*")))
    return headings, _rows(comparison, cells)


def _measures(comparison: Comparison, analysis: Analysis) -> _Rows:
    """Return the means of all metrics with their intervals, the number of seeds, and the average rank."""
    headings = [{"text": "scheme"}, {"text": "seeds"}, *map(_heading, analysis.metrics), {"text": "average rank"}]
    cells = {}
    for label in comparison.labels:
        rank, count = analysis.average_rank(label), analysis.seeds(label)
        means = [_mean(analysis, metric, label) for metric in analysis.metrics]
        cells[label] = [_cell(str(count), count), *means, _cell(number(rank, 1) if math.isfinite(rank) else "", rank)]
    return headings, _rows(comparison, cells)


def _differences(comparison: Comparison, analysis: Analysis) -> _Rows:
    """Return the statistics of the differences that answer the questions, a row for each."""
    rows = []
    for metric in analysis.questions:
        for label in comparison.labels:
            line = analysis.difference(label, metric.name)
            if line and line["verdict"] != "same":
                places = difference_places(line["mean"], line["low"], line["high"], analysis.decimals[metric.name])
                size, p = line["decides"], line["p_corrected"]
                row = [_cell(metric.question or metric.label), _cell(str(line["n"]), line["n"])]
                row.append(_cell(line["over"] if math.isfinite(line["low"]) else ""))
                row.append(_cell(chance(p) if math.isfinite(p) else "", p))
                row.append(_cell(number(size, places) if math.isfinite(size) else "", size))
                rows.append({"label": label, "colour": "", "cells": row})
    names = ("scheme", "question", "pairs", "over", "p", "decides from")
    return [{"text": name} for name in names], rows


def _choices(comparison: Comparison, analysis: Analysis) -> _Rows:
    """Return the best fixed ratio of each seed, by question; no rows with fewer than two fixed ratios."""
    asked = [metric for metric in analysis.questions if metric.name in analysis.best_fixed]
    chosen = [analysis.best_fixed[metric.name].labels for metric in asked if len(fixed_labels(comparison)) > 1]
    by_seed = sorted({seed for labels in chosen for seed in labels})
    rows = [
        {"label": f"seed {seed}", "colour": "", "cells": [_cell(labels.get(seed, "")) for labels in chosen]}
        for seed in by_seed
    ]
    return [{"text": "seed"}, *({"text": metric.label} for metric in asked)], rows


def _heading(metric: Metric) -> dict[str, Any]:
    text = f"{metric.label}\u00a0{metric.arrow}" if metric.arrow else metric.label
    return {"text": text, "descending": metric.higher_is_better is not False}


def _cell(text: str, sort: float | None = None, *, ends: str = "", style: str = "") -> dict[str, Any]:
    """Return a cell; without a number it is sorted by its text, and an empty one is always last."""
    found = {"text": text, "ends": ends, "style": style}
    if sort is None and text:
        return found
    return {**found, "sort": sort if sort is not None and math.isfinite(sort) else None}


def _mean(analysis: Analysis, metric: Metric, label: str) -> dict[str, Any]:
    line, places = analysis.interval(label, metric.name), analysis.decimals[metric.name]
    if not line["n"]:
        return _cell("")
    best = "best" if label in analysis.leaders(metric.name) else ""
    ends = interval(line["low"], line["high"], places)
    return _cell(number(line["mean"], places), line["mean"], ends=ends, style=best)


def _difference(analysis: Analysis, metric: Metric, line: Mapping[str, Any] | None) -> dict[str, Any]:
    if line is None or line["verdict"] == "same":
        return _cell("", None if line is None else 0.0)
    places = difference_places(line["mean"], line["low"], line["high"], analysis.decimals[metric.name])
    ends = interval(line["low"], line["high"], places, signed=True)
    return _cell(number(line["mean"], places, signed=True), line["mean"], ends=ends)


def _verdict(line: Mapping[str, Any]) -> str:
    """Return a verdict, with a star where the correction takes it back."""
    starred = line["verdict"] in ("better", "worse") and line["p_corrected"] > ERROR  # false for NaN
    return f"{line['verdict']}{'*' * starred}"


def _rows(comparison: Comparison, cells: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    colours = colours_of(comparison)
    return [{"label": label, "colour": to_hex(colours[label]), "cells": row} for label, row in cells.items()]


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).strip()


SCHEMA_VERSION = 1


def to_json(comparison: Comparison, analysis: Analysis, out: Path | None = None) -> dict[str, Any]:
    """Return ``results.json``: the comparison's runs and all findings as plain types, None for missing values.

    A bound that a metric lacks is None. The runs are under the key ``runs``.
    """
    told = answers(comparison, analysis, out)
    return {
        "schema_version": SCHEMA_VERSION,
        "title": comparison.title,
        "headline": " ".join(told.headline),
        "next": told.next,
        "notes": list(told.warnings),
        "confidence": CONFIDENCE,
        "primary_metric": analysis.primary.name,
        "against": analysis.against[0],
        "looks": dict(comparison.looks),
        "measured": comparison.measured,
        "metrics": [
            {**asdict(metric), "bounds": [end if isfinite(end) else None for end in metric.bounds]}
            for metric in comparison.metrics
        ],
        "summary": _records(analysis.summary),
        "differences": _records(analysis.differences),
        "best_fixed": {
            metric: {
                "held_out": choice.held_out,
                "seeds": [
                    {"seed": seed, "label": choice.labels[seed], "score": score}
                    for seed, score in choice.scores.items()
                ],
            }
            for metric, choice in analysis.best_fixed.items()
        },
        "ranks": _records(analysis.ranks.rename_axis("label").reset_index()),
        "runs": _records(comparison.table),
        "config": _plain(comparison.config),
        "environment": _plain(comparison.environment),
    }


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): None if pd.isna(value) else value for key, value in record.items()}
        for record in table.to_dict("records")
    ]


def _plain(value: Mapping[str, Any]) -> Any:
    return json.loads(
        json.dumps(value, default=lambda other: other.tolist() if hasattr(other, "tolist") else str(other))
    )
