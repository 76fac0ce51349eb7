"""``r2mae theory advise DATA``: advise on mask ratios for masked linear regression on data, by the closed formula."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.cli.parsing import Parser
from r2mae.cli.theory_model import output_folder
from r2mae.errors import UserError

if TYPE_CHECKING:
    from r2mae.advice.advice import Report

_RAW_FEATURES = 500  # fewer, as with raw features each ratio costs some d × d factorisations


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae theory advise",
        "Advise on the mask ratio of masked linear regression: its risk along the leading directions of the data and "
        "over their features, as a function of the ratio, by a closed formula. Nothing is trained. The advice is not "
        "for pretraining: for the deep model that was measured, it was wrong. DATA is a named set "
        "(digits, mnist), a .npy of samples x features, a .csv, a .h5ad of single-cell counts, or images.",
        "r2mae theory advise digits --samples 200",
    )
    parser.add_argument("data", metavar="DATA", type=str, help="A named set or a path.")
    parser.add_argument(
        "--samples", type=int, help="Number of training rows, may exceed those of DATA; by default all."
    )
    parser.add_argument("--directions", type=int, default=20, help="Number of leading directions.")
    parser.add_argument(
        "--tolerance", type=float, default=0.05, help="Excess normalised risk that is regarded as zero."
    )
    parser.add_argument("--raw", action="store_true", help="Do not standardise the features (slower).")
    parser.add_argument(
        "--max_features", type=int, help="Use this many, the most variable: 2000 by default, with --raw 500."
    )
    parser.add_argument("--out", type=str, help="Folder for figure and tables; by default runs/advise-DATA.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    values = parser.read(words)
    most = values["max_features"]
    _check(values["samples"], values["directions"], values["tolerance"], most)
    out = output_folder(values["out"])

    import numpy as np

    from r2mae.advice.advice import make_report, to_json, write
    from r2mae.advice.data import MAX_FEATURES, load_matrix
    from r2mae.cli.show import print_json

    raw = values["raw"]
    data = load_matrix(
        values["data"], max_features=most if most is not None else _RAW_FEATURES if raw else MAX_FEATURES
    )
    try:
        report = make_report(
            data,
            n=values["samples"],
            directions=values["directions"],
            tolerance=values["tolerance"],
            standardise=not raw,
            ratios=np.arange(1, 20) / 20 if raw else np.arange(1, 100) / 100,
        )
    except (ValueError, ArithmeticError) as error:
        raise UserError(f"{values['data']}: {error}") from None
    out = Path(f"runs/advise-{data.name}") if out is None else out
    write(report, out)
    if values["json"]:
        print_json(to_json(report))
        return 0
    _print(report)
    print(f"figure and tables are in {out}")
    return 0


def _check(samples: int | None, directions: int, tolerance: float, max_features: int | None) -> None:
    """Refuse mistakes before data are loaded."""
    if samples is not None and samples < 2:
        raise UserError(f"--samples must be 2 or more, not {samples}")
    if directions < 1:
        raise UserError(f"--directions must be 1 or more, not {directions}")
    if max_features is not None and max_features < 2:
        raise UserError(f"--max-features must be 2 or more, not {max_features}")
    if not 0 < tolerance < 1:
        raise UserError(f"--tolerance must be above 0 and below 1, not {tolerance:g}")


def _print(report: "Report") -> None:
    import textwrap

    from rich.table import Table

    from r2mae.advice.advice import cautions, choices, opening, paragraph
    from r2mae.terminal import Terminal

    console = Terminal()
    width = min(console.width, 100)
    line, *rest = opening(report)
    print(line)
    for words in rest:
        print(textwrap.fill(words, width, break_on_hyphens=False))
    print()
    for note in report.data.notes:
        print(f"note: {note}")
    print(textwrap.fill(paragraph(report), width, break_on_hyphens=False))
    for caution in cautions(report):
        print(textwrap.fill(f"Caution: {caution}", width, break_on_hyphens=False))
    rows = choices(report)
    if not rows:
        return
    table = Table("choice of the ratio", "ratio", "directions", "features", "worst excess", box=None, pad_edge=False)
    for row in rows:
        worst = "" if row["worst_excess"] is None else f"{row['worst_excess']:.3f}"
        table.add_row(row["choice"], row["ratio"], f"{row['directions']:.3f}", f"{row['features']:.3f}", worst)
    print()
    console.print(table, highlight=False)
    print()
