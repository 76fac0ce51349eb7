"""The figures of a comparison with their captions, and saving them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from r2mae.evaluation.metrics import Metric
from r2mae.report.analysis import Analysis
from r2mae.report.comparison import Comparison
from r2mae.report.drawing import (
    drawn_ratios,
    lines_with_bands,
    loss_panels,
    ratio_panels,
    reconstructions,
    score_against_ratio,
    score_by_scheme,
)
from r2mae.report.style import save_figure, svg
from r2mae.report.wording import CONFIDENCE, listing, sentence_case


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


def comparison_figures(comparison: Comparison, analysis: Analysis) -> list[NamedFigure]:
    """Return every figure that the comparison has data for; those of the primary metric come first."""
    figures = [*_score_figures(comparison, analysis), *_line_figures(comparison, analysis)]
    examples = comparison.reconstructions
    if examples is not None and len(examples.original):
        caption = f"Reconstructions by the first seed's models of images with {examples.ratio:.0%} of pixels masked."
        figures.append(NamedFigure("reconstructions", "Reconstructions", caption, partial(reconstructions, comparison)))
    if any(len(ratios) for ratios in comparison.ratios.values()):
        caption = "Share of the first seed's optimiser steps by mask ratio. A single line is a single ratio."
        if comparison.by_sample:
            verb = "draws" if len(comparison.by_sample) == 1 else "draw"
            caption += (
                f" {listing(comparison.by_sample)} {verb} a ratio for every sample: the figure shows the distribution "
                "over samples."
            )
        figures.append(NamedFigure("drawn_ratios", "Mask ratios drawn", caption, partial(drawn_ratios, comparison)))
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
        caption = (
            f"{sentence_case(metric.label)} of fixed ratios (grey, at their ratios) and of the other schemes: bars "
            f"span the range of their ratios, at their mean. Diamonds are means{intervals}; those of schemes "
            "are next to the axis, since they have no single ratio."
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


def save_figures(comparison: Comparison, analysis: Analysis, folder: str | Path) -> list[Path]:
    """Write every figure as PNG and SVG, each file atomically. Equal comparisons give equal files.

    Parameters
    ----------
    comparison, analysis
        The comparison to draw, and its analysis.
    folder : str or Path
        Folder of the files; created if missing.

    Returns
    -------
    list of Path
        The files written.
    """
    paths: list[Path] = []
    for named in comparison_figures(comparison, analysis):
        paths += save_figure(named.draw(), folder, named.name)
    return paths


def inline_svg(figure: Figure, prefix: str) -> str:
    """Return a figure as an ``<svg class="plot">`` element for a page.

    Parameters
    ----------
    figure : Figure
        The figure.
    prefix : str
        Prefix of every id, since ids of several figures on a page must differ.
    """
    text = svg(figure, transparent=True)
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # HTML does not need the two namespaces; without them the page contains no address of another site.
    text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = text.replace("<svg ", '<svg class="plot" ', 1).replace("*{stroke", ".plot *{stroke", 1)
    text = re.sub(r'(<[^<>]*?\sid=")', rf"\1{prefix}-", text)
    return re.sub(r'(url\(#|href="#)', rf"\1{prefix}-", text)
