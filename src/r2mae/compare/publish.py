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
    # One line per run. results.csv contains no times: the same runs give the same bytes on every machine.
    _write(comparison.table.drop(columns="seconds"), out / "results.csv")
    _write(comparison.table[["label", "seed", "seconds"]], out / "times.csv")
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


def _write(table: "pd.DataFrame", path: Path) -> None:
    with atomic_write(path) as file:
        table.to_csv(file, index=False, lineterminator="\n", float_format="%.10g")
