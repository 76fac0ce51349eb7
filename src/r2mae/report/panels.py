"""Lines with bands over a common axis, as plain numbers. Figures and the page's charts are both drawn from them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.ticker import LogLocator, MaxNLocator

from r2mae.evaluation.metrics import metrics_by_ratio
from r2mae.evaluation.statistics import mean_interval
from r2mae.report.analysis import Analysis, scores_by_seed
from r2mae.report.comparison import Comparison
from r2mae.report.wording import CONFIDENCE

FEW = 30  # so few points are marked with dots
_DEPTH = 30


@dataclass(frozen=True)
class Line:
    """One label in a panel: means and the ends of its band at the panel's `x`, NaN where there is nothing."""

    label: str
    mean: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]

    @property
    def has_band(self) -> bool:
        """Whether the band is anywhere wider than the line."""
        return bool((self.high > self.low).any())


@dataclass(frozen=True)
class Panel:
    """A pair of axes with lines.

    Parameters
    ----------
    title, x_label : str
        In words.
    x : ndarray, shape (points,)
        Rising; shared by the lines.
    lines : tuple of Line
        In the order of display.
    x_range, y_range : (float, float)
        Ends of the axes.
    log : bool
        Whether the vertical axis is logarithmic.
    """

    title: str
    x_label: str
    x: Float[np.ndarray, " points"]
    lines: tuple[Line, ...]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Values and their texts."""
        return _ticks(self.x_range, log=False)

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Values and their texts."""
        return _ticks(self.y_range, log=self.log)


def loss_panels(comparison: Comparison) -> list[Panel]:
    """Training loss, and validation loss where there is one: mean over seeds, band from lowest to highest seed.

    Parameters
    ----------
    comparison : Comparison
        Its `curves`. A loss that is not finite is left out.
    """
    panels = []
    for column, words in (("loss", "Training loss"), ("validation_loss", "Validation loss (same masks for all)")):
        if column not in comparison.curves:
            continue
        curves = comparison.curves.loc[np.isfinite(comparison.curves[column].astype(float))]
        by_step = curves.groupby(["step", "label"])[column].agg(["mean", "min", "max"])
        wide = pd.DataFrame(by_step.unstack("label"))
        if wide.empty:
            continue
        labels = [label for label in comparison.labels if ("mean", label) in wide]
        lines = [
            Line(label, *(wide[(key, label)].to_numpy(dtype=float) for key in ("mean", "min", "max")))
            for label in labels
        ]
        panels.append(_panel(words, "optimiser step", wide.index.to_numpy(dtype=float), lines))
    return panels


def ratio_panels(comparison: Comparison, analysis: Analysis) -> list[Panel]:
    """Scores that were measured at several mask ratios: mean over seeds with its interval, a panel a score.

    Parameters
    ----------
    comparison, analysis
        The columns named ``<metric>_<ratio>`` of the table.
    """
    panels = []
    for name, columns in metrics_by_ratio(map(str, comparison.table.columns)).items():
        metric = next((metric for metric in comparison.metrics if metric.name == name), None)
        words = metric.label if metric else name.replace("_", " ")
        bounds = metric.bounds if metric else (-math.inf, math.inf)
        tables = [scores_by_seed(comparison, column) for column in columns.values()]
        lines = []
        for label in comparison.labels:
            ends = np.array([_mean_with_interval(table[label], bounds) for table in tables], dtype=float)
            if np.isfinite(ends).any():
                lines.append(Line(label, *ends.T))
        if lines:
            panels.append(_panel(words[:1].upper() + words[1:], "mask ratio", np.array(list(columns)), lines))
    return panels


def _mean_with_interval(scores: "pd.Series[float]", bounds: tuple[float, float]) -> tuple[float, float, float]:
    values = scores.dropna().to_numpy()
    if not len(values):
        return math.nan, math.nan, math.nan
    interval = mean_interval(values, confidence=CONFIDENCE)
    low, high = np.clip([interval.low, interval.high], *bounds)
    return interval.mean, float(low), float(high)


def _panel(title: str, x_label: str, x: Float[np.ndarray, " points"], lines: Sequence[Line]) -> Panel:
    """Choose the axes: logarithmic for what is positive and falls by more than a factor of four."""
    means = _finite(line.mean for line in lines)
    all_values = np.concatenate([means, _finite(line.low for line in lines), _finite(line.high for line in lines)])
    low, high = float(all_values.min()), float(all_values.max())
    log = bool(low > 0 and means.max() > 4 * means.min())
    if log:
        # A curriculum's weighted loss may fall by many powers of ten: it leaves the axis rather than flatten the rest.
        low = max(low, float(np.median(means)) / _DEPTH)
        edge = (high / low) ** 0.03
        y_range = (low / edge, high * edge)
    else:
        edge = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        y_range = (low - edge, high + edge)
    room = 0.02 * float(np.ptp(x)) or 1.0
    return Panel(title, x_label, x, tuple(lines), (float(x[0]) - room, float(x[-1]) + room), y_range, log)


def _ticks(ends: tuple[float, float], *, log: bool) -> list[tuple[float, str]]:
    low, high = ends
    if log:
        subs = (1.0, 2.0, 3.0, 5.0) if high < 100 * low else (1.0, 3.0)
        ticks = LogLocator(subs=subs).tick_values(low, high)
        if high > 1e4 * low:
            ticks = LogLocator().tick_values(low, high)
    else:
        ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    kept = [float(tick) for tick in ticks if low <= tick <= high]
    return [(tick, f"{tick + 0.0:.6g}" if abs(tick) > 1e-12 else "0") for tick in kept]


def _finite(parts: Iterable[np.ndarray]) -> Float[np.ndarray, " n"]:
    values = np.concatenate(list(parts))
    return np.asarray(values[np.isfinite(values)])
