"""Drawing functions that reproduced figures share: panels, curves of simulations and formulas, the null risk."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes as Axes  # noqa: PLC0414 (modules of figures import both from here)
from matplotlib.figure import Figure as Figure  # noqa: PLC0414
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from r2mae.compare.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from r2mae_paper.rows import TableRow, select, unique

BLACK, GREY = "#000000", "#808080"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
RATIO = "mask ratio p"
_NARROW, _WIDE = 2.0, 6.0  # quotients of the ends of an axis: below and above, the ticks are others

Curve = Float[np.ndarray, " p"]
Figures: TypeAlias = Mapping[str, Figure]
"""Figures by file name without suffix."""


def panels(
    columns: int, rows: int = 1, *, width: float = 3.4, height: float = 3.2, heights: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a new figure (made without pyplot) and its axes, row by row."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
    return figure, list(grid.flat)


def simulated(axes: Axes, x: Curve, mean: Curve, deviation: Curve | None, colour: str, label: str | None) -> None:
    """Draw means, with the standard deviations over repetitions as the paper's error bars."""
    axes.errorbar(
        x, mean, deviation, fmt="o", color=colour, markersize=3.5, elinewidth=1, capsize=2, label=label, zorder=3
    )


def predicted(axes: Axes, x: Curve, values: Curve, colour: str, label: str | None, style: str = "-") -> None:
    """Draw a formula's curve; it breaks where the formula is infinite."""
    axes.plot(x, np.where(np.isfinite(values), values, np.nan), style, color=colour, linewidth=1.4, label=label)


def coloured(rows: Sequence[TableRow], key: str) -> Iterator[tuple[str, Any, list[TableRow]]]:
    """Yield a colour for each value of an entry, the value, and the rows that have it."""
    for number, value in enumerate(unique(rows, key)):
        yield COLOURS[number % len(COLOURS)], value, select(rows, **{key: value})


def legend_below(figure: Figure, axes: Axes, columns: int, **look: Any) -> None:
    """Name what is drawn in a panel below all panels."""
    look = {"loc": "outside lower center", "ncols": columns, "fontsize": 9, **look}
    figure.legend(*axes.get_legend_handles_labels(), **look)


def null_line(axes: Axes, value: float = 1.0, label: str | None = "null risk (b̂ = 0)", colour: str = GREY) -> None:
    """Draw the risk of predicting zero."""
    axes.axhline(value, color=colour, linewidth=1, linestyle=(0, (4, 3)), label=label, zorder=1)


def ratio_axis(axes: Axes, ylabel: str = "", title: str = "") -> None:
    """Label the axis of mask ratios from 0 to 1; the other one and the panel where words are given."""
    axes.set(xlim=(0, 1), xlabel=RATIO, **{key: text for key, text in (("ylabel", ylabel), ("title", title)) if text})


def plain_log(axes: Axes, which: str = "y", subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Make an axis logarithmic, with labels in ordinary decimal notation."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def quotient_axis(axes: Axes) -> None:
    """Make the x axis of quotients logarithmic, with ticks that fit what is drawn: call it after drawing."""
    axes.set_xscale("log")  # first, as limits of a linear axis may be below zero
    low, high = axes.get_xlim()
    plain_log(axes, "x", (1.0, 2.0, 5.0) if high / low > _WIDE else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
    if high / low < _NARROW:  # some per cent about 1 have no other round number of a logarithmic axis
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))


def interval(axes: Axes, middle: float, low: float, high: float, place: float, **look: Any) -> None:
    """Draw a value with its interval, unless that is NaN, at a place of the y axis."""
    ends = None if np.isnan([low, high]).any() else [[middle - low], [high - middle]]
    axes.errorbar(middle, place, xerr=ends, **{"fmt": "o", "markersize": 4, "capsize": 2, **look})


def name_rows(axes: Axes, names: Sequence[str], reference: float | None = None) -> None:
    """Name the places of the y axis, from the top, and draw what values are compared with as a dashed line."""
    if reference is not None:
        axes.axvline(reference, color=GREY, linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
