"""What tables of schemes share: means over seeds with intervals, paired differences, ranks, and a figure with dots."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from r2mae.evaluation.statistics import AVERAGE_RANK, mean_interval, paired_difference, rank_table
from r2mae.report.style import BLUE, GREEN, VERMILION
from r2mae_paper.artefact import TableRow, Tables
from r2mae_paper.drawing import GREY, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def tables_of(
    results: "pd.DataFrame",
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
    by_label = {label: group.set_index("seed") for label, group in results.groupby("label", sort=False)}
    rows: list[TableRow] = []
    for label, group in by_label.items():
        for score in scores:
            mine = group[score].dropna()  # no variant of a class may lie in a held-out part
            if mine.empty:
                continue
            found = mean_interval(mine)
            row: TableRow = {"label": label, "score": score, "seeds": found.n, "mean": found.mean}
            row |= {"low": found.low, "high": found.high}
            higher = not score.startswith(tuple(lower))
            for other, prefix in ((reference, "vs_reference"), (baseline, f"vs_{baseline}")):
                gap = _difference(mine, by_label.get(other), score, prefix, higher) if label != other else {}
                row |= {key: value for key, value in gap.items() if score not in neither or not key.endswith("_is")}
            rows.append(row)
    kept = ["label", "scheme", "seed", "seconds", *scores]
    return {name: rows, f"{name}-runs": results[kept].to_dict("records")}


def _difference(
    mine: "pd.Series[float]", other: "pd.DataFrame | None", score: str, prefix: str, higher: bool
) -> TableRow:
    both = (
        []
        if other is None
        else [seed for seed in mine.index if seed in other.index and np.isfinite(other[score][seed])]
    )
    if other is None or not both:
        return {}
    found = paired_difference(mine[both], other[score][both], higher_is_better=higher)
    ends = {f"{prefix}_low": found.low, f"{prefix}_high": found.high}
    return {prefix: found.mean, **ends, f"{prefix}_is": found.verdict, f"{prefix}_pairs": found.n}


def average_ranks(results: "pd.DataFrame", scores: Sequence[str]) -> dict[str, float]:
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

    Rows named in `without` are left out, and so are those without a value in the panels beside each other.
    """
    named = [title for title in titles if any(row["score"] == title for row in rows)]
    labels = [label for label in dict.fromkeys(row["label"] for row in rows) if label not in without]
    columns = max(min(len(named), columns), 1)
    lines = [named[start : start + columns] for start in range(0, len(named), columns)] or [[]]
    valued = [{row["label"] for row in rows if row["score"] in line} for line in lines]
    shown = [[label for label in labels if label in there] for there in valued]
    heights = [0.8 + 0.24 * len(one) for one in shown]
    figure, grid_of_axes = panels(columns, len(lines), width=3.1, height=sum(heights) / len(lines), heights=heights)
    for axes in grid_of_axes[len(named) :]:
        axes.set_visible(False)
    for place, (axes, score) in enumerate(zip(grid_of_axes, named, strict=False)):
        mine, line = [row for row in rows if row["score"] == score], place // columns
        _panel(axes, mine, shown[line], titles[score], baseline, place % columns == 0)
    return figure


def _panel(
    axes: "Axes", rows: Sequence[TableRow], labels: Sequence[str], title: str, baseline: str, named: bool
) -> None:
    found = {row["label"]: row for row in rows}
    for place, label in enumerate(labels):
        if label not in found:
            continue
        row = found[label]
        colour = GREEN if label == baseline else VERMILION if label.startswith("r2mae") else BLUE
        ends = [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
        axes.errorbar(
            row["mean"], place, xerr=None if np.isnan(ends).any() else ends, fmt="o", color=colour, markersize=4,
            capsize=2,
        )  # fmt: skip
    if baseline in found:
        axes.axvline(found[baseline]["mean"], color=GREY, linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(labels)), list(labels) if named else [""] * len(labels))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(axis="x", labelsize=7)  # larger ones of a narrow range, such as 0.60025, would touch
    axes.set_title(title, fontsize=9)
