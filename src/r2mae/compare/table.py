"""A comparison as a table on the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from r2mae.compare.analysis import Analysis
from r2mae.compare.comparison import Comparison
from r2mae.compare.wording import BEST_FIXED, CONFIDENCE, difference_places, interval, number, seeds
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR

_ANY_WIDTH = 10_000
_OMITTED_NOTE = "Other scores do not fit: widen the terminal, or open report.html."
_SYMMETRIC_METHODS = ("t", "crossed t")
_STYLES = {"better": "bold green", "worse": "red", "undecided": "yellow"}


def comparison_table(comparison: Comparison, analysis: Analysis, *, short: bool = False) -> Table:
    """Return the table, a row per label: the primary metric, its difference from the headline's reference, other means.

    If that is another than the best fixed ratio, the difference from the best fixed ratio has a further column.

    Parameters
    ----------
    comparison : Comparison
        Finished runs.
    analysis : Analysis
        Their analysis.
    short : bool
        Omit the other metrics.
    """
    primary, paired = analysis.primary, not analysis.differences.empty
    rows = {label: analysis.interval(label, primary.name) for label in comparison.labels}
    numbers = {label: analysis.seeds(label) for label in rows}
    counts = sorted(set(numbers.values()))
    table = Table(
        title=_title(comparison, counts), box=None, padding=(0, 1, 0, 0), title_justify="left", title_style="bold"
    )
    columns = [_Column("scheme", [Text(label) for label in rows])]
    if len(counts) > 1:
        columns.append(_Column("seeds", [Text(str(n)) for n in numbers.values()], right=True))
    leaders = analysis.leaders(primary.name)
    columns.append(
        _Column(_heading(primary), [_bold(_estimate(row, analysis), label in leaders) for label, row in rows.items()])
    )
    if paired:
        against = analysis.against[0]
        gaps = [_difference(analysis, label, against) for label in rows]
        columns.append(_Column(f"minus {against}", [gap for gap, _ in gaps]))
        columns.append(_Column("verdict", [verdict for _, verdict in gaps]))
        if against != BEST_FIXED and primary.name in analysis.best_fixed:
            columns.append(_Column(f"minus {BEST_FIXED}", [_difference(analysis, one, BEST_FIXED)[0] for one in rows]))
    others = () if short else analysis.metrics[1:]
    columns += [_Column(_heading(m), _means(analysis, m, list(rows)), right=True) for m in others]
    columns.append(
        _Column("average rank", [Text(number(analysis.average_rank(label), 1)) for label in rows], right=True)
    )
    for column in columns:
        table.add_column(column.wrapped, justify="right" if column.right else "left", no_wrap=True)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def print_comparison(console: Console, comparison: Comparison, analysis: Analysis) -> None:
    """Print the headline, the table and the notes.

    Parameters
    ----------
    console : Console
        Console to print on.
    comparison, analysis
        As for :func:`comparison_table`.
    """
    console.print(Text(analysis.headline, style="bold"))
    console.print()
    table, notes = comparison_table(comparison, analysis), analysis.notes
    full_width = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum
    if full_width > console.width and len(analysis.metrics) > 1:
        table = comparison_table(comparison, analysis, short=True)
        notes = (_OMITTED_NOTE, *notes)
    console.print(table)
    if notes:
        console.print()
    for note in notes:
        console.print(Text(note, style="dim"))


@dataclass(frozen=True)
class _Column:
    heading: str
    cells: list[Text]
    right: bool = False

    @property
    def wrapped(self) -> str:
        """The heading, wrapped between words to the width of the cells."""
        lines = [line for cell in self.cells for line in cell.plain.splitlines()]
        width = max(map(len, [*lines, *self.heading.split(" ")]))
        return escape("\n".join(wrap(self.heading, width, break_long_words=False, break_on_hyphens=False)))


def _title(comparison: Comparison, counts: list[int]) -> Text:
    words = seeds(counts[0]) if len(counts) == 1 else f"{counts[0]} to {seeds(counts[-1])}"
    if counts[-1] > 1:
        words += f", {CONFIDENCE:.0%} intervals"
    return Text(f"{comparison.title} ({words})")


def _heading(metric: Metric) -> str:
    return f"{metric.label}\u00a0{metric.arrow}" if metric.arrow else metric.label


def _estimate(row: Mapping[str, Any], analysis: Analysis, *, signed: bool = False) -> str:
    """Return a mean with its interval: behind ± if symmetric, as t intervals are, else on a line below."""
    places = analysis.decimals[analysis.primary.name]
    if signed:
        places = difference_places(row["mean"], row["low"], row["high"], places)
    mean = number(row["mean"], places, signed=signed)
    ends = interval(row["low"], row["high"], places, signed=signed)
    if not ends:
        return mean
    half = max(row["high"] - row["mean"], row["mean"] - row["low"])  # one end may be a bound of the metric
    return f"{mean} ±{number(half, places)}" if row["method"] in _SYMMETRIC_METHODS else f"{mean}\n{ends}"


def _difference(analysis: Analysis, label: str, against: str) -> tuple[Text, Text]:
    difference = analysis.difference(label, analysis.primary.name, against)
    if difference is None:
        return Text(""), Text("")
    if difference["verdict"] == "same":
        return Text(BEST_FIXED, style="dim"), Text("")
    verdict = difference["verdict"]
    alone = verdict != "undecided" and difference["p_corrected"] > ERROR  # false for NaN
    words = Text(f"{verdict}*" if alone else verdict, style=_STYLES[verdict])
    return Text(_estimate(difference, analysis, signed=True)), words


def _means(analysis: Analysis, metric: Metric, labels: Sequence[str]) -> list[Text]:
    leaders, places = analysis.leaders(metric.name), analysis.decimals[metric.name]
    means = {label: analysis.interval(label, metric.name)["mean"] for label in labels}
    return [_bold(number(mean, places), label in leaders) for label, mean in means.items()]


def _bold(text: str, best: bool) -> Text:
    return Text(text, style="bold" if best else "")
