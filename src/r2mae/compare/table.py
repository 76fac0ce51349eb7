"""A comparison as a table on the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from r2mae.compare.analysis import Analysis
from r2mae.compare.answers import answers
from r2mae.compare.comparison import Comparison
from r2mae.compare.wording import BEST_FIXED, CONFIDENCE, difference_places, interval, number, seeds
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR

UNLIMITED = 10_000
"""Columns of a file or pipe: nothing is wrapped."""
_SYMMETRIC_METHODS = ("t", "crossed t")
_STYLES = {"better": "bold green", "worse": "red", "undecided": "yellow"}


def comparison_tables(comparison: Comparison, analysis: Analysis, width: int = UNLIMITED) -> list[Table]:
    """Return the table, a row per label, in as many parts as a width needs; each begins with the label.

    Of each question it has the mean, the difference from the headline's reference and the verdict; of other metrics the
    mean. If the reference is another than the best fixed ratio, the difference from that has a further column.

    Parameters
    ----------
    comparison : Comparison
        Finished runs.
    analysis : Analysis
        Their analysis.
    width : int
        Columns of the terminal.
    """
    labels, against = comparison.labels, analysis.against[0]
    numbers = {label: analysis.seeds(label) for label in labels}
    counts = sorted(set(numbers.values()))
    groups = [[_Column("seeds", [Text(str(n)) for n in numbers.values()], right=True)]] if len(counts) > 1 else []
    for metric in dict.fromkeys((analysis.primary, *analysis.questions)):
        rows = {label: analysis.interval(label, metric.name) for label in labels}
        leaders = analysis.leaders(metric.name)
        means = [_bold(_estimate(row, analysis, metric), label in leaders) for label, row in rows.items()]
        groups.append([_Column(_heading(metric), means)])
        if metric.name in analysis.references:
            gaps = [_difference(analysis, metric, label, against) for label in labels]
            groups[-1].append(_Column(f"minus {against}", [value for value, _ in gaps]))
            groups[-1].append(_Column("verdict", [verdict for _, verdict in gaps]))
        if against != BEST_FIXED and metric.name in analysis.best_fixed:
            others = [_difference(analysis, metric, label, BEST_FIXED)[0] for label in labels]
            groups[-1].append(_Column(f"minus {BEST_FIXED}", others))
    groups += [
        [_Column(_heading(metric), _means(analysis, metric, labels), right=True)]
        for metric in analysis.metrics[1:]
        if metric not in analysis.questions
    ]
    first = _Column("scheme", [Text(label) for label in labels])
    parts: list[list[_Column]] = [[first]]
    for group in groups:
        if len(parts[-1]) > 1 and sum(one.width + 1 for one in (*parts[-1], *group)) > width:
            parts.append([first])
        parts[-1] += group
    return [_table(part) for part in parts]


def _table(columns: "Sequence[_Column]") -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column.wrapped, justify="right" if column.right else "left", no_wrap=True)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def print_comparison(console: Console, comparison: Comparison, analysis: Analysis, out: Path | None = None) -> None:
    """Print the table, and below it the findings, what to run next, a warning, and the path of the report.

    Parameters
    ----------
    console : Console
        Console to print on.
    comparison, analysis
        As for :func:`comparison_tables`.
    out : Path, optional
        Folder of the comparison.
    """
    console.print(_title(comparison, analysis))
    for table in comparison_tables(comparison, analysis, console.width):
        console.print(table)
        console.print()
    found = answers(comparison, analysis, out)
    lines = [(line, "bold") for line in found.headline]
    lines += [(f"Next: {found.next}", "")] * bool(found.next)
    lines += [(f"Note: {warning}", "") for warning in found.warnings[:1]]
    lines += [(f"Report: {out / 'report.html'}", "")] if out else []
    for line, style in lines:
        console.print(Text(line, style=style))


@dataclass(frozen=True)
class _Column:
    heading: str
    cells: list[Text]
    right: bool = False

    @property
    def width(self) -> int:
        """The width of the cells, and of the longest word of the heading."""
        lines = [line for cell in self.cells for line in cell.plain.splitlines()]
        return max(map(cell_len, [*lines, *self.heading.split(" ")]))

    @property
    def wrapped(self) -> str:
        """The heading, wrapped between words to the width of the cells."""
        return escape("\n".join(wrap(self.heading, self.width, break_long_words=False, break_on_hyphens=False)))


def _title(comparison: Comparison, analysis: Analysis) -> Text:
    counts = sorted({analysis.seeds(label) for label in comparison.labels})
    words = seeds(counts[0]) if len(counts) == 1 else f"{counts[0]} to {seeds(counts[-1])}"
    if counts[-1] > 1:
        words += f", {CONFIDENCE:.0%} intervals"
    rows = analysis.differences[analysis.differences["against"] == analysis.against[0]]
    if ((rows["verdict"] != "undecided") & (rows["p_corrected"] > ERROR)).any():
        words += "; * not once all schemes and looks are counted"
    return Text(f"{comparison.title} ({words})", style="bold")


def _heading(metric: Metric) -> str:
    return f"{metric.label}\u00a0{metric.arrow}" if metric.arrow else metric.label


def _estimate(row: Mapping[str, Any], analysis: Analysis, metric: Metric, *, signed: bool = False) -> str:
    """Return a mean with its interval: behind ± if symmetric, as t intervals are, else on a line below."""
    places = analysis.decimals[metric.name]
    if signed:
        places = difference_places(row["mean"], row["low"], row["high"], places)
    mean = number(row["mean"], places, signed=signed)
    ends = interval(row["low"], row["high"], places, signed=signed)
    if not ends:
        return mean
    half = max(row["high"] - row["mean"], row["mean"] - row["low"])  # one end may be a bound of the metric
    return f"{mean} ±{number(half, places)}" if row["method"] in _SYMMETRIC_METHODS else f"{mean}\n{ends}"


def _difference(analysis: Analysis, metric: Metric, label: str, against: str) -> tuple[Text, Text]:
    difference = analysis.difference(label, metric.name, against)
    if difference is None:
        return Text(""), Text("")
    if difference["verdict"] == "same":
        return Text(BEST_FIXED, style="dim"), Text("")
    verdict = difference["verdict"]
    alone = verdict != "undecided" and difference["p_corrected"] > ERROR  # false for NaN
    words = Text(f"{verdict}*" if alone else verdict, style=_STYLES[verdict])
    return Text(_estimate(difference, analysis, metric, signed=True)), words


def _means(analysis: Analysis, metric: Metric, labels: Sequence[str]) -> list[Text]:
    leaders, places = analysis.leaders(metric.name), analysis.decimals[metric.name]
    means = {label: analysis.interval(label, metric.name)["mean"] for label in labels}
    return [_bold(number(mean, places), label in leaders) for label, mean in means.items()]


def _bold(text: str, best: bool) -> Text:
    return Text(text, style="bold" if best else "")
