"""An embedding as a picture: its UMAP, once for every column of labels or numbers."""

import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float32, Float64
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from r2mae.errors import UserError
from r2mae.evaluation.missing import is_missing
from r2mae.masking.keys import Key, permutation
from r2mae.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, check_suffix, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 20_000
# Okabe and Ito's, then Tol's that stay apart from them.
_COLOURS = (
    BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, "#332288", "#999933", "#882255", "#000000", "#ddcc00", "#8c5a2b",
)  # fmt: skip
_OTHER, _MISSING = "#b8b8b8", "#e2e2e2"
_FEWEST = 5  # points; of fewer UMAP finds no spectral start
_PCA_WIDTH = 50  # as in scanpy
_NEIGHBOURS, _MIN_DISTANCE = 15, 0.5  # as in scanpy
_SIDE, _GAP, _TITLE = 3.4, 0.25, 0.3  # inches of a panel, between panels and of a panel's title
_ROW, _BAR = 0.19, 0.75  # inches of a line of the legend and of a colour bar with one
_LETTERS = 44  # that fit beside each other in a legend
_LONGEST = 44  # letters of a name


@dataclass(frozen=True)
class _Legend:
    """Names and colours, and the colour of every point."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    of_points: Float64[np.ndarray, "points 3"]

    @property
    def columns(self) -> int:
        longest = max((len(name) for name in self.names), default=0) + 6
        return max(1, min(3, _LETTERS // longest, ceil(len(self.names) / 4)))

    @property
    def rows(self) -> int:
        return ceil(len(self.names) / self.columns)


def check_figure(path: str | Path) -> None:
    """Check, before anything is computed, that a UMAP can be drawn and written to such a file.

    Raises
    ------
    UserError
        For a suffix of no figure, or if umap-learn is not installed.
    """
    check_suffix(path, example="umap")
    _umap()


def check_points(max_points: int) -> None:
    """Refuse a number of points that UMAP cannot lay out."""
    if max_points < _FEWEST:
        raise UserError(f"--max-points must be {_FEWEST} or more, not {max_points}")


def columns_of(
    arrays: Mapping[str, np.ndarray], *, numbers: Sequence[str] = (), without: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Find the columns that a domain gave beside its `embedding`.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        What a domain's ``embed`` returns. Columns are the one-dimensional arrays with an entry per row; `labels` are
        replaced by the names in `classes`.
    numbers : sequence of str
        Columns that are numbers though written as text; what is no number becomes NaN.
    without : sequence of str
        Columns to leave out.

    Returns
    -------
    dict
        Text, or float64 with NaN for missing values.
    """
    rows = len(arrays["embedding"])
    columns: dict[str, np.ndarray] = {}
    for name, values in arrays.items():
        if name in ("embedding", "classes", *without) or values.shape != (rows,):
            continue
        if name == "labels" and "classes" in arrays:
            columns[name] = arrays["classes"].astype(str)[values.astype(np.int64)]
        elif name in numbers or values.dtype.kind == "f":
            series = pd.to_numeric(pd.Series(values), errors="coerce")
            columns[name] = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            columns[name] = values.astype(str)
    return columns


def values_of(column: "pd.Series[Any]") -> np.ndarray:
    """Bring a column of a table into the form of :func:`columns_of`; categories and truth values are labels."""
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(column.isna().to_numpy(), "", column.astype(str).to_numpy().astype(str))


def umap_places(embedding: Float[np.ndarray, "points width"], *, seed: int = 0) -> Float32[np.ndarray, "points 2"]:
    """Lay an embedding out in the plane by UMAP, with scanpy's settings.

    An embedding wider than 50 is first projected on its 50 leading principal axes; then 15 neighbours by Euclidean
    distance, and points at least 0.5 apart. The same numbers for the same seed, on one thread.

    Raises
    ------
    UserError
        If there are fewer than five points, values that are not finite, or no umap-learn.
    """
    points, width = embedding.shape
    if points < _FEWEST:
        raise UserError(f"UMAP needs {_FEWEST} points or more, not {points}: leave --figure out")
    finite: Bool[np.ndarray, " points"] = np.isfinite(embedding).all(axis=1)
    if not finite.all():
        lost = int((~finite).sum())
        raise UserError(f"{lost:,} of {points:,} embeddings hold NaN or infinity: check the training, then draw again")
    umap = _umap()
    features = embedding.astype(np.float32)
    if width > _PCA_WIDTH:
        from sklearn.decomposition import PCA

        features = PCA(min(_PCA_WIDTH, points - 1), random_state=seed).fit_transform(features)
    with warnings.catch_warnings():
        # Of sparse graphs with several parts, of points that are equal, of its own use of other libraries.
        warnings.simplefilter("ignore")
        layout = umap.UMAP(
            n_neighbors=min(_NEIGHBOURS, points - 1), min_dist=_MIN_DISTANCE, random_state=seed, n_jobs=1
        ).fit_transform(features)
    return np.asarray(layout, dtype=np.float32)


def embedding_figure(
    embedding: Float[np.ndarray, "points width"],
    columns: Mapping[str, np.ndarray],
    *,
    title: str = "",
    max_points: int = MAX_POINTS,
    seed: int = 0,
) -> Figure:
    """Draw the UMAP of an embedding, one panel for each column.

    Labels have a colour each; of more than twelve the eleven largest, and the others are grey. Numbers have a colour
    bar from their 1st to their 99th percentile. Missing values are pale. Points lie in random order, so that no class
    covers another.

    Parameters
    ----------
    embedding : ndarray, shape (points, width)
    columns : mapping of str to ndarray, shape (points,)
        Text (labels; "" is missing) or floating point numbers (NaN is missing), as of :func:`columns_of`; without any,
        one panel in one colour.
    title : str
        Of the figure; the number of points is added.
    max_points : int
        Draw this many, chosen by the seed.
    seed : int
        Of choice, order and layout.

    Raises
    ------
    UserError
        As :func:`umap_places`; also `max_points` below five.
    """
    points = len(embedding)
    for name, values in columns.items():
        if values.shape != (points,):
            raise ValueError(f"column {name!r} has shape {values.shape}, and there are {points} embeddings")
    check_points(max_points)
    # The choice is in random order: that of drawing.
    chosen = permutation(Key.root(seed).fold("figure points"), points)[:max_points]
    positions = umap_places(embedding[chosen], seed=seed)
    shown = f"{len(chosen):,} of {points:,} points" if len(chosen) < points else f"{points:,} points"
    shown = shown.replace(" ", "\u00a0")
    panels = {name: values[chosen] for name, values in columns.items()} or {"": np.full(len(chosen), "")}
    legends = {name: _legend(values) for name, values in panels.items() if values.dtype.kind != "f" and name}
    with figure_style():
        figure, all_axes = _grid(list(panels), legends, f"{title}, {shown}" if title else shown)
        for axes, (name, values) in zip(all_axes, panels.items(), strict=True):
            _frame(axes, name)
            if name in legends:
                _draw_labels(axes, positions, legends[name])
            elif name:
                _draw_numbers(figure, axes, positions, values)
            else:
                _dots(axes, positions, len(positions), c=BLUE)
    return figure


def _umap() -> Any:
    """Return umap-learn. Its import takes seconds; warnings of numba and of its own are hidden from users."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            umap: Any = import_module("umap")
            _ = umap.UMAP  # another package has the same name
    except (ImportError, AttributeError):
        raise UserError("a UMAP needs umap-learn, which is not installed: pip install 'r2mae[cells]'") from None
    return umap


def _legend(values: np.ndarray) -> _Legend:
    missing = is_missing(values)
    names, inverse = np.unique(values, return_inverse=True)
    counts = np.bincount(inverse, weights=~missing, minlength=len(names)).astype(np.int64)
    largest = [int(index) for index in np.argsort(-counts, kind="stable") if counts[index]]
    rest = largest[len(_COLOURS) - 1 :] if len(largest) > len(_COLOURS) else []
    kept = sorted(set(largest) - set(rest), key=lambda index: _natural(str(names[index])))
    entries = [(_short(str(names[index])), _COLOURS[turn]) for turn, index in enumerate(kept)]
    colour = np.tile(to_rgb(_MISSING), (len(names), 1))
    colour[rest] = to_rgb(_OTHER)
    for index, (_, own) in zip(kept, entries, strict=True):
        colour[index] = to_rgb(own)
    if rest:
        entries.append((f"other ({len(rest)})", _OTHER))
    if missing.any():
        entries.append(("no value", _MISSING))
    return _Legend(tuple(name for name, _ in entries), tuple(own for _, own in entries), colour[inverse])


def _grid(names: Sequence[str], legends: Mapping[str, _Legend], title: str) -> "tuple[Figure, list[Axes]]":
    """Place panels by inches, three in a row at most, so that they are aligned whatever legends stand below them."""
    across = min(3, len(names))
    rows = [names[first : first + across] for first in range(0, len(names), across)]
    below = [max([_BAR, *(_ROW * legends[name].rows + 0.2 for name in row if name in legends)]) for row in rows]
    width = _GAP + (_SIDE + _GAP) * across
    lines = textwrap.wrap(title, int(width * 11))
    height = 0.2 + 0.2 * len(lines) + sum(_TITLE + _SIDE + space for space in below)
    figure = Figure(figsize=(width, height), dpi=200)
    figure.text(_GAP / width, 1 - 0.12 / height, "\n".join(lines), va="top", fontsize=11)
    panels, top = [], height - 0.2 - 0.2 * len(lines)
    for row, space in zip(rows, below, strict=True):
        top -= _TITLE + _SIDE
        for column in range(len(row)):
            left = _GAP + (_SIDE + _GAP) * column
            panels.append(figure.add_axes((left / width, top / height, _SIDE / width, _SIDE / height)))
        top -= space
    return figure, panels


def _frame(axes: "Axes", name: str) -> None:
    axes.set_title(name, pad=5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.04)
    axes.spines[:].set(visible=True, color="#d0d0d0")


def _dots(axes: "Axes", positions: Float32[np.ndarray, "some 2"], points: int, **how: Any) -> Any:
    """Draw points; many of them as pixels, since the SVG would otherwise take many megabytes."""
    return axes.scatter(
        positions[:, 0], positions[:, 1], lw=0, rasterized=points > 2000, s=np.clip(9000 / points, 1.2, 16), **how
    )


def _draw_labels(axes: "Axes", positions: Float32[np.ndarray, "points 2"], legend: _Legend) -> None:
    _dots(axes, positions, len(positions), c=legend.of_points)
    handles = [
        Line2D([], [], ls="", marker="o", ms=6, mew=0, color=colour, label=name)
        for name, colour in zip(legend.names, legend.colours, strict=True)
    ]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.03, -0.01), ncols=legend.columns, fontsize=9,
        handletextpad=0.2, columnspacing=1.2, labelspacing=0.3,
    )  # fmt: skip


def _draw_numbers(
    figure: Figure, axes: "Axes", positions: Float32[np.ndarray, "points 2"], values: Float[np.ndarray, " points"]
) -> None:
    known = np.isfinite(values)
    if not known.all():
        _dots(axes, positions[~known], len(positions), c=_MISSING)
        handle = Line2D([], [], ls="", marker="o", ms=6, mew=0, color=_MISSING, label="no value")
        below = (-0.03, -0.13 if known.any() else -0.01)
        axes.legend(handles=[handle], loc="upper left", bbox_to_anchor=below, fontsize=9, handletextpad=0.2)
    if not known.any():
        return
    low, high = (float(end) for end in np.quantile(values[known], [0.01, 0.99]))
    if low == high:
        low, high = float(values[known].min()), float(values[known].max())
    drawn = _dots(axes, positions[known], len(positions), c=values[known], cmap="viridis", vmin=low, vmax=high)
    beyond = (bool((values[known] < low).any()), bool((values[known] > high).any()))
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    bar_axes = axes.inset_axes((0.06, -0.065, 0.88, 0.03))
    bar = figure.colorbar(drawn, cax=bar_axes, orientation="horizontal", extend=extend)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, width=0.8)


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Order "T2" before "T10"."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in re.split(r"(\d+)", name))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
