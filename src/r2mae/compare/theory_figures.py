"""The figure of what the theory says of mask ratios for data."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.figure import Figure

from r2mae.compare.style import BLUE, VERMILION, figure_style
from r2mae.theory.advise import Advice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#808080"


def advice_figure(advice: Advice, title: str, *, holds: bool = True) -> Figure:
    """Draw the risk over the mask ratio: of each leading direction, and of features.

    Parameters
    ----------
    advice : Advice
    title : str
        Name of the data.
    holds : bool
        Whether such advice was right on similar data; if not, no best ratio is marked.
    """
    lead, features = advice.directions, advice.features
    with figure_style():
        figure = Figure(figsize=(6.4, 6.4), layout="constrained")
        figure.suptitle(f"{title}: masked linear regression, n = {advice.n:,}, d = {advice.d:,}", x=0.02, ha="left")
        top, bottom = figure.subplots(2, 1, sharex=True)
        shades = colormaps["viridis"](np.linspace(0, 0.9, len(lead.variance)))
        for values, shade in zip(lead.normalised.T, shades, strict=True):
            _plot(top, lead.ratios, values, advice.peak, color=shade, lw=1)
        band = np.quantile(features.normalised, [0.1, 0.9], axis=1)
        bottom.fill_between(lead.ratios, *band, color=BLUE, alpha=0.2, lw=0, label="middle 80 % of features")
        for axes, name, curve in ((top, "direction", lead.mean), (bottom, "feature", features.weighted)):
            _plot(axes, lead.ratios, curve, advice.peak, color=BLUE, lw=2.5, label=f"mean {name}")
            if holds:
                best = lead.ratio_of_lowest(curve)
                axes.axvline(best, color=VERMILION, lw=1.2, ls="--", label=f"best for the mean {name}, {best:.2f}")
            _finish(axes, advice.peak)
        top.set_title("leading directions, dark to bright", fontsize=10)
        bottom.set_title("each feature from the others", fontsize=10)
        bottom.set_xlabel("mask ratio")
        _add_legend(figure, ncols=2, fontsize=8)
    return figure


def _plot(
    axes: "Axes", ratios: Float[np.ndarray, " P"], values: Float[np.ndarray, " P"], peak: float | None, **style: Any
) -> None:
    """Draw a curve that is interrupted at the peak and wherever it is infinite."""
    marker = "o" if len(ratios) == 1 else ""  # a line of one point would not show
    values = np.where(np.isfinite(values), values, np.nan)
    if peak is not None:
        place = np.searchsorted(ratios, peak)
        ratios, values = np.insert(ratios, place, peak), np.insert(values, place, np.nan)
    axes.plot(ratios, values, marker=marker, **style)


def _finish(axes: "Axes", peak: float | None) -> None:
    """Add the risk of predicting zero and the peak, and set up both axes."""
    axes.axhline(1, color=_GREY, lw=1, ls=":", zorder=1, label="predicting zero")
    if peak is not None:
        axes.axvline(peak, color=_GREY, lw=0.8, zorder=1, label="as many rows as features")
    axes.set(xlim=(0, 1), ylim=(0, 1.3), xticks=np.arange(0, 1.01, 0.1), ylabel="risk / risk of predicting zero")
    axes.grid()


def _add_legend(figure: Figure, **style: Any) -> None:
    """Add a legend that names each line once."""
    named = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {label: handle for pair in named for handle, label in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", **style)
