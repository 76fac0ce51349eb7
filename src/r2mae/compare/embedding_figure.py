"""An embedding as a picture: its UMAP, once for every column of labels or numbers."""

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Float32
from matplotlib.figure import Figure

from r2mae.compare.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, check_suffix, figure_style, write_figure
from r2mae.domains.base import Domain
from r2mae.domains.options import FigureColumns
from r2mae.errors import UserError, nearest
from r2mae.evaluation.missing import is_missing
from r2mae.masking.keys import Key, permutation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST, MOST = 5, 20_000  # points: of fewer UMAP finds no spectral start
_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, "#332288", "#999933", "#882255", "#000000", "#ddcc00")
_OTHER, _MISSING = "#b8b8b8", "#e2e2e2"


def import_umap() -> Any:
    """Return umap-learn. Its import takes seconds; warnings of numba and of its own are hidden from users."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            umap: Any = import_module("umap")
            return umap.UMAP  # another package has the same name
    except (ImportError, AttributeError):
        raise UserError("a UMAP needs umap-learn, which is not installed: pip install 'r2mae[cells]'") from None


def umap_positions(embedding: Float[np.ndarray, "points width"], *, seed: int = 0) -> Float32[np.ndarray, "points 2"]:
    """Lay an embedding out in the plane by UMAP, on one thread: the same numbers for the same seed."""
    if len(embedding) < FEWEST:
        raise UserError(f"UMAP needs {FEWEST} points or more, not {len(embedding)}: omit --figure")
    if lost := int((~np.isfinite(embedding).all(axis=1)).sum()):
        total = f"{len(embedding):,}"
        raise UserError(f"{lost:,} of {total} embeddings hold NaN or infinity: check the training, then draw again")
    umap = import_umap()(n_neighbors=min(15, len(embedding) - 1), min_dist=0.5, random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of graphs with several parts, of equal points, of its use of other libraries
        return np.asarray(umap.fit_transform(embedding.astype(np.float32)), dtype=np.float32)


def embedding_figure(
    embedding: Float[np.ndarray, "points width"],
    columns: Mapping[str, np.ndarray],
    *,
    title: str,
    max_points: int = MOST,
    seed: int = 0,
) -> Figure:
    """Draw the UMAP of an embedding, a panel for each column: text with a legend, floats with a colour bar.

    Parameters
    ----------
    embedding : ndarray, shape (points, width)
    columns : mapping of str to ndarray, shape (points,)
        Without any, one panel in one colour.
    title : str
        Of the figure; the number of points is added.
    max_points : int
        Draw this many.
    seed : int
        Of the choice and the order of points, and of the layout.
    """
    chosen = permutation(Key.root(seed).fold("figure points"), len(embedding))[:max_points]
    positions = umap_positions(embedding[chosen], seed=seed)
    shown = f"{len(chosen):,} of {len(embedding):,}" if len(chosen) < len(embedding) else f"{len(chosen):,}"
    panels = {name: values[chosen] for name, values in columns.items()} or {"": np.full(len(chosen), "all")}
    across = min(3, len(panels))
    down = ceil(len(panels) / across)
    with figure_style():
        words = textwrap.fill(f"{title}, {shown} points", 42 * across)
        above = 0.7 + 0.17 * words.count("\n")
        height = above + 5.2 * down  # inches: a square and room below it for a legend or a colour bar
        figure = Figure((3.8 * across, height), dpi=200)
        figure.subplots_adjust(left=0.02, right=0.98, top=1 - above / height, bottom=0, hspace=0.08, wspace=0.06)
        figure.suptitle(words, x=0.02, y=1 - 0.1 / height, ha="left", va="top", fontsize=10)
        for index, (name, values) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(down, across, index, title=name, xticks=[], yticks=[], box_aspect=1, anchor="N")
            _draw(axes, positions, values)
    return figure


def _draw(axes: "Axes", positions: Float32[np.ndarray, "points 2"], values: np.ndarray) -> None:
    """Draw points, in random order as they are: text by category, the largest in colours of their own, or floats."""
    size = float(np.clip(9000 / len(values), 1.2, 16))
    dots = partial(axes.scatter, lw=0, s=size, rasterized=len(values) > 2000)  # as shapes, many take megabytes of SVG
    missing = np.isnan(values) if values.dtype.kind == "f" else is_missing(values)
    known, handles, below = values[~missing], [], 0.0
    if known.dtype.kind != "f":
        names = pd.Series(known).value_counts().index
        colours = dict(zip(sorted(names[: len(_COLOURS)]), _COLOURS, strict=False))
        dots(*positions[~missing].T, c=[colours.get(name, _OTHER) for name in known])
        handles = [
            dots([], [], c=colour, label=name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}")
            for name, colour in colours.items()
        ]
        if others := len(names) - len(colours):
            handles.append(dots([], [], c=_OTHER, label=f"other ({others})"))
    elif len(known):
        low, high = np.quantile(known, [0.01, 0.99])
        drawn = dots(*positions[~missing].T, c=known, vmin=low, vmax=high)
        figure, below = axes.get_figure(root=True), -0.13
        figure.colorbar(drawn, cax=axes.inset_axes((0.03, -0.07, 0.94, 0.03)), orientation="horizontal")  # type: ignore[union-attr]
    if missing.any():
        handles.append(dots(*positions[missing].T, c=_MISSING, label="no value"))
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.02, below), ncols=2, fontsize=8,
        handletextpad=0.1, columnspacing=0.8, labelspacing=0.3, markerscale=(36 / size) ** 0.5,
    )  # fmt: skip


def columns_of(arrays: Mapping[str, np.ndarray], numbers: Sequence[str]) -> pd.DataFrame:
    """Return the columns next to a domain's `embedding`; `numbers` are numbers though they are text."""
    rows = arrays["embedding"].shape[:1]
    table = pd.DataFrame(
        {name: values for name, values in arrays.items() if values.shape == rows and name != "classes"}
    )
    if "labels" in table and "classes" in arrays:
        table["labels"] = arrays["classes"].astype(str)[table["labels"].astype(int)]
    for name in table:
        number = name in numbers or table[name].dtype.kind == "f"
        table[name] = pd.to_numeric(table[name], errors="coerce") if number else table[name].astype(str)
    return table


def text_or_floats(column: "pd.Series[Any]") -> np.ndarray:
    """Return numbers as floats, and all else (categories, truth values) as text; missing values are NaN or ""."""
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype="float64", na_value=float("nan"))
    return column.astype(object).where(column.notna(), "").astype(str).to_numpy().astype(str)


def check_columns(names: Sequence[str], known: Sequence[str], data: str) -> None:
    """Refuse columns that data do not have."""
    for name in names:
        if name not in known:
            raise UserError(f"{data} has no column {name!r} (--color): {nearest(name, known)}")


def check_figure(
    domain: Domain, file: str, data: str, names: Sequence[str], max_points: int | None
) -> "pd.DataFrame | None":
    """Refuse mistakes before anything is embedded; return the annotations that have the named columns, if any."""
    if max_points is not None and max_points < FEWEST:
        raise UserError(f"--max-points must be {FEWEST} or more, not {max_points}")
    table = domain.annotations(data) if names else None
    if table is not None:
        check_columns(names, [str(name) for name in table.columns], data)
    check_suffix(file, example="umap")
    import_umap()
    return table


def draw_embedding(
    file: str,
    arrays: Mapping[str, np.ndarray],
    annotations: "pd.DataFrame | None",
    names: Sequence[str],
    treatment: FigureColumns,
    *,
    data: str,
    scheme: str,
    max_points: int | None = None,
) -> str:
    """Draw the UMAP of what a domain returned for data into a file, and return in words what it is coloured by.

    Parameters
    ----------
    file : str
        The file to write.
    arrays : mapping
        The embedding, and columns of the run.
    annotations : DataFrame, optional
        Columns of the data, to choose from.
    names : sequence of str
        The chosen columns; by default those of the run.
    treatment : FigureColumns
        How the columns of the run are treated.
    data, scheme : str
        Names for the title.
    max_points : int, optional
        Draw this many points; by default :data:`MOST`.
    """
    table = columns_of(arrays, treatment.numbers) if annotations is None else annotations
    check_columns(names, [str(name) for name in table], data)
    chosen = names or [str(name) for name in table if name not in treatment.omitted]
    columns = {name: text_or_floats(table[name]) for name in chosen}
    title = f"{Path(data).stem}: UMAP of the embedding by {scheme}"
    most = MOST if max_points is None else max_points
    write_figure(embedding_figure(arrays["embedding"], columns, title=title, max_points=most), file)
    return ", ".join(columns) or "nothing (--color COLUMN)"
