"""Accuracies by mask ratio that others published, from tables of the user's, and what they have in common with ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError
from r2mae_paper.artefact import TableRow
from r2mae_paper.drawing import COLOURS, panels, ratio_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Accuracies: TypeAlias = tuple[tuple[str | float, ...], ...]
"""Rows of names, then ratio and accuracy."""

LINES = ("-", "--", ":", "-.")
"""Styles of lines, where there are more curves than colours."""

_NUMBERS = ("ratio", "accuracy")
_EXAMPLES = {"model": "large", "task": "sst2", "ratio": "0.15", "accuracy": "0.93"}


def expected(names: Sequence[str]) -> str:
    """Return in words what a table must have."""
    columns = (*names, *_NUMBERS)
    listed = f"{', '.join(columns[:-1])} and {columns[-1]}"
    return (
        f"expected a CSV file with the columns {listed} (fractions), such as {','.join(_EXAMPLES[c] for c in columns)}"
    )


def read_curves(files: Sequence[Path], names: Sequence[str] = ("task",)) -> Accuracies:
    """Return the rows of tables of accuracies, one table after the other.

    Parameters
    ----------
    files : sequence of Path
        CSV files. Columns beside the names, `ratio` and `accuracy` are left out.
    names : sequence of str
        Columns of words.

    Raises
    ------
    UserError
        If a file cannot be read, has no rows, lacks a column, or has an empty name or a number that is no fraction.
    """
    return tuple(row for file in files for row in _rows(Path(file), names))


def _rows(file: Path, names: Sequence[str]) -> Accuracies:
    import pandas as pd

    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file} does not exist: {expected(names)}") from None
    except (OSError, ValueError) as error:  # errors of pandas and of decoding are ValueErrors
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{file}: cannot be read as a table ({reason}): {expected(names)}") from None
    for column in (*names, *_NUMBERS):
        if column not in table.columns:
            columns = ", ".join(map(str, table.columns))[:160]
            raise UserError(f"{file}: has no column {column!r} (it has {columns}): {expected(names)}")
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes further cells at the front for names of rows
        raise UserError(f"{file}: rows have more cells than the first line has columns: {expected(names)}")
    if "model" in table and "model" not in names and table["model"].nunique() > 1:
        raise UserError(f"{file}: has rows of several models, which are no seeds of one: give those of one model")
    if not len(table):
        raise UserError(f"{file}: has no rows: {expected(names)}")
    words = [table[name].map(str).tolist() for name in names]
    for name, cells in zip(names, words, strict=True):
        if nameless := [number for number, word in enumerate(cells, 1) if not word.strip()]:
            raise UserError(f"{file}: row {nameless[0]} names no {name}: {expected(names)}")
    return tuple(zip(*words, *(_fractions(file, name, table[name].tolist()) for name in _NUMBERS), strict=True))


def _fractions(file: Path, name: str, words: Sequence[str]) -> list[float]:
    found = []
    for number, word in enumerate(words, 1):
        try:
            value = float(word)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= 1:
            raise UserError(
                f"{file}: row {number} has {name} {word!r}, expected a fraction from 0 to 1 (divide per cent by 100)"
            )
        found.append(value)
    return found


def by_task(published: Sequence[TableRow]) -> dict[str, tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]]:
    """Return ratios in ascending order and the mean error rate at each, by task."""
    found = {}
    for task in dict.fromkeys(row["task"] for row in published):
        own = [row for row in published if row["task"] == task]
        ratios = sorted({row["ratio"] for row in own})
        errors = [np.mean([1 - row["accuracy"] for row in own if row["ratio"] == ratio]) for ratio in ratios]
        found[str(task)] = (np.array(ratios), np.array(errors))
    return found


def likeness(
    published: Sequence[TableRow], curves: Mapping[str, tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]]
) -> list[TableRow]:
    """Return how alike published error rates and our curves are, over the published ratios that a curve covers.

    Parameters
    ----------
    published : sequence of rows
        With `task`, `ratio` and `accuracy`.
    curves : mapping
        Ascending ratios and risks by name; between ratios they are interpolated.

    Returns
    -------
    list of rows
        `task`, `curve`, the number of `ratios`, and Pearson's and Spearman's correlation, missing below three ratios or
        if a curve is constant.
    """
    from scipy.stats import pearsonr, spearmanr

    rows: list[TableRow] = []
    for task, (ratios, errors) in by_task(published).items():
        for name, (at, risks) in curves.items():
            inside = (ratios >= at[0]) & (ratios <= at[-1])
            ours, theirs = np.interp(ratios[inside], at, risks), errors[inside]
            row: TableRow = {"task": task, "curve": name, "ratios": int(inside.sum())}
            if len(ours) > 2 and np.ptp(ours) > 0 and np.ptp(theirs) > 0:
                row |= {"pearson": float(pearsonr(ours, theirs)[0]), "spearman": float(spearmanr(ours, theirs)[0])}
            else:
                row |= {"pearson": float("nan"), "spearman": float("nan")}
            rows.append(row)
    return rows


def models_by_task(
    rows: Sequence[TableRow], best: Sequence[TableRow], *, columns: int, width: float = 3.6, height: float = 3.2
) -> tuple["Figure", list["Axes"]]:
    """Draw accuracies by ratio in a panel for each task, a curve for each model; a ring marks the best ratio of each.

    Parameters
    ----------
    rows : sequence of rows
        `model`, `task`, `ratio` and `accuracy`; with `low` and `high` there are bars.
    best : sequence of rows
        `model`, `task` and `best_ratio`.
    columns : int
        Most panels side by side.
    width, height : float
        Of a panel, in inches.

    Returns
    -------
    figure : Figure
    axes : list of Axes
        Those with a task. Models have the same colours in all of them.
    """
    tasks, models = (list(dict.fromkeys(row[name] for row in rows)) for name in ("task", "model"))
    columns = min(len(tasks), columns)
    figure, axes = panels(columns, -(-len(tasks) // columns), width=width, height=height)
    for panel in axes[len(tasks) :]:
        panel.set_axis_off()
    for panel, task in zip(axes, tasks, strict=False):
        own, tops = ([row for row in table if row["task"] == task] for table in (rows, best))
        _draw_models(panel, own, {row["model"]: row["best_ratio"] for row in tops if "best_ratio" in row}, models)
        ratio_axis(panel)
        panel.set_title(task)
        panel.set_ylabel("accuracy")
    return figure, axes[: len(tasks)]


def _draw_models(axes: "Axes", rows: Sequence[TableRow], tops: Mapping[str, float], models: Sequence[str]) -> None:
    for number, model in enumerate(models):
        own = [row for row in rows if row["model"] == model]
        if not own:
            continue
        means = np.array([row["accuracy"] for row in own])
        ends = np.array([[row.get(end, np.nan) for row in own] for end in ("low", "high")])
        ratios, reach = [row["ratio"] for row in own], np.nan_to_num(np.abs(ends - means))
        colour, style = COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]
        axes.errorbar(ratios, means, reach if reach.any() else None, fmt=f"o{style}", color=colour, markersize=3.5,
                      linewidth=1.4, elinewidth=0.8, capsize=2, label=model)  # fmt: skip
        if tops.get(model) in ratios:
            top = means[ratios.index(tops[model])]
            axes.plot(tops[model], top, "o", color=colour, markersize=9, fillstyle="none")


def draw_over(axes: "Axes", published: Sequence[TableRow]) -> None:
    """Draw published error rates over a panel of risks, with an axis of their own on the right."""
    if not published:
        return
    right = axes.twinx()
    for number, (task, (ratios, errors)) in enumerate(by_task(published).items()):
        colour = COLOURS[(number + 3) % len(COLOURS)]
        right.plot(ratios, errors, color=colour, marker="s", markersize=4, linewidth=1.2, label=f"{task} (right axis)")
    right.set_ylabel("error rate (1 \N{MINUS SIGN} accuracy)")
    lines = [axes.get_legend_handles_labels(), right.get_legend_handles_labels()]
    handles, labels = ([one for part in parts for one in part] for parts in zip(*lines, strict=True))
    axes.legend(handles, labels, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
