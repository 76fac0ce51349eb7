"""The figures of a comparison, as matplotlib ``Figure`` objects, with their captions, and saving them.

pyplot's global state is never touched.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from r2mae.compare.analysis import Analysis, fixed_labels, scores_by_seed
from r2mae.compare.answers import gap
from r2mae.compare.comparison import Comparison
from r2mae.compare.pictures import draw_pictures
from r2mae.compare.style import figure_style, save_figure, svg
from r2mae.compare.wording import CONFIDENCE, sentence_case
from r2mae.evaluation.metrics import metrics_by_ratio
from r2mae.evaluation.statistics import mean_interval
from r2mae.masking.schemes import scheme_kind, scheme_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FREE = ("#999933", "#117733", "#44aa99", "#aa4499", "#ddcc77")  # Tol's, for schemes that name no colour
_BASELINES = ("#8c510a", "#bf9058", "#5a3a1a", "#d9c3a0")  # browns
_DASHES = ("-", "--", ":", "-.")
WIDTH = 6.4
_FEW = 30  # so few points are marked with dots
_DEPTH = 30


@dataclass(frozen=True)
class NamedFigure:
    """A figure of a comparison.

    Parameters
    ----------
    name : str
        Name of its files, without suffix.
    title, caption : str
        What the figure shows, and how to read it.
    draw : callable
        Draws it.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, for its file and for the page."""
        return svg(self.figure)

    @cached_property
    def figure(self) -> Figure:
        """The figure, drawn once."""
        return self.draw()


def comparison_figures(comparison: Comparison, analysis: Analysis) -> list[NamedFigure]:
    """Return every figure that the comparison has data for: reconstructions, paired differences, then curves."""
    figures, examples = [], comparison.reconstructions
    if examples and len((one := next(iter(examples.values()))).original):
        caption = f"By the first seed's models, of test images with {one.ratio:.0%} of pixels hidden."
        caption += " Below: their places in the data, from 0." * bool(one.index)
        draw = partial(draw_pictures, examples, title=_title(comparison))
        figures.append(NamedFigure("reconstructions", "Reconstructions", caption, draw))
    if any(metric.name in analysis.references for metric in analysis.questions):
        caption = (
            f"Each row minus {analysis.against[0]}, seed by seed, with {CONFIDENCE:.0%} intervals. Filled: decided, "
            "for schemes also once all are counted. Arrow: beyond the axis."
        )
        draw = partial(paired_differences, comparison, analysis)
        figures.append(NamedFigure("differences", "Paired differences", caption, draw))
    return [*figures, *_line_figures(comparison, analysis)]


def _line_figures(comparison: Comparison, analysis: Analysis) -> Iterator[NamedFigure]:
    several = analysis.summary["n"].max() > 1
    if panels := ratio_panels(comparison, analysis):
        band = f", bands their {CONFIDENCE:.0%} intervals" if several else ""
        caption = f"Means over seeds{band}. At each ratio all models receive the same frozen masks."
        draw = partial(lines_with_bands, comparison, panels)
        yield NamedFigure("scores_by_ratio", "Scores by hidden share", caption, draw)
    if panels := loss_panels(comparison):
        band = ", bands from the lowest to the highest seed" if several else ""
        caption = f"Means over seeds{band}. Training losses at different ratios are of different tasks."
        draw = partial(lines_with_bands, comparison, panels)
        yield NamedFigure("loss_curves", "Loss curves", caption, draw)


def save_figures(figures: Sequence[NamedFigure], folder: str | Path) -> list[Path]:
    """Write figures as PNG and SVG, each file atomically, and return the paths. Equal figures give equal files."""
    paths: list[Path] = []
    for named in figures:
        paths += save_figure(named.figure, folder, named.name, drawn=named.svg)
    return paths


def inline_svg(text: str, prefix: str) -> str:
    """Return the SVG of a figure as an ``<svg class="plot">`` element for a page, with the page's background.

    Every id gets the prefix, since ids of several figures on a page must differ.
    """
    text = text.replace("fill: #ffffff", "fill: none")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # HTML does not need the two namespaces; without them the page contains no address of another site.
    text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = text.replace("<svg ", '<svg class="plot" ', 1).replace("*{stroke", ".plot *{stroke", 1)
    text = re.sub(r'(<[^<>]*?\sid=")', rf"\1{prefix}-", text)
    return re.sub(r'(url\(#|href="#)', rf"\1{prefix}-", text)


def scheme_colours() -> dict[str, str]:
    """Return the colour of every registered scheme: its own, or one that is free."""
    free = cycle(_FREE)
    return {name: scheme_kind(name).colour or next(free) for name in scheme_names()}


def colours_of(comparison: Comparison) -> dict[str, tuple[float, float, float]]:
    """Return a colour per label: fixed for a scheme, greys from light to dark for rising fixed ratios, browns."""
    schemes = dict(zip(comparison.table["label"], comparison.table["scheme"], strict=True))
    own = scheme_colours()
    colours = {label: to_rgb(own.get(scheme, _FREE[0])) for label, scheme in schemes.items()}
    colours.update(zip(comparison.baselines, map(to_rgb, cycle(_BASELINES)), strict=False))
    fixed = _ratios_of(comparison)
    shades = np.linspace(0.72, 0.12, len(fixed)) if len(fixed) != 1 else np.array([0.43])
    colours.update({label: (float(s), float(s), float(s)) for label, s in zip(fixed, shades, strict=True)})
    return colours


def paired_differences(comparison: Comparison, analysis: Analysis) -> Figure:
    """Draw the paired differences of all rows from the headline's reference, a panel for each question.

    The axis is that of the pretrained variants; of baselines beyond it the number is written.

    Parameters
    ----------
    comparison, analysis
        What to draw.
    """
    colours = colours_of(comparison)
    asked = [metric for metric in analysis.questions if metric.name in analysis.references]
    found = [
        {label: row for label in comparison.labels if (row := analysis.difference(label, metric.name))}
        for metric in asked
    ]
    with figure_style():
        figure = Figure(figsize=(WIDTH, sum(0.95 + 0.3 * len(rows) for rows in found)), layout="constrained")
        heights = [0.95 + 0.3 * len(rows) for rows in found]
        panels = figure.subplots(len(asked), squeeze=False, height_ratios=heights)[:, 0]
        for axes, metric, rows in zip(panels, asked, found, strict=True):
            lowest, highest = _extent([row for label, row in rows.items() if label not in comparison.baselines])
            for y, (label, row) in enumerate(rows.items()):
                decided = row["verdict"] == "same" or analysis.decided(label, metric.name) != "undecided"
                if lowest <= row["mean"] <= highest:
                    _interval(axes, row, y, colours[label], filled=decided)
                else:
                    over = row["mean"] > highest
                    edge, marker = (highest, ">") if over else (lowest, "<")
                    axes.plot([edge], [y], marker, ms=7, color=colours[label], clip_on=False)
                _text(
                    axes,
                    1.02,
                    y,
                    gap(analysis, row, metric, ends=False),
                    transform=axes.get_yaxis_transform(),
                    va="center",
                )
            axes.axvline(0, color="#333333", lw=1, zorder=1)
            axes.set_xlim(lowest, highest)
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_yticks(range(len(rows)), list(rows))
            axes.tick_params(axis="y", length=0, pad=9)  # room for an arrow
            axes.grid(axis="x")
            axes.spines["left"].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            better = "right" if metric.higher_is_better else "left"
            axes.set_title(sentence_case(metric.question or metric.label))
            axes.set_xlabel(f"{metric.label}, minus {analysis.against[0]} (better: {better})")
    return figure


def _extent(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the ends of an axis that shows 0 and all these intervals, with a margin."""
    ends = [0.0, *(row[key] for row in rows for key in ("mean", "low", "high") if math.isfinite(row[key]))]
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    return min(ends) - margin, max(ends) + margin


def _interval(
    axes: "Axes", row: Mapping[str, Any], y: float, colour: tuple[float, float, float], *, filled: bool
) -> None:
    """Draw a mean with its interval; the interval is left out where there is none."""
    if row["high"] > row["low"]:
        axes.plot([row["low"], row["high"]], [y, y], "-", color=colour, lw=2)
    axes.plot([row["mean"]], [y], "D", ms=6, color=colour, mfc=colour if filled else "white", mew=1.5, zorder=3)


@dataclass(frozen=True)
class Panel:
    """Lines with bands over a common axis.

    Parameters
    ----------
    title, x_label : str
        In words.
    x : ndarray, shape (points,)
        Rising; shared by the lines.
    lines : dict of str to ndarray, shape (points, 3)
        By label: the mean and the two ends of its band, NaN where there is nothing.
    """

    title: str
    x_label: str
    x: Float[np.ndarray, " points"]
    lines: dict[str, Float[np.ndarray, "points 3"]]


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
        table = pd.DataFrame(curves.groupby(["step", "label"])[column].agg(["mean", "min", "max"]).unstack("label"))
        if table.empty:
            continue
        lines = {
            label: table[[(key, label) for key in ("mean", "min", "max")]].to_numpy(dtype=float)
            for label in comparison.labels
            if ("mean", label) in table
        }
        panels.append(Panel(words, "optimiser step", table.index.to_numpy(dtype=float), lines))
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
        lines = {
            label: np.array([_mean_with_interval(table[label], bounds) for table in tables])
            for label in comparison.labels
        }
        lines = {label: values for label, values in lines.items() if np.isfinite(values).any()}
        if lines:
            panels.append(Panel(words[:1].upper() + words[1:], "mask ratio", np.array(list(columns)), lines))
    return panels


def lines_with_bands(comparison: Comparison, panels: Sequence[Panel]) -> Figure:
    """Draw panels one below the other, under one legend.

    Parameters
    ----------
    comparison : Comparison
        For colours and order.
    panels : sequence of Panel
        At least one.
    """
    shown = {label for panel in panels for label in panel.lines}
    labels = [label for label in comparison.labels if label in shown]
    colours, dashes = colours_of(comparison), dashes_of(comparison)
    with figure_style():
        height = 2.6 * len(panels) + 0.5 + 0.2 * ((len(labels) + 3) // 4)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        for axes, panel in zip(figure.subplots(len(panels), squeeze=False, sharex=True)[:, 0], panels, strict=True):
            values = np.concatenate(list(panel.lines.values()))
            lowest, highest, means = np.nanmin(values), np.nanmax(values), values[:, 0]
            # Logarithmic for what is positive and falls by more than a factor of four.
            log = lowest > 0 and np.nanmax(means) > 4 * np.nanmin(means)
            axes.set_yscale("log" if log else "linear")
            axes.set_xmargin(0.02)
            for label, line in panel.lines.items():
                found, colour = np.isfinite(line[:, 0]), colours[label]
                x, (mean, low, high) = panel.x[found], line[found].T
                marker = "o" if len(x) <= _FEW else None
                axes.plot(x, mean, ls=dashes[label], marker=marker, ms=3, color=colour, lw=1.5)
                if (high > low).any():
                    axes.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)
            if log:
                # A curriculum's loss may fall by many powers of ten: it leaves the axis rather than flatten the rest.
                axes.set_ylim(max(lowest, np.nanmedian(means) / _DEPTH) / 1.1, highest * 1.1)
            axes.set_title(panel.title)
            axes.grid()
        axes.set_xlabel(panels[-1].x_label)
        handles = [Line2D([], [], color=colours[label], ls=dashes[label], label=label) for label in labels]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _mean_with_interval(scores: "pd.Series[float]", bounds: tuple[float, float]) -> tuple[float, float, float]:
    values = scores.dropna().to_numpy()
    if not len(values):
        return math.nan, math.nan, math.nan
    interval = mean_interval(values, confidence=CONFIDENCE)
    low, high = np.clip([interval.low, interval.high], *bounds)
    return interval.mean, float(low), float(high)


def _ratios_of(comparison: Comparison) -> dict[str, float]:
    """Return the fixed ratios by label, rising."""
    first = comparison.table.drop_duplicates("label").set_index("label")["ratio"]
    return dict(sorted(((label, float(first[label])) for label in fixed_labels(comparison)), key=lambda pair: pair[1]))


def dashes_of(comparison: Comparison) -> dict[str, str]:
    """Return a line style per label: greys need different ones, and so do two labels of one scheme."""
    schemes = dict(zip(comparison.table["label"], comparison.table["scheme"], strict=True))
    turns = {scheme: cycle(_DASHES) for scheme in schemes.values()}
    return {label: next(turns[scheme]) for label, scheme in schemes.items()}


def _text(axes: "Axes", x: float, y: float, text: str, **how: Any) -> None:
    axes.text(x, y, text, color="#444444", **how)


def _title(comparison: Comparison) -> str:
    """Return the title, shortened to its end where it is a long path."""
    return comparison.title if len(comparison.title) <= 40 else f"…{comparison.title[-39:]}"
