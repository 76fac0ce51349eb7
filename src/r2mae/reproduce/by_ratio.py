"""What sweeps over models and fixed ratios share: scores in both kinds of batch statistics, means, curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from r2mae.reproduce.artefact import Row

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

AS_TRAINED = "as_trained_"
"""Beginning of the names of scores that were taken with the batch statistics of training."""

BARS = "bars: ± 1 standard deviation\nover seeds"
"""What the bars of :func:`curve` are, for axes and legends."""


def measured(results: "pd.DataFrame", scores: Sequence[str]) -> list[str]:
    """Return the scores that there are, each as measured, and with the statistics of training."""
    wanted = [prefix + name for name in scores for prefix in ("", AS_TRAINED)]
    return [name for name in wanted if name in results and bool(results[name].notna().any())]


def means(results: "pd.DataFrame", keys: Mapping[str, Callable[..., int | float]], scores: Sequence[str]) -> list[Row]:
    """Return for each combination of some columns the means of scores over seeds, and their deviations (`…_sd`).

    Parameters
    ----------
    results : DataFrame
        A line a run.
    keys : mapping of str to type
        The columns, with the type of their values.
    scores : sequence of str
    """
    rows: list[Row] = []
    for _, group in results.groupby(list(keys)):
        first = group.iloc[0]
        row: Row = {**{name: kind(first[name]) for name, kind in keys.items()}, "seeds": len(group)}
        for name in scores:
            row[name] = float(group[name].mean())
            row[f"{name}_sd"] = float(group[name].std(ddof=1)) if len(group) > 1 else float("nan")
        rows.append(row)
    return rows


def curve(axes: "Axes", rows: Sequence[Row], score: str, colour: str, label: str | None, style: str = "-") -> None:
    """Draw means of a score with deviations against the ratio; nothing where no row has it."""
    own = [row for row in rows if score in row]
    if not own:
        return
    axes.errorbar(
        [row["ratio"] for row in own],
        [row[score] for row in own],
        np.nan_to_num([row[f"{score}_sd"] for row in own]),
        fmt=f"o{style}",
        color=colour,
        markersize=3.5,
        linewidth=1.2,
        capsize=2,
        label=label,
    )
