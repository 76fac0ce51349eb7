"""Charts of the report that answer to the pointer: drawn here as SVG, so that they stand without scripts, too.

The SVG is stretched to its frame while lines keep their width, and labels are text of the page around it: a chart
fits a phone without small print. The page's script adds the reading of values, from :meth:`Panel.data`.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ticker import LogLocator, MaxNLocator

from r2mae.evaluation.metrics import by_ratio
from r2mae.evaluation.statistics import mean_interval
from r2mae.report.analysis import Analysis, scores_by_seed
from r2mae.report.comparison import Comparison
from r2mae.report.drawing import colours_of
from r2mae.report.wording import CONFIDENCE

_SIDE = 1000  # of the SVG's own coordinates
_POINTS = 400
_FEW = 30  # so few points are marked with dots
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
_DEPTH = 30


@dataclass(frozen=True)
class Ink:
    """How a label is drawn: a colour on light and on dark ground, and a pattern of dashes for SVG.

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
class Line:
    """One label in a panel: means and the ends of its band at the panel's `x`, NaN where there is nothing."""

    ink: Ink
    mean: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


@dataclass(frozen=True)
class Panel:
    """A pair of axes with lines.

    Parameters
    ----------
    name : str
        Its id in the page.
    title, x_label : str
        In words.
    x : ndarray, shape (points,)
        Rising; shared by the lines.
    lines : tuple of Line
        In the order of display.
    x_range, y_range : (float, float)
        Ends of the axes.
    log : bool
        Whether the vertical axis is logarithmic.
    """

    name: str
    title: str
    x_label: str
    x: Float[np.ndarray, " points"]
    lines: tuple[Line, ...]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Places in percent from the left, and texts."""
        return [(self._across(value) / 10, text) for value, text in _ticks(self.x_range, log=False)]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Places in percent from the top, and texts."""
        return [(self._down(value) / 10, text) for value, text in _ticks(self.y_range, log=self.log)]

    @property
    def grid(self) -> str:
        """The path of the grid."""
        across = (f"M0 {place * 10:.1f}H{_SIDE}" for place, _ in self.y_ticks)
        return "".join([*across, *(f"M{place * 10:.1f} 0V{_SIDE}" for place, _ in self.x_ticks)])

    def line_path(self, line: Line) -> str:
        """Return the path of a line's means."""
        points = self._points(line.mean)
        return "M" + "L".join(points) if len(points) > 1 else ""

    def dots_path(self, line: Line) -> str:
        """Return a path whose round ends are dots, where there are few points."""
        points = self._points(line.mean)
        return "".join(f"M{point}h0" for point in points) if len(points) <= _FEW else ""

    def band_path(self, line: Line) -> str:
        """Return the outline of a line's band; nothing where it has none."""
        low, high = self._points(line.low), self._points(line.high)
        return f"M{'L'.join(high + low[::-1])}Z" if len(low) > 1 and not np.array_equal(line.low, line.high) else ""

    def data(self) -> dict[str, Any]:
        """Return what the page's script needs to read values, as plain types; None for what is missing."""
        return {
            "name": self.name,
            "x_label": self.x_label,
            "x": _short(self.x),
            "x_range": list(self.x_range),
            "y_range": list(self.y_range),
            "log": self.log,
            "lines": [
                {"label": line.ink.label, **{key: _short(getattr(line, key)) for key in ("mean", "low", "high")}}
                for line in self.lines
            ],
        }

    def _points(self, values: Float[np.ndarray, " points"]) -> list[str]:
        pairs = zip(self.x, values, strict=True)
        return [f"{self._across(x):.1f} {self._down(y):.1f}" for x, y in pairs if np.isfinite(y)]

    def _across(self, x: float) -> float:
        low, high = self.x_range
        return float((x - low) / (high - low) * _SIDE)

    def _down(self, y: float) -> float:
        """A value below the axis goes just below the frame, which cuts it."""
        low, high = self.y_range
        if self.log:
            low, high, y = math.log(low), math.log(high), math.log(max(y, low / 10))
        return float((high - y) / (high - low) * _SIDE)


@dataclass(frozen=True)
class Chart:
    """A figure of panels under one legend.

    Parameters
    ----------
    name : str
        Its id in the page.
    title, caption : str
        What it shows, and how to read it.
    panels : tuple of Panel
        All with the same labels.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]

    @property
    def inks(self) -> list[Ink]:
        """The legend."""
        return list({line.ink.label: line.ink for panel in self.panels for line in panel.lines}.values())


def inks_of(comparison: Comparison) -> dict[str, Ink]:
    """Return how every label is drawn: colours as in the figures, dashes for labels of one scheme."""
    schemes = dict(zip(comparison.table["label"], comparison.table["scheme"], strict=True))
    turns = {scheme: count() for scheme in schemes.values()}
    return {
        label: Ink(label, to_hex(colour), to_hex(_on_dark(colour)), _DASHES[next(turns[schemes[label]]) % len(_DASHES)])
        for label, colour in colours_of(comparison).items()
    }


def loss_chart(comparison: Comparison, title: str, caption: str) -> Chart:
    """Training loss, and validation loss where there is one: mean over seeds, band from lowest to highest seed.

    Parameters
    ----------
    comparison : Comparison
        Its `curves`.
    title, caption : str
        In words.
    """
    inks, panels = inks_of(comparison), []
    for column, words in (("loss", "Training loss"), ("validation_loss", "Validation loss (same masks for all)")):
        if column not in comparison.curves:
            continue
        curves = comparison.curves.loc[np.isfinite(comparison.curves[column].astype(float))]
        by_step = curves.groupby(["step", "label"])[column].agg(["mean", "min", "max"])
        wide = pd.DataFrame(by_step.unstack("label"))
        if wide.empty:
            continue
        wide = wide.iloc[np.unique(np.linspace(0, len(wide) - 1, _POINTS).round().astype(int))]
        labels = [label for label in comparison.labels if ("mean", label) in wide]
        lines = [Line(inks[label], *_columns(wide, label, ("mean", "min", "max"))) for label in labels]
        x = wide.index.to_numpy(dtype=float)
        panels.append(_panel(f"panel-{column}", words, "optimiser step", x, lines))
    return Chart("loss_curves", title, caption, tuple(panels))


def ratio_charts(comparison: Comparison, analysis: Analysis) -> list[Chart]:
    """Draw every score that was measured at several mask ratios: columns named ``<metric>_<ratio>`` of the table.

    Parameters
    ----------
    comparison, analysis
        What to draw.
    """
    charts: list[Chart] = []
    for name, columns in by_ratio(map(str, comparison.table.columns)).items():
        metric = next((metric for metric in comparison.metrics if metric.name == name), None)
        words = metric.label if metric else name.replace("_", " ")
        bounds = metric.bounds if metric else (-math.inf, math.inf)
        panel = _ratio_panel(comparison, f"panel-ratio-{len(charts)}", words, columns, bounds)
        if panel is not None:
            band = f", bands their {CONFIDENCE:.0%} intervals" if analysis.summary["n"].max() > 1 else ""
            caption = (
                f"Lines are means of {words} over seeds{band}. At every ratio all models see the same frozen "
                "masks, so that one ratio is one task for all."
            )
            charts.append(Chart(f"by_ratio_{len(charts)}", f"{_sentence(words)} by mask ratio", caption, (panel,)))
    return charts


def _ratio_panel(
    comparison: Comparison, name: str, words: str, columns: dict[float, str], bounds: tuple[float, float]
) -> Panel | None:
    inks, lines = inks_of(comparison), []
    tables = [scores_by_seed(comparison, column) for column in columns.values()]
    for label in comparison.labels:
        ends = []
        for table in tables:
            values = table[label].dropna().to_numpy()
            if len(values):
                interval = mean_interval(values, confidence=CONFIDENCE)
                ends.append((interval.mean, *np.clip([interval.low, interval.high], *bounds)))
            else:
                ends.append((np.nan, np.nan, np.nan))
        if np.isfinite(ends).any():
            lines.append(Line(inks[label], *np.array(ends, dtype=float).T))
    if not lines:
        return None
    return _panel(name, _sentence(words), "mask ratio", np.array(list(columns)), lines)


def _panel(name: str, title: str, x_label: str, x: Float[np.ndarray, " points"], lines: Sequence[Line]) -> Panel:
    """Choose the axes, as the figures do."""
    means = _finite(line.mean for line in lines)
    all_values = np.concatenate([means, _finite(line.low for line in lines), _finite(line.high for line in lines)])
    low, high = float(all_values.min()), float(all_values.max())
    log = bool(low > 0 and means.max() > 4 * means.min())
    if log:
        # A curriculum's weighted loss may fall by many powers of ten: it leaves the axis rather than flatten the rest.
        low = max(low, float(np.median(means)) / _DEPTH)
        edge = (high / low) ** 0.03
        y_range = (low / edge, high * edge)
    else:
        edge = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        y_range = (low - edge, high + edge)
    room = 0.02 * float(np.ptp(x)) or 1.0
    return Panel(name, title, x_label, x, tuple(lines), (float(x[0]) - room, float(x[-1]) + room), y_range, log)


def _ticks(ends: tuple[float, float], *, log: bool) -> list[tuple[float, str]]:
    low, high = ends
    if log:
        subs = (1.0, 2.0, 3.0, 5.0) if high < 100 * low else (1.0, 3.0)
        places = LogLocator(subs=subs).tick_values(low, high)
        if high > 1e4 * low:
            places = LogLocator().tick_values(low, high)
    else:
        places = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    kept = [float(place) for place in places if low <= place <= high]
    return [(place, f"{place + 0.0:.6g}" if abs(place) > 1e-12 else "0") for place in kept]


def _columns(wide: pd.DataFrame, label: str, keys: Iterable[str]) -> list[np.ndarray]:
    return [wide[(key, label)].to_numpy(dtype=float) for key in keys]


def _finite(parts: Iterable[np.ndarray]) -> Float[np.ndarray, " n"]:
    values = np.concatenate(list(parts))
    return np.asarray(values[np.isfinite(values)])


def _short(values: Float[np.ndarray, " points"]) -> list[float | None]:
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def themed(svg: str) -> str:
    """Let the colours of a figure's inline SVG follow the page: its ground and grid, its lines like those of charts.

    Parameters
    ----------
    svg : str
        With colours as ``#rrggbb`` in styles.
    """
    found = sorted(set(re.findall(r": (#[0-9a-f]{6})\b", svg)))
    both = {"#ffffff": "var(--page)", "#e4e4e4": "var(--grid)"}
    svg = re.sub(r": (#[0-9a-f]{6})\b", lambda match: f": {both.get(match[1], f'var(--c{match[1][1:]})')}", svg)
    light = "".join(f"--c{colour[1:]}:{colour};" for colour in found if colour not in both)
    dark = "".join(f"--c{colour[1:]}:{to_hex(_on_dark(to_rgb(colour)))};" for colour in found if colour not in both)
    style = f".plot{{{light}}}@media screen and (prefers-color-scheme:dark){{.plot{{{dark}}}}}"
    return svg.replace(">", f"><style>{style}</style>", 1)


def _on_dark(colour: tuple[float, float, float]) -> tuple[float, float, float]:
    """Turn greys over, and lighten dark colours, so that both stand out from a dark page."""
    red, green, blue = colour
    if red == green == blue:
        return (1 - 0.8 * red,) * 3
    brightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    share = 0.45 if brightness < 0.2 else 0.3 if brightness < 0.3 else 0.0
    return red + (1 - red) * share, green + (1 - green) * share, blue + (1 - blue) * share
