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
from r2mae.compare.comparison import Comparison
from r2mae.compare.pictures import draw_pictures
from r2mae.compare.style import figure_style, save_figure, svg
from r2mae.compare.wording import CONFIDENCE, number, sentence_case
from r2mae.evaluation.metrics import Metric, metrics_by_ratio
from r2mae.evaluation.statistics import mean_interval
from r2mae.masking.schemes import scheme_kind, scheme_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#6e6e6e"  # the curve over the fixed ratios
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
    """Return every figure that the comparison has data for; those of the primary metric come first."""
    figures = [*_score_figures(comparison, analysis), *_line_figures(comparison, analysis)]
    examples = comparison.reconstructions
    if examples and len((one := next(iter(examples.values()))).original):
        caption = f"Reconstructions by the first seed's models of images with {one.ratio:.0%} of pixels masked."
        caption += " Below: their places in the data, from 0." * bool(one.index)
        draw = partial(draw_pictures, examples, title=_title(comparison))
        figures.append(NamedFigure("reconstructions", "Reconstructions", caption, draw))
    return figures


def _score_figures(comparison: Comparison, analysis: Analysis) -> Iterator[NamedFigure]:
    intervals = f" with {CONFIDENCE:.0%} intervals" if _has_intervals(analysis) else ""
    for metric in analysis.metrics:
        choice = analysis.best_fixed.get(metric.name)
        caption = f"Diamonds are means of {metric.label}{intervals}"
        caption += ", small dots are single seeds" if intervals else ""
        if choice:
            way = "chosen without the seed it is scored on" if choice.held_out else "chosen on the same seed"
            caption += f"; dashed: the best fixed ratio, {way}"
        draw = partial(score_by_scheme, comparison, analysis, metric)
        name = "score_by_scheme" + _suffix(analysis, metric)
        yield NamedFigure(name, f"Score by scheme: {metric.label}", f"{caption}.", draw)
    for metric in analysis.metrics:
        bands = ", in bands of their intervals" if intervals else ""
        caption = (
            f"{sentence_case(metric.label)} of fixed ratios (grey diamonds: means{intervals}) and of other schemes: "
            f"bars span the range of their ratios, at their mean{bands}."
        )
        draw = partial(score_against_ratio, comparison, analysis, metric)
        name = "score_against_ratio" + _suffix(analysis, metric)
        yield NamedFigure(name, f"Score against mask ratio: {metric.label}", caption, draw)


def _line_figures(comparison: Comparison, analysis: Analysis) -> Iterator[NamedFigure]:
    if panels := ratio_panels(comparison, analysis):
        band = f", bands their {CONFIDENCE:.0%} intervals" if _has_intervals(analysis) else ""
        caption = (
            f"Lines are means over seeds{band}. At every ratio all models receive the same frozen masks, so that a "
            "ratio is the same task for all."
        )
        draw = partial(lines_with_bands, comparison, panels)
        yield NamedFigure("scores_by_ratio", "Scores by mask ratio of the evaluation", caption, draw)
    if panels := loss_panels(comparison):
        caption = (
            "Lines are means over seeds, bands extend from the lowest to the highest seed. "
            if _has_intervals(analysis)
            else ""
        )
        caption += (
            "Training losses at different mask ratios are losses of different tasks, as are those weighted by a "
            "curriculum (which may fall below the axis). The validation loss is the same task for all."
        )
        draw = partial(lines_with_bands, comparison, panels)
        yield NamedFigure("loss_curves", "Loss curves", caption, draw)


def _has_intervals(analysis: Analysis) -> bool:
    return bool(analysis.summary["n"].max() > 1)


def _suffix(analysis: Analysis, metric: Metric) -> str:
    return "" if metric == analysis.primary else f"_{metric.name}"


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


def score_by_scheme(comparison: Comparison, analysis: Analysis, metric: Metric) -> Figure:
    """Draw the mean and interval of every label, every seed as a dot, and the best fixed ratio as a dashed line.

    Parameters
    ----------
    comparison, analysis, metric
        What to draw.
    """
    scores = scores_by_seed(comparison, metric.name)
    # The mean image has no embedding to probe: a baseline without such a score is left out, not missing.
    bare = {label for label in comparison.baselines if not analysis.interval(label, metric.name)["n"]}
    labels = [label for label in comparison.labels if label not in bare]
    colours, places = colours_of(comparison), analysis.decimals[metric.name]
    with figure_style():
        figure = Figure(figsize=(WIDTH, 1.5 + 0.36 * len(labels)), layout="constrained")
        axes = figure.add_subplot()
        for y, label in enumerate(labels):
            row = analysis.interval(label, metric.name)
            values = scores[label].dropna().to_numpy()
            if len(values) > 1:
                axes.plot(values, np.full(len(values), y + 0.28), "o", ms=3.5, color=colours[label], alpha=0.6, mew=0)
            if row["n"] > 0:
                _point(axes, row, y, colours[label], horizontal=True)
            _text(axes, 1.02, y, number(row["mean"], places), transform=axes.get_yaxis_transform(), va="center")
        choice = analysis.best_fixed.get(metric.name)
        if choice is not None:
            best = float(np.mean([*choice.scores.values()]))
            axes.axvline(best, color="#333333", ls="--", lw=1, zorder=1)
            _text(axes, best, 1.01, "best fixed", transform=axes.get_xaxis_transform(), ha="center", fontsize=9)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(_direction(metric))
        axes.set_title(_title(comparison), pad=18)
    return figure


def score_against_ratio(comparison: Comparison, analysis: Analysis, metric: Metric) -> Figure:
    """Draw fixed ratios as a curve over the mask ratio, and every other scheme as a bar over its range.

    A bar is at the mean, in a band of the interval.

    Parameters
    ----------
    comparison, analysis, metric
        What to draw.
    """
    colours, fixed = colours_of(comparison), _ratios_of(comparison)
    rows = {label: analysis.interval(label, metric.name) for label in comparison.labels}
    bare = [label for label in comparison.baselines if rows[label]["n"] > 0]  # without a ratio
    others = [label for label in comparison.labels if label not in {*fixed, *bare} and rows[label]["n"] > 0]
    ends = {label: part[["low", "high"]].iloc[0].tolist() for label, part in comparison.table.groupby("label")}
    with figure_style():
        figure = Figure(figsize=(WIDTH, 4.2 + 0.22 * ((len(others) + len(bare) + 4) // 4)), layout="constrained")
        axes, dashes = figure.add_subplot(), dashes_of(comparison)
        for label in bare:
            axes.axhline(rows[label]["mean"], color=colours[label], ls=dashes[label], lw=1.2, zorder=1)
        curve = [(ratio, rows[label]) for label, ratio in fixed.items() if rows[label]["n"] > 0]
        grey = to_rgb(_GREY)
        axes.plot([ratio for ratio, _ in curve], [row["mean"] for _, row in curve], "-", color=grey, lw=1.5)
        for ratio, row in curve:
            _point(axes, row, ratio, grey)
        handles = [Line2D([], [], color=grey, marker="D", ms=5, label="fixed ratio")] if curve else []
        for label in others:
            (low, high), row, colour = ends[label], rows[label], colours[label]
            if high > low:
                axes.plot([low, high], [row["mean"]] * 2, "-", color=colour, lw=3, alpha=0.75)
                axes.fill_between([low, high], row["low"], row["high"], color=colour, alpha=0.12, lw=0)
            else:
                _point(axes, row, low, colour)
            handles.append(Line2D([], [], color=colour, lw=3, marker="" if high > low else "D", ms=5, label=label))
        handles += [Line2D([], [], color=colours[label], lw=1.2, ls=dashes[label], label=label) for label in bare]
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks(np.arange(0, 1.01, 0.1))
        axes.grid()
        axes.set_xlabel("mask ratio")
        axes.set_title(f"{_title(comparison)}: {_direction(metric)}")
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


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


def _point(
    axes: "Axes", row: Mapping[str, Any], at: float, colour: tuple[float, float, float], *, horizontal: bool = False
) -> None:
    """Draw a mean with its interval; the interval is left out where there is none."""
    x, y = (row["mean"], at) if horizontal else (at, row["mean"])
    error = np.array([[row["mean"] - row["low"]], [row["high"] - row["mean"]]])
    if np.isfinite(error).all():
        xerr, yerr = (error, None) if horizontal else (None, error)
        axes.errorbar(x, y, xerr=xerr, yerr=yerr, fmt="none", ecolor=colour, elinewidth=2, capsize=3)
    axes.plot(x, y, "D", ms=6, color=colour, mec="white", mew=0.8, zorder=3)


def _text(axes: "Axes", x: float, y: float, text: str, **how: Any) -> None:
    axes.text(x, y, text, color="#444444", **how)


def _direction(metric: Metric) -> str:
    if metric.higher_is_better is None:
        return metric.label
    return f"{metric.label} ({'higher' if metric.higher_is_better else 'lower'} is better)"


def _title(comparison: Comparison) -> str:
    """Return the title, shortened to its end where it is a long path."""
    return comparison.title if len(comparison.title) <= 40 else f"…{comparison.title[-39:]}"
