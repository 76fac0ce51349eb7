"""What tables of schemes share: means over seeds with intervals, paired differences, ranks, and a figure with dots."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from r2mae.evaluation.statistics import AVERAGE_RANK, rank_table
from r2mae.report.comparison import BASELINE
from r2mae.report.style import BLUE, GREEN, VERMILION
from r2mae.sweep.runs import SweepParameter, Variant, grid
from r2mae.training.config import RunConfig
from r2mae_paper.drawing import Axes, interval, name_rows, panels
from r2mae_paper.gains import compared_rows
from r2mae_paper.rows import TableRow, Tables, select, unique

if TYPE_CHECKING:
    from r2mae_paper.gains import Scores


def schemes(ratios: Sequence[float], *names: str) -> dict[str, Mapping[str, Any]]:
    """Return rows of a table by their labels: fixed ratios, and schemes of these names."""
    fixed = {f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in ratios}
    return {**fixed, **{name: {"scheme": name} for name in names}}


CURRICULA = ("r2mae-dynamic", "cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0")
"""Schemes that the paper combines with others, or compares with R²MAE, in Tables 1, 3, 4 and 6."""


def variants_of(
    base: RunConfig,
    points: Mapping[str, Mapping[str, Any]],
    baselines: Sequence[str] = (),
    **values: Any,
) -> list[Variant]:
    """Return a variant for each row of a table, by its label and the fields that it sets, and for each baseline.

    Parameters
    ----------
    base : RunConfig
        What all rows share; what baselines are measured with.
    points : mapping
        Fields of the configuration by label.
    baselines : sequence of str
    **values
        Columns of the table of runs, in addition to `scheme`.
    """
    rows = grid(base, [SweepParameter("row", points)]) if points else []
    return [
        *(replace(row, values={**values, "scheme": row.config.scheme.name}) for row in rows),
        *(Variant(name, base, {**values, "scheme": BASELINE}, baseline=True) for name in baselines),
    ]


def tables_of(
    results: pd.DataFrame,
    name: str,
    scores: Sequence[str],
    reference: str,
    *,
    baseline: str,
    lower: Sequence[str],
    neither: Sequence[str] = (),
) -> Tables:
    """Return means of scores over seeds with 95 % intervals, and paired differences from a row and from a baseline.

    Parameters
    ----------
    results : DataFrame
        A line a run.
    name : str
        Of the tables.
    scores : sequence of str
        Columns of the results.
    reference : str
        The row that others are compared with.
    baseline : str
        The baseline that all are compared with, where it has the score.
    lower : sequence of str
        Beginnings of the names of scores that are better if lower.
    neither : sequence of str
        Names of scores of which neither is better. Their differences have no verdict.
    """
    scores = [score for score in scores if score in results]

    def references(rows: "Scores", label: str) -> "Scores":
        named = {"reference": reference, baseline: baseline}
        return {against: rows[other] for against, other in named.items() if other in rows and other != label}

    rows = [
        row
        for score in scores
        for row in compared_rows(results, score, references, higher=not score.startswith(tuple(lower)), counted=True)
    ]
    rows = [row for label in results["label"].unique() for row in select(rows, label=label)]
    rows = [{key: row[key] for key in row if row["score"] not in neither or not key.endswith("_is")} for row in rows]
    kept = ["label", "scheme", "seed", "seconds", *scores]
    return {name: rows, f"{name}-runs": results[kept].to_dict("records")}


def average_ranks(results: pd.DataFrame, scores: Sequence[str]) -> dict[str, float]:
    """Return the mean of each row's ranks over scores, as the paper's tables have it: the best of tied ranks.

    Scores are means over seeds; higher is better. Those that a row does not have are left out.
    """
    means = results.groupby("label", sort=False)[[score for score in scores if score in results]].mean()
    means = means.dropna(axis="columns")
    if means.empty:
        return {}
    ranked = rank_table(means, {str(score): True for score in means})[AVERAGE_RANK]
    return {str(label): float(rank) for label, rank in ranked.items()}


def dots(
    rows: Sequence[TableRow], titles: Mapping[str, str], baseline: str, *, without: Sequence[str] = (), columns: int = 4
) -> Figure:
    """Draw a panel for each score: rows with their means and intervals, and a baseline as a dashed line.

    Rows named in `without` are left out, and so are those without a value in the panels of a line.
    """
    named = [title for title in titles if select(rows, score=title)]
    labels = [label for label in unique(rows, "label") if label not in without]
    columns = max(min(len(named), columns), 1)
    lines = [named[start : start + columns] for start in range(0, len(named), columns)] or [[]]
    valued = [{row["label"] for row in rows if row["score"] in line} for line in lines]
    shown = [[label for label in labels if label in line] for line in valued]
    heights = [0.8 + 0.24 * len(one) for one in shown]
    figure, grid_of_axes = panels(columns, len(lines), width=3.1, height=sum(heights) / len(lines), heights=heights)
    for axes in grid_of_axes[len(named) :]:
        axes.set_visible(False)
    for place, (axes, score) in enumerate(zip(grid_of_axes, named, strict=False)):
        _panel(axes, select(rows, score=score), shown[place // columns], baseline, place % columns == 0)
        axes.set_title(titles[score], fontsize=9)
    return figure


def _panel(axes: Axes, rows: Sequence[TableRow], labels: Sequence[str], baseline: str, named: bool) -> None:
    found = {row["label"]: row for row in rows if row["label"] in labels}
    for label, row in found.items():
        colour = GREEN if label == baseline else VERMILION if label.startswith("r2mae") else BLUE
        interval(axes, row["mean"], row["low"], row["high"], labels.index(label), color=colour)
    reference = next((row["mean"] for row in rows if row["label"] == baseline), None)
    name_rows(axes, list(labels) if named else [""] * len(labels), reference)
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(axis="x", labelsize=7)  # larger ones of a narrow range, such as 0.60025, would touch
