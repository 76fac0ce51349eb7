"""Figures of risk curves: the formula with bias and variance, simulations next to it, and the advice on data."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from r2mae.report.style import BLUE, GREEN, ORANGE, VERMILION, figure_style
from r2mae.theory.advise import Advice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RISK, _BIAS, _VARIANCE, _RANGE = BLUE, GREEN, ORANGE, VERMILION
_SIZE = (6.4, 4.2)
_TOP = 3.0  # upper end of the axis if the risk diverges, so that the rest of the curve stays visible

Curve = Float[np.ndarray, " P"]
Chosen = tuple[float, float, float]


def risk_figure(
    ratios: Curve,
    risk: Curve,
    bias: Curve,
    variance: Curve,
    *,
    title: str,
    peak: float | None = None,
    chosen: Chosen | None = None,
) -> Figure:
    """Draw risk, bias and variance over the mask ratio.

    Parameters
    ----------
    ratios : array (P,)
        Increasing.
    risk, bias, variance : array (P,)
        Over the null risk: 1 is a prediction of zero.
    title : str
        The model.
    peak : float, optional
        Ratio at which the risk diverges; curves are broken there.
    chosen : (low, high, risk), optional
        A range of ratios drawn row by row, and its risk.
    """
    with figure_style():
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        for values, name, colour, dash in (
            (bias, "bias", _BIAS, "--"),
            (variance, "variance", _VARIANCE, "-."),
            (risk, "risk", _RISK, "-"),
        ):
            at, line = _broken(ratios, values, peak)
            axes.plot(at, line, dash, color=colour, lw=2 if name == "risk" else 1.5, label=name, **_dot(ratios))
        _best(axes, ratios, risk)
        _finish(axes, risk, title, peak, chosen)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def simulation_figure(
    ratios: Curve,
    formula: Curve,
    mean: Curve,
    deviation: Curve,
    *,
    title: str,
    peak: float | None = None,
    chosen: Chosen | None = None,
) -> Figure:
    """Draw simulated risks with their standard deviations over the formula's curve.

    Parameters
    ----------
    ratios : array (P,)
        Increasing.
    formula, mean, deviation : array (P,)
        Over the null risk. A deviation of NaN has no error bar.
    title : str
        The model.
    peak : float, optional
        Ratio at which the risk diverges; the curve is broken there.
    chosen : (low, high, risk), optional
        A range of ratios drawn row by row, and its measured risk.
    """
    with figure_style():
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        at, line = _broken(ratios, formula, peak)
        axes.plot(at, line, "-", color=_RISK, lw=2, label="formula", **_dot(ratios))
        axes.errorbar(
            ratios,
            mean,
            np.nan_to_num(deviation),
            fmt="o",
            ms=4,
            color="#333333",
            lw=1,
            capsize=2,
            zorder=3,
            label="simulation, mean ± sd" if np.isfinite(deviation).any() else "simulation",
        )
        _finish(axes, np.concatenate([formula, mean + np.nan_to_num(deviation)]), title, peak, chosen)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def advice_figure(advice: Advice, title: str, *, holds: bool = True) -> Figure:
    """Draw the risk over the mask ratio: of each leading direction, and of features.

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
        figure = Figure(figsize=(6.4, 6.4), layout="constrained")
        figure.suptitle(f"{title}: masked linear regression, n = {advice.n:,}, d = {advice.d:,}", x=0.02, ha="left")
        top, bottom = figure.subplots(2, 1, sharex=True)
        shades = colormaps["viridis"](np.linspace(0, 0.9, len(lead.variance)))
        for values, shade in zip(lead.normalised.T, shades, strict=True):
            top.plot(*_broken(lead.ratios, values, advice.peak), color=shade, lw=1)
        low, high = np.quantile(features.normalised, [0.1, 0.9], axis=1)
        band = (*_broken(lead.ratios, low, advice.peak), _broken(lead.ratios, high, advice.peak)[1])
        bottom.fill_between(*band, color=BLUE, alpha=0.2, lw=0, label="middle 80 % of features")
        for axes, name, curve in ((top, "direction", lead.mean), (bottom, "feature", features.weighted)):
            axes.plot(*_broken(lead.ratios, curve, advice.peak), color=BLUE, lw=2.5, label=f"mean {name}")
            axes.axhline(1, color="#808080", lw=0.8)
            if holds:
                best = lead.ratio_of_lowest(curve)
                axes.axvline(best, color=VERMILION, lw=1.2, ls="--", label=f"best for the mean {name}, {best:.2f}")
                if advice.suggested is not None:
                    label = "range for linear regression" if axes is bottom else None
                    axes.axvspan(
                        advice.suggested.low, advice.suggested.high, color=_RANGE, alpha=0.2, lw=0, label=label
                    )
            axes.set(xlim=(0, 1), ylim=(0, 1.3), xticks=np.arange(0, 1.01, 0.1), ylabel="normalised risk")
            axes.grid()
        top.set_title("leading directions, dark to bright", fontsize=10)
        bottom.set_title("each feature from the others", fontsize=10)
        bottom.set_xlabel("mask ratio")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _dot(ratios: Curve) -> dict[str, Any]:
    """Return a marker if the curve has one point, which a line would not show."""
    return {"marker": "o", "ms": 5} if len(ratios) == 1 else {}


def _broken(
    ratios: Curve, values: Curve, peak: float | None
) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Interrupt a curve at the peak and wherever it is infinite."""
    values = np.where(np.isfinite(values), values, np.nan)
    if peak is None or not ratios.min(initial=1) < peak < ratios.max(initial=0):
        return ratios, values
    index = int(np.searchsorted(ratios, peak))
    return np.insert(ratios, index, peak), np.insert(values, index, np.nan)


def _best(axes: "Axes", ratios: Curve, risk: Curve) -> None:
    if np.isfinite(risk).any():
        index = int(np.nanargmin(risk))
        axes.plot(
            ratios[index], risk[index], "o", ms=7, color=_RISK, mec="white", zorder=4, label=_best_label(ratios[index])
        )


def _best_label(ratio: float) -> str:
    return f"best ratio, {ratio:.4g}"


def _finish(
    axes: "Axes", values: Float[np.ndarray, " Q"], title: str, peak: float | None, chosen: Chosen | None
) -> None:
    """Add the line of the null risk, the peak, the range, and axis limits that ignore a divergence."""
    axes.axhline(1.0, color="#808080", lw=1, ls=":", label="predicting zero", zorder=1)
    if peak is not None and peak < 1:
        axes.axvline(peak, color="#808080", lw=0.8, zorder=1)
        axes.annotate(
            "as many rows as features",
            (peak, 0.02),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-4, 0) if peak > 0.5 else (4, 0),
            textcoords="offset points",
            fontsize=8,
            color="#606060",
            ha="right" if peak > 0.5 else "left",
            va="bottom",
            rotation=90,
        )
    if chosen is not None:
        low, high, at = chosen
        label = f"R²MAE {low:g}–{high:g}"  # noqa: RUF001
        axes.plot([low, high], [at, at], "-", color=_RANGE, lw=3, solid_capstyle="butt", zorder=4, label=label)
    finite = values[np.isfinite(values)]
    highest = float(finite.max(initial=1.0))
    if len(finite) and float(np.median(finite)) > _TOP:  # most of the curve is above: fit the axis to the curve
        axes.set_yscale("log")
        axes.set_ylim(max(0.01, 0.5 * min(1.0, float(finite.min()))), 1.3 * highest)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_ylim(0, min(1.05 * highest, _TOP))
    axes.set_xlim(0, 1)
    axes.set_xticks(np.arange(0, 1.01, 0.1))
    axes.grid()
    axes.set_xlabel("mask ratio")
    axes.set_ylabel("test risk / risk of predicting zero")
    axes.set_title(title)
