"""``r2mae theory risk``: compute the risk curve of a linear model by the closed formula."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import loading
from r2mae.cli.theory_model import ModelOptions, output_folder, read_problem, user_errors

if TYPE_CHECKING:
    from r2mae.theory import Risk
    from r2mae.theory.problem import Problem

_COLUMNS = ("kept_rows", "risk", "normalised", "bias", "variance", "magnitude")


@dataclass(frozen=True)
class Options(ModelOptions):
    """The test risk of masked ridgeless regression as a function of the mask ratio, by a closed formula.

    It is given with its bias, its variance, and the mean square of the predictions. Normalised risk 1 is a prediction
    of zero.

    Examples
    --------
    r2mae theory risk --model beta --direction 0.1 --low 0.5 --high 0.6 --out runs/risk
    r2mae theory risk --cov covariance.npy --n 500 --direction 0.1
    """


def run(options: Options) -> int:
    """Run the command."""
    out = output_folder(options.out)
    with loading("scientific libraries"):
        from r2mae.files import print_json
        from r2mae.theory.problem import risk_rows, summary_sentence

        problem = read_problem(options)
    with user_errors():
        result = problem.formula()
    rows, null = risk_rows(problem, result), float(result.null[0])
    sentence = summary_sentence(rows)
    if out is not None:
        _write(problem, result, rows, out)
    if options.json:
        print_json({**problem.properties(null), "rows": rows, "words": sentence})
        return 0
    print_risks(rows, _COLUMNS, f"{problem.title}; risk of predicting zero {null:.4g}")
    print(sentence)
    if out is not None:
        print(f"table and figure are in {out}")
    return 0


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


def _write(problem: "Problem", result: "Risk", rows: Sequence[dict[str, Any]], out: Path) -> None:
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
