"""Interactive charts of the report, drawn here as SVG, so that they are there without scripts, too.

The SVG is stretched to its frame, and lines keep their width. Labels are text of the page around it, so that a chart
fits a phone without small print. The page's script shows values under the pointer, from :attr:`Area.data`.

Vega-Lite was tried instead. Its charts cannot be read by arrow keys, are missing without scripts, print pale from a
dark page, need ``unsafe-eval``, and take two to three times as long to open.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.colors import to_hex, to_rgb

from r2mae.report.comparison import Comparison
from r2mae.report.drawing import colours_of
from r2mae.report.panels import FEW, Line, Panel

_SIDE = 1000  # of the SVG's own coordinates
_POINTS = 400
_DASHES = ("", "7 4", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Ink:
    """How a label is drawn: a colour on light and on dark background, and a pattern of dashes for SVG.

    Parameters
    ----------
    label : str
        The row of the comparison.
    light, dark : str
        Colours as ``#rrggbb``.
    dash : str
        A ``stroke-dasharray``; empty for a solid line.
    """

    label: str
    light: str
    dark: str
    dash: str

    @property
    def style(self) -> str:
        """Both colours as custom properties of CSS."""
        return f"--light:{self.light};--dark:{self.dark}"


@dataclass(frozen=True)
class Series:
    """How a line of a panel is drawn: paths of the SVG, empty where there is nothing to draw.

    Parameters
    ----------
    line_style : Ink
        Its label and colours.
    band, line, dots : str
        Outline of the band, the line through the means, and dots at the means where there are few.
    """

    line_style: Ink
    band: str
    line: str
    dots: str


@dataclass(frozen=True)
class Area:
    """A panel as the page draws it.

    Parameters
    ----------
    name : str
        Its id in the page.
    title, x_label : str
        In words.
    x_ticks, y_ticks : list of (float, str)
        Positions in percent, from the left and from the top, and texts.
    grid : str
        The path of the grid.
    series : list of Series
        In the order of display.
    data : dict
        What the page's script reads values from, as plain types; None for what is missing.
    """

    name: str
    title: str
    x_label: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    grid: str
    series: list[Series]
    data: dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A figure of areas under one legend.

    Parameters
    ----------
    name : str
        Its id in the page.
    title, caption : str
        What it shows, and how to read it.
    areas : list of Area
        Of one comparison.
    """

    name: str
    title: str
    caption: str
    areas: list[Area]

    @property
    def inks(self) -> list[Ink]:
        """The legend."""
        return list(
            {series.line_style.label: series.line_style for area in self.areas for series in area.series}.values()
        )


def inks_of(comparison: Comparison) -> dict[str, Ink]:
    """Return how every label is drawn: colours as in the figures, dashes for labels of one scheme."""
    schemes = dict(zip(comparison.table["label"], comparison.table["scheme"], strict=True))
    turns = {scheme: count() for scheme in schemes.values()}
    return {
        label: Ink(label, to_hex(colour), to_hex(_on_dark(colour)), _DASHES[next(turns[schemes[label]]) % len(_DASHES)])
        for label, colour in colours_of(comparison).items()
    }


def chart(name: str, title: str, caption: str, panels: Sequence[Panel], inks: Mapping[str, Ink]) -> Chart:
    """Draw panels for the page.

    Parameters
    ----------
    name, title, caption : str
        As of :class:`Chart`.
    panels : sequence of Panel
        At most 400 points of each are drawn.
    inks : mapping
        The line_style of every label.
    """
    areas = [_area(f"panel-{name}-{index}", panel, inks) for index, panel in enumerate(panels)]
    return Chart(name, title, caption, areas)


def _area(name: str, panel: Panel, inks: Mapping[str, Ink]) -> Area:
    kept = np.unique(np.linspace(0, len(panel.x) - 1, _POINTS).round().astype(int))
    x, across = panel.x[kept], _across(panel, panel.x[kept])
    series, lines = [], []
    for line in panel.lines:
        mean, low, high = line.mean[kept], line.low[kept], line.high[kept]
        down = _down(panel, mean)
        series.append(_series(inks[line.label], line, across, down, _down(panel, low), _down(panel, high)))
        numbers = {"mean": _short(mean), "low": _short(low), "high": _short(high), "down": _short(down)}
        lines.append({"label": line.label, **numbers})
    x_ticks = [(float(_across(panel, np.array(value))) / 10, text) for value, text in panel.x_ticks]
    y_ticks = [(float(_down(panel, np.array(value))) / 10, text) for value, text in panel.y_ticks]
    grid = "".join([f"M0 {position * 10:.1f}H{_SIDE}" for position, _ in y_ticks])
    grid += "".join([f"M{position * 10:.1f} 0V{_SIDE}" for position, _ in x_ticks])
    data = {"name": name, "x_label": panel.x_label, "x": _short(x), "across": _short(across), "lines": lines}
    return Area(name, panel.title, panel.x_label, x_ticks, y_ticks, grid, series, data)


def _series(
    line_style: Ink,
    line: Line,
    across: Float[np.ndarray, " points"],
    mean: Float[np.ndarray, " points"],
    low: Float[np.ndarray, " points"],
    high: Float[np.ndarray, " points"],
) -> Series:
    """Write paths from positions in the SVG; a missing value is passed over."""
    points, bottom, top = (_points(across, positions) for positions in (mean, low, high))
    return Series(
        line_style,
        band=f"M{'L'.join(top + bottom[::-1])}Z" if line.has_band and len(bottom) > 1 else "",
        line="M" + "L".join(points) if len(points) > 1 else "",
        dots="".join(f"M{point}h0" for point in points) if len(points) <= FEW else "",  # round ends are dots
    )


def _points(across: Float[np.ndarray, " points"], down: Float[np.ndarray, " points"]) -> list[str]:
    return [f"{x:.1f} {y:.1f}" for x, y in zip(across, down, strict=True) if np.isfinite(y)]


def _across(panel: Panel, x: Float[np.ndarray, "*points"]) -> Float[np.ndarray, "*points"]:
    """Return positions from the left of the SVG."""
    low, high = panel.x_range
    return np.asarray((x - low) / (high - low) * _SIDE)


def _down(panel: Panel, y: Float[np.ndarray, "*points"]) -> Float[np.ndarray, "*points"]:
    """Return positions from the top of the SVG; values below a logarithmic axis fall outside the frame, unseen."""
    low, high = panel.y_range
    if panel.log:
        low, high, y = np.log(low), np.log(high), np.log(np.maximum(y, low / 10))
    return np.asarray((high - y) / (high - low) * _SIDE)


def _short(values: Float[np.ndarray, " points"]) -> list[float | None]:
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


def themed(svg: str) -> str:
    """Let the colours of a figure's inline SVG follow the page, light or dark: background, grid and lines.

    Parameters
    ----------
    svg : str
        With colours as ``#rrggbb`` in styles.
    """
    colours = sorted(set(re.findall(r": (#[0-9a-f]{6})\b", svg)))
    both = {"#ffffff": "var(--page)", "#e4e4e4": "var(--grid)"}
    svg = re.sub(r": (#[0-9a-f]{6})\b", lambda match: f": {both.get(match[1], f'var(--c{match[1][1:]})')}", svg)
    light = "".join(f"--c{colour[1:]}:{colour};" for colour in colours if colour not in both)
    dark = "".join(f"--c{colour[1:]}:{to_hex(_on_dark(to_rgb(colour)))};" for colour in colours if colour not in both)
    style = f".plot{{{light}}}@media screen and (prefers-color-scheme:dark){{.plot{{{dark}}}}}"
    return svg.replace(">", f"><style>{style}</style>", 1)


def _on_dark(colour: tuple[float, float, float]) -> tuple[float, float, float]:
    """Invert greys and lighten dark colours, so that both stand out from a dark page."""
    red, green, blue = colour
    if red == green == blue:
        return (1 - 0.8 * red,) * 3
    brightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    share = 0.45 if brightness < 0.2 else 0.3 if brightness < 0.3 else 0.0
    return red + (1 - red) * share, green + (1 - green) * share, blue + (1 - blue) * share
