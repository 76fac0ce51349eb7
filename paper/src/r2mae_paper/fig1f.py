"""Fig. 1F: fine-tuning error of language models against the mask ratio, on a scale common to all tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from r2mae.errors import UserError
from r2mae_paper.artefact import Part, Size, TableRow, Tables, joined
from r2mae_paper.curves import LINES, Accuracies, expected, read_curves
from r2mae_paper.drawing import COLOURS, Figures, panels, ratio_axis

TITLE = "Fig. 1F: error of fine-tuned language models on one scale, of your table (--curve FILE.csv)"
DATA = "a table of accuracies (--curve FILE.csv)"
COST = {"small": "seconds", "full": "seconds"}
PAPER = "Tasks differ in how their error depends on the mask ratio of pretraining; the curves form one family."
_COLUMNS = ("task", "ratio", "accuracy")


@dataclass(frozen=True)
class AccuraciesSize(Size):
    """The accuracies that are drawn; this artefact simulates nothing.

    Attributes
    ----------
    rows : tuple of (str, float, float)
        Task, ratio and accuracy of each row of the tables.
    """

    rows: Accuracies = ()


SIZE = AccuraciesSize


def with_curves(size: AccuraciesSize, files: Sequence[Path]) -> AccuraciesSize:
    """Return the size with tables of accuracies, checked whether they can be brought to a common scale.

    Parameters
    ----------
    size : AccuraciesSize
        It has nothing else.
    files : sequence of path
        CSV files with the columns task, ratio and accuracy, see :func:`r2mae_paper.error_curve.error_curves`; their
        rows are combined. The paper uses accuracies of Wettig et al. (2022), which are in their repository.

    Raises
    ------
    UserError
        If there is no file, or one cannot be read; and whenever `error_curves` raises.
    """
    if not files:
        raise UserError(
            f"fig1f needs a table of accuracies: --curve FILE.csv ({expected(_COLUMNS[:1])}); "
            "for curves of our own: r2mae reproduce text-ratios"
        )
    size = AccuraciesSize(read_curves(files))
    try:
        _scaled(size)
    except UserError as error:
        raise UserError(f"{', '.join(map(str, files))}: {error}") from None
    return size


def parts(size: AccuraciesSize) -> list[Part]:
    """Return one part."""
    return [Part("curves", 0, lambda jobs, tally: _scaled(size))]


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the curves on one scale."""
    return {"fig1f": joined(results)}


def draw(tables: Tables, size: AccuraciesSize) -> Figures:
    """Draw the error rates as measured, and on one scale."""
    return {"fig1f": _draw(tables["fig1f"])}


def _scaled(size: AccuraciesSize) -> list[TableRow]:
    """Bring all tasks to a common scale."""
    import pandas as pd

    from r2mae_paper.error_curve import error_curves

    curves = error_curves(pd.DataFrame(size.rows, columns=list(_COLUMNS), dtype=object))
    return [{str(name): value for name, value in row.items()} for row in curves.to_dict("records")]


def _draw(rows: list[TableRow]) -> Figure:
    figure, (plain, common) = panels(2, width=3.9, height=3.4)
    for number, task in enumerate(dict.fromkeys(row["task"] for row in rows)):
        look: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": LINES[number // len(COLOURS) % len(LINES)],
            "marker": "o",
            "markersize": 3.5,
            "linewidth": 1.4,
        }
        own = [row for row in rows if row["task"] == task]
        ratios = [row["ratio"] for row in own]
        plain.plot(ratios, [row["error"] for row in own], label=str(task), **look)
        common.plot(ratios, [row["scaled"] for row in own], **look)
    for axes, title, words in (
        (plain, "As measured", "error rate (1 \N{MINUS SIGN} accuracy)"),
        (common, "On one scale (Fig. 1F)", "scaled error rate"),
    ):
        ratio_axis(axes)
        axes.set_title(title)
        axes.set_ylabel(words)
    common.axhline(0, color="#808080", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    plain.legend(fontsize=8)
    return figure
