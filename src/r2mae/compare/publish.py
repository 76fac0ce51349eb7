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
from r2mae.compare.comparison import Comparison
from r2mae.compare.figures import NamedFigure, colours_of, comparison_figures, inline_svg, save_figures
from r2mae.compare.run_states import read_looks
from r2mae.compare.table import print_comparison
from r2mae.compare.wording import BEST_FIXED, CONFIDENCE, chance, comparator, difference_places, interval, number
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR
from r2mae.files import atomic_write, check_contents, write_json
from r2mae.terminal import Terminal

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 110


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
    write_json(out / "results.json", to_json(comparison, analysis))
    figures = comparison_figures(comparison, analysis)
    save_figures(figures, out / "figures")
    with atomic_write(out / "report.html") as file:
        file.write(render_report(comparison, analysis, figures))
    print_comparison(console or _console(), comparison, analysis)
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
    """Return a console; for a file or pipe, which has no width, one that is wide enough for the table."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=max(console.width, _WIDTH))


def _write(table: "pd.DataFrame", path: Path) -> None:
    with atomic_write(path) as file:
        table.to_csv(file, index=False, lineterminator="\n", float_format="%.10g")


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


SCHEMA_VERSION = 1


def to_json(comparison: Comparison, analysis: Analysis) -> dict[str, Any]:
    """Return ``results.json``: the comparison's runs and all findings as plain types, None for missing values.

    A bound that a metric lacks is None. The runs are under the key ``runs``.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "title": comparison.title,
        "headline": analysis.headline,
        "notes": list(analysis.notes),
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
