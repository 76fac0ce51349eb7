"""Scores that were measured at several mask ratios, as a figure: what the report shows as charts."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from r2mae.report.charts import Chart
from r2mae.report.comparison import Comparison
from r2mae.report.drawing import WIDTH, colours_of, dashes_of
from r2mae.report.style import figure_style


def scores_by_ratio(comparison: Comparison, charts: Sequence[Chart]) -> Figure:
    """Draw a panel for each chart: means over seeds against the ratio of evaluation, with bands of their intervals.

    Parameters
    ----------
    comparison : Comparison
        For colours and order.
    charts : sequence of Chart
        Of :func:`r2mae.report.charts.ratio_charts`.
    """
    colours, dashes = colours_of(comparison), dashes_of(comparison)
    panels = [panel for chart in charts for panel in chart.panels]
    with figure_style():
        figure = Figure(figsize=(WIDTH, 2.8 * len(panels) + 0.6), layout="constrained")
        for axes, panel in zip(figure.subplots(len(panels), squeeze=False, sharex=True)[:, 0], panels, strict=True):
            for line in panel.lines:
                label, colour = line.ink.label, colours[line.ink.label]
                axes.plot(panel.x, line.mean, ls=dashes[label], marker="o", ms=3, color=colour, lw=1.5)
                if np.isfinite(line.low).any():
                    axes.fill_between(panel.x, line.low, line.high, color=colour, alpha=0.1, lw=0)
            axes.set_yscale("log" if panel.log else "linear")
            axes.set_ylim(*panel.y_range)
            axes.set_title(panel.title)
            axes.grid()
        axes.set_xlabel("mask ratio of the evaluation")
        shown = [label for label in comparison.labels if any(line.ink.label == label for line in panels[0].lines)]
        handles = [Line2D([], [], color=colours[label], ls=dashes[label], label=label) for label in shown]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure
