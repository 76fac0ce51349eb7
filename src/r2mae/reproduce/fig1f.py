"""Fig. 1F: fine-tuning error of language models against the mask ratio, brought to one scale over tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from r2mae.errors import UserError
from r2mae.report.style import figure_style, save_figure
from r2mae.reproduce.artefact import Progress, Scale, write_table
from r2mae.reproduce.drawing import COLOURS, panels, ratio_axis

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Fig. 1F: error of fine-tuned language models on one scale, of your table (--curve FILE.csv)"
PAPER = "Tasks differ in how their error depends on the mask ratio of pretraining; the curves form one family."
_LINES = ("-", "--", ":", "-.")
_EXPECTED = "expected a CSV file with the columns task, ratio and accuracy (fractions), such as sst2,0.15,0.93"


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    curve: Sequence[Path] = (),
) -> list[Path]:
    """Write fig1f.csv and the figure.

    Parameters
    ----------
    out, scale, jobs, progress
        As of every artefact; there is one scale, and nothing is simulated.
    curve : sequence of path
        CSV files with the columns task, ratio and accuracy, see :func:`r2mae.text.error_curve.error_curves`; their rows
        are put together. The paper's accuracies are those of Wettig et al. (2022), which their repository has.

    Raises
    ------
    UserError
        Without a file; for one that cannot be read; and as error_curves.
    """
    made = scaled(curve)
    rows = [{str(name): value for name, value in row.items()} for row in made.to_dict("records")]
    return [write_table(out, "fig1f", rows), *save_figure(_draw(made), out, "fig1f")]


def scaled(curve: Sequence[Path]) -> "pd.DataFrame":
    """Read the tables and bring their tasks to one scale."""
    import pandas as pd

    from r2mae.text.error_curve import error_curves

    if not curve:
        raise UserError(f"fig1f needs a table of accuracies: --curve FILE.csv ({_EXPECTED})")
    table = pd.concat([_read(Path(path)) for path in curve], ignore_index=True)
    try:
        return error_curves(table)
    except UserError as error:
        raise UserError(f"{', '.join(map(str, curve))}: {error}") from None


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: {_EXPECTED}") from None
    except (OSError, ValueError) as error:  # pandas' own and those of decoding are ValueErrors
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{path}: cannot be read as a table ({reason}): {_EXPECTED}") from None
    for column in ("task", "ratio", "accuracy"):
        if column not in table.columns:
            found = ", ".join(map(str, table.columns))[:160]
            raise UserError(f"{path}: has no column {column!r} (it has {found}): {_EXPECTED}")
    if nameless := [number for number, task in enumerate(table["task"], 1) if not str(task).strip()]:
        raise UserError(f"{path}: row {nameless[0]} names no task: {_EXPECTED}")
    return table


def _draw(made: "pd.DataFrame") -> Figure:
    with figure_style():
        figure, (plain, common) = panels(2, width=3.9, height=3.4)
        for number, (task, own) in enumerate(made.groupby("task", sort=False)):
            look: dict[str, Any] = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": _LINES[number // len(COLOURS) % len(_LINES)],
                "marker": "o",
                "markersize": 3.5,
                "linewidth": 1.4,
            }
            ratios = own["ratio"].to_numpy()
            plain.plot(ratios, own["error"].to_numpy(), label=str(task), **look)
            common.plot(ratios, own["scaled"].to_numpy(), **look)
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
