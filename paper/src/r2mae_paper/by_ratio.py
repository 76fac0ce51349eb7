"""What sweeps over models and fixed ratios share: both kinds of batch statistics, means, best ratios, and curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.evaluation.statistics import best_fixed, paired_difference
from r2mae_paper.rows import TableRow, column, difference_columns, records

BARS = "bars: ± 1 standard deviation\nover seeds"
"""What the bars of :func:`curve` are, for axes and legends."""


def measured(results: pd.DataFrame, scores: Sequence[str]) -> list[str]:
    """Return the scores that there are, each as measured, and with the statistics of training."""
    wanted = [prefix + name for name in scores for prefix in ("", AS_TRAINED)]
    return [name for name in wanted if name in results and bool(results[name].notna().any())]


def means(results: pd.DataFrame, keys: Sequence[str], scores: Sequence[str]) -> list[TableRow]:
    """Return for each combination of some columns the number of seeds, means of scores, and deviations (`…_sd`).

    Parameters
    ----------
    results : DataFrame
        A line a run.
    keys : sequence of str
        The columns.
    scores : sequence of str
    """
    grouped = results.groupby(list(keys))
    columns: dict[str, Any] = {"seeds": grouped.size()}
    for name in scores:
        columns |= {name: grouped[name].mean(), f"{name}_sd": grouped[name].std()}
    return records(pd.DataFrame(columns).reset_index())


def by_seed(runs: pd.DataFrame, score: str) -> tuple[Float[np.ndarray, "seeds ratios"], list[float], "pd.Index[int]"]:
    """Return a score of each seed and ratio, the ratios, and the seeds; one that lacks a ratio is left out."""
    table = runs.pivot_table(index="seed", columns="ratio", values=score).dropna()
    return table.to_numpy(float), [float(ratio) for ratio in table.columns], table.index


def best_ratios(
    values: Float[np.ndarray, "seeds ratios"], ratios: Sequence[float], *, higher: bool
) -> Float[np.ndarray, " seeds"]:
    """Return the ratio with the best score under each seed."""
    chosen: Float[np.ndarray, " seeds"] = np.asarray(ratios, dtype=float)[
        values.argmax(1) if higher else values.argmin(1)
    ]
    return chosen


def shape(runs: pd.DataFrame, score: str, *, higher: bool) -> TableRow:
    """Return the best ratio of one model for a score, and what the best other ratio gains over either end.

    Parameters
    ----------
    runs : DataFrame
        A line a run, with the columns `seed` and `ratio`, of two ratios or more.
    score : str
        A column.
    higher : bool
        Whether higher is better.

    Returns
    -------
    dict
        `seeds` that have the score at every ratio; without one, nothing else. `best_ratio`, by the mean over seeds.
        `vs_lowest` and `vs_highest`: what the best other ratio gains over the lowest and the highest one, with a 95 %
        interval (`_low`, `_high`) and a verdict (`_is`), each by itself; the best ratio of a seed is chosen by the mean
        over the other seeds, as the best of many is otherwise partly luck. `interior`: whether the best inner ratio,
        chosen likewise, is better than both ends.
    """
    values, ratios, _ = by_seed(runs, score)
    row: TableRow = {"seeds": len(values)}
    if not len(values):
        return row
    row["best_ratio"] = float(best_ratios(values.mean(0, keepdims=True), ratios, higher=higher)[0])
    for name, end, others in (("lowest", 0, values[:, 1:]), ("highest", -1, values[:, :-1])):
        found = paired_difference(_best(others, values[:, end], higher=higher), values[:, end], higher_is_better=higher)
        row |= difference_columns(f"vs_{name}", found)
    row["interior"] = len(ratios) > 2 and all(
        paired_difference(_best(values[:, 1:-1], one, higher=higher), one, higher_is_better=higher).verdict == "better"
        for one in (values[:, 0], values[:, -1])
    )
    return row


def _best(
    values: Float[np.ndarray, "seeds ratios"], other: Float[np.ndarray, " seeds"], *, higher: bool
) -> Float[np.ndarray, " seeds"]:
    """Return the scores of the best ratio to pair with another, chosen on the other seeds; a single seed on itself."""
    if len(values) > 1:
        return best_fixed(values, higher_is_better=higher).partner(other)
    return np.asarray(values.max(1) if higher else values.min(1))


def curve(axes: Axes, rows: Sequence[TableRow], score: str, colour: str, label: str | None, style: str = "-") -> None:
    """Draw means of a score with deviations against the ratio; nothing where no row has it."""
    own = [row for row in rows if score in row]
    if not own:
        return
    bars = np.nan_to_num(column(own, f"{score}_sd"))
    axes.errorbar(
        column(own, "ratio"), column(own, score), bars, fmt=f"o{style}", color=colour, markersize=3.5, linewidth=1.2,
        capsize=2, label=label,
    )  # fmt: skip
