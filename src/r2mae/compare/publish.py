"""Write the output of a comparison (tables, figures, report), and print the table on the terminal."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from r2mae.compare.analysis import Analysis, analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.figures import comparison_figures, save_figures
from r2mae.compare.finished import read_looks
from r2mae.compare.html import write_report
from r2mae.compare.results_json import to_json
from r2mae.compare.table import print_comparison
from r2mae.files import atomic_write, write_json
from r2mae.terminal import Terminal

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 110


def publish(comparison: Comparison, out: Path, *, console: Console | None = None) -> None:
    """Write ``results.csv``, ``times.csv``, ``results.json``, ``figures/`` and ``report.html``, and print the table.

    The seeds of each corrected verdict are written into ``looks.json``: verdicts count the looks with other seeds, or
    with another reference.
    """
    analysis = analyse(comparison)
    looks = _count_looks(out, comparison, analysis)
    if max(looks.values(), default=1) > 1:
        comparison = replace(comparison, looks=looks)
        analysis = analyse(comparison)
    write_table(comparison, out / "results.csv", analysis)
    write_times(comparison, out / "times.csv")
    write_json(out / "results.json", to_json(comparison, analysis))
    figures = comparison_figures(comparison, analysis)
    save_figures(figures, out / "figures")
    write_report(out / "report.html", comparison, analysis, figures)
    print_comparison(console or _console(), comparison, analysis)


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


def write_table(comparison: Comparison, path: Path, analysis: Analysis | None = None) -> None:
    """Write ``results.csv``, one line per run. It contains no times: the same runs give the same bytes.

    The last columns are the fingerprint of the run's test items, if it has scores of single items, and the units that
    the interval of its variant's difference in the headline samples.
    """
    table, over = comparison.table.drop(columns="seconds"), (analysis or analyse(comparison)).interval_units()
    runs = zip(table["label"], table["seed"], strict=True)
    items = [comparison.items.get((label, int(seed))) for label, seed in runs]
    columns = {
        "items": ["" if one is None else one.fingerprint for one in items],
        "interval_over": [over.get(label, "") for label in table["label"]],
    }
    _write(table.assign(**columns), path)


def write_times(comparison: Comparison, path: Path) -> None:
    """Write ``times.csv``: the seconds of training of each run, on the machine where it ran."""
    _write(comparison.table[["label", "seed", "seconds"]], path)


def _write(table: "pd.DataFrame", path: Path) -> None:
    with atomic_write(path) as file:
        table.to_csv(file, index=False, lineterminator="\n", float_format="%.10g")
