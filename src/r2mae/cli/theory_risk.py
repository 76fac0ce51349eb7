"""``r2mae theory risk``: compute the risk curve of a linear model by the closed formula."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser
from r2mae.cli.theory_model import Problem, add_model, output_folder, read_problem

if TYPE_CHECKING:
    from r2mae.theory import Risk

_COLUMNS = ("kept_rows", "risk", "normalised", "bias", "variance", "magnitude")


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae theory risk",
        "The test risk of masked ridgeless regression as a function of the mask ratio, by a closed formula: bias, "
        "variance, and the mean square of the predictions. Normalised risk 1 is a prediction of zero.",
        "r2mae theory risk --model beta --direction 0.1 --low 0.5 --high 0.6 --out runs/risk",
    )
    add_model(parser)
    values = parser.read(words)
    out = output_folder(values["out"])
    problem = read_problem(values)

    from r2mae.cli.show import print_json

    result = problem.formula()
    rows = risk_rows(problem, result)
    sentence = summary_sentence(rows)
    if out is not None:
        _write(problem, result, rows, out)
    if values["json"]:
        print_json({**problem_properties(problem, float(result.null[0])), "rows": rows, "words": sentence})
        return 0
    print_risks(rows, _COLUMNS, f"{problem.title}; risk of predicting zero {float(result.null[0]):.4g}")
    print(sentence)
    if out is not None:
        print(f"table and figure are in {out}")
    return 0


def risk_rows(problem: Problem, result: "Risk") -> list[dict[str, Any]]:
    """Return the risk and its parts, one row for each ratio."""
    import numpy as np

    parts = {
        "kept_rows": result.rows,
        "risk": result.risk[:, 0],
        "normalised": result.normalised[:, 0],
        "bias": np.where(np.abs(result.bias) < 1e-12 * result.risk, 0.0, result.bias)[:, 0],  # no rounding errors
        "variance": result.variance[:, 0],
        "magnitude": result.magnitude[:, 0],
    }
    return [
        {"ratio": label, **{name: float(part[index]) for name, part in parts.items()}}
        for index, label in enumerate(problem.labels())
    ]


def problem_properties(problem: Problem, null: float) -> dict[str, Any]:
    """Return the properties of the problem, to be written with the results."""
    return {
        "model": problem.title,
        "n": problem.n,
        "d": problem.cov.d,
        "noise": problem.noise,
        "ridge": problem.ridge,
        "null": null,
    }


def summary_sentence(rows: Sequence[dict[str, Any]]) -> str:
    """Return a sentence that names the best ratio and compares the range with it."""
    fixed = [row for row in rows if not row["ratio"].startswith("R²MAE")]
    best = min(fixed, key=lambda row: row["risk"])
    if best["normalised"] >= 1:
        sentence = "None of these ratios predicts better than zero does."
        if best["ratio"] != "0":
            sentence += f" The closest is {best['ratio']}, with {best['normalised']:.4f} times the risk."
    else:
        sentence = (
            f"Lowest risk at ratio {best['ratio']}: {best['risk']:.4g}, {best['normalised']:.4f} of predicting zero."
        )
    for row in rows:
        if row["ratio"].startswith("R²MAE"):
            gap = row["normalised"] - best["normalised"]
            side = "above" if gap >= 0 else "below"
            sentence += (
                f" {row['ratio']}: {row['normalised']:.4f}, {abs(gap):.4f} {side} the best of these fixed ratios."
            )
    return sentence


def print_risks(rows: Sequence[dict[str, Any]], columns: Sequence[str], title: str) -> None:
    """Print the rows as a table, with the lowest risk in bold."""
    from rich.markup import escape
    from rich.table import Table

    from r2mae.terminal import Terminal

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


def _write(problem: Problem, result: "Risk", rows: Sequence[dict[str, Any]], out: Path) -> None:
    from r2mae.files import write_rows
    from r2mae.report.style import save_figure
    from r2mae.report.theory_figures import risk_figure

    write_rows(out / "risk.csv", rows, list(rows[0]))
    null, count = float(result.null[0]), len(problem.fixed)
    chosen = None
    if problem.range is not None:
        chosen = (float(problem.range.low), float(problem.range.high), float(result.normalised[-1, 0]))
    figure = risk_figure(
        problem.fixed,
        result.risk[:count, 0] / null,
        result.bias[:count, 0] / null,
        result.variance[:count, 0] / null,
        title=problem.title,
        peak=problem.peak,
        chosen=chosen,
    )
    save_figure(figure, out, "risk")
