"""Tables and figures of risk curves: on the terminal, and as files in a folder."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from r2mae.files import atomic_write, write_json, write_rows
from r2mae.report.style import save_figure
from r2mae.report.theory_figures import advice_figure, risk_figure, simulation_figure
from r2mae.terminal import Terminal

if TYPE_CHECKING:
    from r2mae.theory import Risk, Simulation
    from r2mae.theory.advise import Advice
    from r2mae.theory.problem import Problem

Rows = Sequence[Mapping[str, Any]]
_LONGEST = 28  # letters of a name in a title
_WIDEST = 100


def print_risks(rows: Rows, columns: Sequence[str], title: str) -> None:
    """Print the rows as a table, with the lowest risk in bold."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("ratio")
    for name in columns:
        shown.add_column(name.replace("_", " "), justify="right")
    best = min(rows, key=lambda row: row[columns[1]])
    for row in rows:
        cells = [_number(row[name]) for name in columns]
        shown.add_row(escape(row["ratio"]), *cells, style="bold" if row is best else "")
    console = Terminal()
    if not console.is_terminal:
        console = Terminal(width=max(console.width, 120))
    console.print(title, highlight=False, soft_wrap=True, markup=False)
    console.print(shown, highlight=False)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def write_risk(problem: "Problem", result: "Risk", rows: Rows, out: Path) -> None:
    """Write ``risk.csv`` and the figure ``risk`` to a folder."""
    write_rows(out / "risk.csv", rows, list(rows[0]))
    null, count = float(result.null[0]), len(problem.fixed)
    figure = risk_figure(
        problem.fixed,
        result.risk[:count, 0] / null,
        result.bias[:count, 0] / null,
        result.variance[:count, 0] / null,
        title=problem.title,
        peak=problem.peak,
        chosen=_chosen(problem, result.normalised[-1, 0]),
    )
    save_figure(figure, out, "risk")


def write_simulation(problem: "Problem", formula: "Risk", measured: "Simulation", rows: Rows, out: Path) -> None:
    """Write ``simulation.csv`` and the figure ``simulation`` to a folder."""
    write_rows(out / "simulation.csv", rows, list(rows[0]))
    null, count = float(measured.null), len(problem.fixed)
    figure = simulation_figure(
        problem.fixed,
        formula.risk[:count, 0] / null,
        measured.normalised[:count],
        measured.deviation[:count] / null,
        title=problem.title,
        peak=problem.peak,
        chosen=_chosen(problem, measured.normalised[-1]),
    )
    save_figure(figure, out, "simulation")


def _chosen(problem: "Problem", normalised: float) -> tuple[float, float, float] | None:
    """Return the ends of the range of ratios, and the normalised risk of drawing from it; None without a range."""
    if problem.range is None:
        return None
    return float(problem.range.low), float(problem.range.high), float(normalised)


def print_advice(text: Mapping[str, Any]) -> None:
    """Print advice in words."""
    width = min(Terminal().width, _WIDEST)
    print(text["answer"])
    print(textwrap.fill(text["caveat"], width, break_on_hyphens=False), end="\n\n")
    for note in text["notes"]:
        print(f"note: {note}")
    for words in (text["paragraph"], *(f"Caution: {caution}" for caution in text["cautions"])):
        print(textwrap.fill(words, width, break_on_hyphens=False))


def write_advice(out: Path, data: str, features: Sequence[str], advice: "Advice", text: Mapping[str, Any]) -> None:
    """Write ``advice.json``, ``curves.csv``, ``targets.csv`` and the figure ``advice`` to a folder."""
    import pandas as pd

    lead, own = advice.directions, advice.features
    names = [f"direction_{index + 1}" for index in range(len(lead.variance))]
    curves = pd.DataFrame(lead.normalised, columns=names)
    means = {"directions_mean": lead.mean, "features_weighted": own.weighted, "worst_excess": lead.worst_excess}
    targets = {
        "target": [*names, *features],
        "variance": [*lead.variance, *own.variance],
        "best_ratio": [*lead.best_ratio, *own.best_ratio],
        "lowest_risk": [*lead.lowest, *own.lowest],
        "learnable": [*lead.learnable.astype(int), *own.learnable.astype(int)],
    }
    tables = {"curves": pd.DataFrame({"ratio": lead.ratios, **means}).join(curves), "targets": pd.DataFrame(targets)}
    for name, table in tables.items():
        with atomic_write(out / f"{name}.csv") as file:
            table.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
    write_json(out / "advice.json", text)
    short = data if len(data) <= _LONGEST else f"{data[: _LONGEST - 1]}…"
    save_figure(advice_figure(advice, short, holds=text["held"]["linear_regression"]), out, "advice")
