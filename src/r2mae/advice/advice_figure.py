"""The figure of the advice: risk against ratio for directions and features, and the cost of a mistuned ratio."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from r2mae.advice.held import span
from r2mae.report.style import BLUE, GREEN, ORANGE, VERMILION, figure_style
from r2mae.theory.advise import Advice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RANGE, _BEST, _FEATURE = ORANGE, VERMILION, BLUE
_RANKS = LinearSegmentedColormap.from_list("ranks", ["#332288", GREEN, "#b8b840"])
_TOP = 1.3  # upper end of the risk axes; above 1, the risk of predicting zero, its exact value does not matter
_SIZE = (6.4, 8.6)


def draw(advice: Advice, title: str, *, holds: bool = True) -> Figure:
    """Draw three panels over the mask ratio: directions, features, regret.

    Parameters
    ----------
    advice : Advice
    title : str
        Name of the data.
    holds : bool
        Whether such advice was right on similar data; if not, no range and no best ratio are marked.
    """
    lead, features = advice.directions, advice.features
    with figure_style():
        figure = Figure(figsize=_SIZE, layout="constrained")
        top, middle, bottom = figure.subplots(3, 1, sharex=True)
        heading = f"{title}: masked linear regression, n = {advice.n:,}, d = {advice.d:,}"
        figure.suptitle(heading, fontsize=11, x=0.02, ha="left")
        count = len(lead.variance)
        rank = Normalize(1, max(count, 2))
        for index in range(count):
            colour = _RANKS(rank(index + 1))
            top.plot(*_line(advice, lead.normalised[:, index]), color=colour, lw=1.2)
            if lead.learnable[index] and holds:
                top.plot(
                    lead.best_ratio[index], lead.lowest[index], "o", ms=4, color=colour, mec="white", mew=0.6, zorder=3
                )
        if count > 1:
            beside = top.inset_axes((1.015, 0.0, 0.02, 1.0))  # curves may be anywhere inside of the axes
            figure.colorbar(ScalarMappable(rank, _RANKS), cax=beside, ticks=[1, count])
            beside.set_yticks([1, count], ["rank 1", f"{count}"], fontsize=8)
        _risk_axis(top, advice, lead.ratio_of_lowest(lead.mean) if holds else None, lead.normalised)
        dots = " (dots: each one's best ratio)" if holds else ""
        top.set_title(f"risk along the leading directions{dots}", fontsize=10)
        levels = features.quantiles(np.array([0.1, 0.25, 0.5, 0.75, 0.9]))
        middle.fill_between(*_band(advice, levels[0], levels[4]), color=_FEATURE, alpha=0.15, lw=0, label="middle 80 %")
        middle.fill_between(*_band(advice, levels[1], levels[3]), color=_FEATURE, alpha=0.25, lw=0, label="middle half")
        middle.plot(*_line(advice, levels[2]), color=_FEATURE, lw=1, ls=":", label="median feature")
        middle.plot(*_line(advice, features.weighted), color=_FEATURE, lw=1.8, label="mean feature")
        _risk_axis(middle, advice, features.ratio_of_lowest(features.weighted) if holds else None, levels[4])
        middle.set_title("risk of predicting each feature from the others", fontsize=10)
        _regret(bottom, advice, holds)
        bottom.set_xlim(0, 1)
        bottom.set_xticks(np.arange(0, 1.01, 0.1))
        bottom.set_xlabel("mask ratio")
        entries = [pair for axes in (middle, bottom) for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        handles, labels = zip(*entries, strict=True)
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _regret(axes: "Axes", advice: Advice, holds: bool) -> None:
    lead = advice.directions
    axes.plot(*_line(advice, lead.worst_excess), color="#333333", lw=1.8, label="worst direction")
    axes.plot(*_line(advice, lead.mean_excess), color="#333333", lw=1.2, ls="--", label="mean direction")
    if advice.features.learnable.any():
        axes.plot(
            *_line(advice, advice.features.mean_excess), color=_FEATURE, lw=1.2, ls="--", label="mean learnable feature"
        )
    axes.axhline(advice.tolerance, color="#999999", lw=0.8, ls=":", label=f"tolerance {advice.tolerance:g}")
    if advice.suggested is not None and holds:
        low, high = advice.suggested.low, advice.suggested.high
        label = f"range for linear regression: {span(low, high)}"
        axes.axvspan(low, high, color=_RANGE, alpha=0.25, lw=0, label=label)
    axes.set_ylim(0, 1)
    axes.grid()
    axes.set_ylabel("excess normalised risk")
    axes.set_title("what a mistuned ratio costs, above each learnable target's own best", fontsize=10)


def _risk_axis(axes: "Axes", advice: Advice, best: float | None, values: np.ndarray) -> None:
    """Mark the risk of predicting zero and, if `best` is given, the best fixed ratio and the suggested range."""
    if best is not None:
        if advice.suggested is not None:
            axes.axvspan(advice.suggested.low, advice.suggested.high, color=_RANGE, alpha=0.25, lw=0, zorder=0)
        axes.axvline(best, color=_BEST, lw=1.2, ls="--", zorder=1, label="best fixed ratio for the mean")
        box = {"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 1}
        at: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "top", "zorder": 5}
        axes.text(max(best, 0.025), 0.98, f"{best:.2f}", fontsize=8, color=_BEST, bbox=box, **at)
    axes.axhline(1, color="#777777", lw=0.8, ls="-", zorder=1)
    axes.set_ylim(0, _TOP if np.nanmax(values) > 1 else 1.1)
    axes.grid()
    axes.set_ylabel("normalised risk")


def _line(advice: Advice, values: Float[np.ndarray, " P"]) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Break a curve at the peak, even if no ratio of the grid is near it."""
    if advice.peak is None:
        return advice.ratios, values
    index = int(np.searchsorted(advice.ratios, advice.peak))
    return np.insert(advice.ratios, index, advice.peak), np.insert(values, index, np.nan)


def _band(
    advice: Advice, low: Float[np.ndarray, " P"], high: Float[np.ndarray, " P"]
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    return (*_line(advice, low), _line(advice, high)[1])
