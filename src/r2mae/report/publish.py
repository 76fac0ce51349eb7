"""Write the output of a comparison: tables, figures and report; and print the table on the terminal."""

from pathlib import Path

from rich.console import Console

from r2mae.files import atomic_write, write_json
from r2mae.report.analysis import analyse, to_json
from r2mae.report.comparison import Comparison
from r2mae.report.figures import save_figures
from r2mae.report.html import write_report
from r2mae.report.table import print_comparison

_WIDTH = 110


def publish(comparison: Comparison, out: Path, *, console: Console | None = None) -> None:
    """Write ``results.csv``, ``results.json``, ``figures/`` and ``report.html``, and print the table."""
    analysis = analyse(comparison)
    write_table(comparison, out / "results.csv")
    write_json(out / "results.json", to_json(comparison, analysis))
    save_figures(comparison, analysis, out / "figures")
    write_report(out / "report.html", comparison, analysis)
    print_comparison(console or _console(), comparison, analysis)


def _console() -> Console:
    """Return a console; for a file or pipe, which has no width, one that is wide enough for the table."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _WIDTH))


def write_table(comparison: Comparison, path: Path) -> None:
    """Write ``results.csv``: one line a run."""
    with atomic_write(path) as file:
        comparison.table.to_csv(file, index=False, lineterminator="\n", float_format="%.10g")
