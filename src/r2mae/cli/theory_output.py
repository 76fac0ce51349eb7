"""Tables and figures of risk curves: on the terminal, and as files in a folder.

Figures are of the formula with bias and variance, of simulations next to it, and of the advice on data.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from rich.markup import escape
from rich.table import Table

from r2mae.compare.style import BLUE, GREEN, ORANGE, VERMILION, figure_style, save_figure
from r2mae.files import atomic_write, write_json, write_rows
from r2mae.terminal import Terminal
from r2mae.theory.advise import Advice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from r2mae.theory import Risk, Simulation
    from r2mae.theory.problem import Problem

Rows = Sequence[Mapping[str, Any]]
_LONGEST = 28  # letters of a name in a title
_WIDEST = 100
_RISK, _BIAS, _VARIANCE, _RANGE = BLUE, GREEN, ORANGE, VERMILION
_SIZE = (6.4, 4.2)
_TOP = 3.0  # upper end of the axis if the risk diverges, so that the rest of the curve stays visible

Curve = Float[np.ndarray, " P"]
Chosen = tuple[float, float, float]


def risk_figure(
    ratios: Curve,
    risk: Curve,
    bias: Curve | None = None,
    variance: Curve | None = None,
    *,
    simulated: tuple[Curve, Curve] | None = None,
    title: str,
    peak: float | None = None,
    chosen: Chosen | None = None,
) -> Figure:
    """Draw risk, bias and variance over the mask ratio; or the formula's risk below simulated risks.

    Parameters
    ----------
    ratios : array (P,)
        Increasing.
    risk, bias, variance : array (P,)
        Over the null risk: 1 is a prediction of zero.
    simulated : (array (P,), array (P,)), optional
        Mean and standard deviation of simulated risks, instead of bias and variance. A deviation of NaN has no error
        bar.
    title : str
        The model.
    peak : float, optional
        Ratio at which the risk diverges; curves are broken there.
    chosen : (low, high, risk), optional
        A range of ratios drawn row by row, and its risk.
    """
    dot: dict[str, Any] = {"marker": "o", "ms": 5} if len(ratios) == 1 else {}  # a line of one point would not show
    with figure_style():
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        if bias is not None and variance is not None:
            for values, name, colour, dash in ((bias, "bias", _BIAS, "--"), (variance, "variance", _VARIANCE, "-.")):
                axes.plot(*_broken(ratios, values, peak), dash, color=colour, lw=1.5, label=name, **dot)
        label = "risk" if simulated is None else "formula"
        axes.plot(*_broken(ratios, risk, peak), "-", color=_RISK, lw=2, label=label, **dot)
        shown = risk
        if simulated is not None:
            mean, deviation = simulated
            error = np.nan_to_num(deviation)
            label = "simulation, mean ± sd" if np.isfinite(deviation).any() else "simulation"
            how: dict[str, Any] = {"fmt": "o", "ms": 4, "color": "#333333", "lw": 1, "capsize": 2, "zorder": 3}
            axes.errorbar(ratios, mean, error, label=label, **how)
            shown = np.concatenate([risk, mean + error])
        elif np.isfinite(risk).any():
            best = int(np.nanargmin(risk))
            label = f"best ratio, {ratios[best]:.4g}"
            axes.plot(ratios[best], risk[best], "o", ms=7, color=_RISK, mec="white", zorder=4, label=label)
        _finish(axes, shown, title, peak, chosen)
        figure.legend(loc="outside lower center", ncols=3 if simulated is None else 2)
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


def _broken(
    ratios: Curve, values: Curve, peak: float | None
) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Interrupt a curve at the peak and wherever it is infinite."""
    values = np.where(np.isfinite(values), values, np.nan)
    if peak is None or not ratios.min(initial=1) < peak < ratios.max(initial=0):
        return ratios, values
    index = int(np.searchsorted(ratios, peak))
    return np.insert(ratios, index, peak), np.insert(values, index, np.nan)


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


def print_risks(rows: Rows, columns: Sequence[str], title: str) -> None:
    """Print the rows as a table, with the lowest risk in bold."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("ratio")
    for name in columns:
        shown.add_column(name.replace("_", " "), justify="right")
    best = min(rows, key=lambda row: row[columns[1]])
    for row in rows:
        cells = [_number(row[name]) for name in columns]
        shown.add_row(escape(row["ratio"]), *cells, style="bold" if row is best else "")
    console = Terminal()
    if not console.is_terminal:
        console = Terminal(width=max(console.width, 120))
    console.print(title, highlight=False, soft_wrap=True, markup=False)
    console.print(shown, highlight=False)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def write_curves(
    problem: "Problem", formula: "Risk", rows: Rows, out: Path, *, measured: "Simulation | None" = None
) -> None:
    """Write ``risk.csv`` and the figure ``risk`` to a folder; with a simulation, ``simulation`` instead."""
    name, count = "risk" if measured is None else "simulation", len(problem.fixed)
    write_rows(out / f"{name}.csv", rows, list(rows[0]))
    null = float(formula.null[0] if measured is None else measured.null)
    curves: dict[str, Any] = {"title": problem.title, "peak": problem.peak}
    if measured is None:
        curves |= {"bias": formula.bias[:count, 0] / null, "variance": formula.variance[:count, 0] / null}
        at = formula.normalised[-1, 0]
    else:
        curves["simulated"] = (measured.normalised[:count], measured.deviation[:count] / null)
        at = measured.normalised[-1]
    if problem.range is not None:
        curves["chosen"] = (float(problem.range.low), float(problem.range.high), float(at))
    save_figure(risk_figure(problem.fixed, formula.risk[:count, 0] / null, **curves), out, name)


def print_advice(text: Mapping[str, Any]) -> None:
    """Print advice in words."""
    width = min(Terminal().width, _WIDEST)
    print(text["answer"])
    print(textwrap.fill(text["caveat"], width, break_on_hyphens=False), end="\n\n")
    for note in text["notes"]:
        print(f"note: {note}")
    for words in (text["paragraph"], *(f"Caution: {caution}" for caution in text["cautions"])):
        print(textwrap.fill(words, width, break_on_hyphens=False))


def write_advice(out: Path, data: str, features: Sequence[str], advice: Advice, text: Mapping[str, Any]) -> None:
    """Write ``advice.json``, ``curves.csv``, ``targets.csv`` and the figure ``advice`` to a folder."""
    import pandas as pd

    lead, own = advice.directions, advice.features
    names = [f"direction_{index + 1}" for index in range(len(lead.variance))]
    curves = pd.DataFrame(lead.normalised, columns=names)
    means = {"directions_mean": lead.mean, "features_weighted": own.weighted, "worst_excess": lead.worst_excess}
    targets = {
        "target": [*names, *features],
        "variance": [*lead.variance, *own.variance],
        "best_ratio": [*lead.best_ratio, *own.best_ratio],
        "lowest_risk": [*lead.lowest, *own.lowest],
        "learnable": [*lead.learnable.astype(int), *own.learnable.astype(int)],
    }
    tables = {"curves": pd.DataFrame({"ratio": lead.ratios, **means}).join(curves), "targets": pd.DataFrame(targets)}
    for name, table in tables.items():
        with atomic_write(out / f"{name}.csv") as file:
            table.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
    write_json(out / "advice.json", text)
    short = data if len(data) <= _LONGEST else f"{data[: _LONGEST - 1]}…"
    save_figure(advice_figure(advice, short, holds=text["held"]["linear_regression"]), out, "advice")
