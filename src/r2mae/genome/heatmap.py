"""The picture of a region's scores: position × base."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.genome.store.tokens import GAP, LETTERS

if TYPE_CHECKING:
    import pandas as pd

MOST = 5000
"""Positions of a picture."""

_LINE = 100  # positions of a line of the picture
_SUFFIXES = (".png", ".svg", ".pdf")


def check_figure(path: Path, positions: int) -> None:
    """Refuse an unknown format of a picture, or too many positions."""
    if path.suffix not in _SUFFIXES:
        raise UserError(f"--figure {path}: pictures end in {', '.join(_SUFFIXES)}")
    if positions > MOST:
        raise UserError(
            f"--figure draws at most {MOST:,} positions, and the region has {positions:,}: name a part, or omit it"
        )


def draw_scores(path: Path, table: Path, column: str) -> None:
    """Draw a table with the scores of all substitutions, 100 positions on a line; reference bases are letters.

    Parameters
    ----------
    path : Path
        .png, .svg or .pdf.
    table : Path
        What :func:`r2mae.genome.score.score_variants` writes of a region.
    column : str
        The column of the scores.
    """
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.figure import Figure

    read = pd.read_csv(table, sep="\t", compression="gzip" if table.suffix in (".gz", ".bgz") else None)
    grid = read.pivot(index=["chrom", "pos", "ref"], columns="alt", values=column).reindex(columns=[*LETTERS[:GAP]])
    lines = [grid.iloc[first : first + _LINE] for first in range(0, len(grid), _LINE)]
    top = float(np.nanmax(np.abs(grid.to_numpy())))
    size = max(3.0, 0.12 * len(lines[0]) + 1.5), 0.95 * len(lines) + 0.4
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(lines), 1, squeeze=False)[:, 0]
    images = [_draw_line(axis, line, top) for axis, line in zip(axes, lines, strict=True)]
    figure.colorbar(images[0], ax=list(axes), label="log p(alt) - log p(ref)", fraction=0.05, pad=0.01)
    plain = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "r2mae"}), atomic_write(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=160, metadata=plain)


def _draw_line(axis: Any, line: "pd.DataFrame", top: float) -> Any:
    axis.set_facecolor("0.85")
    image = axis.imshow(line.T, cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    axis.set_yticks(range(GAP), list(LETTERS[:GAP]), fontsize=6)
    ticks = {place: f"{position:,}" for place, (_, position, _) in enumerate(line.index) if position % 20 == 0}
    contig, first, _ = line.index[0]
    ticks[0] = f"{contig}:{first:,}"
    axis.set_xticks(list(ticks), list(ticks.values()), fontsize=6)
    axis.set_xlim(-0.5, max(len(line), 10) - 0.5)
    for place, (_, _, ref) in enumerate(line.index):
        axis.text(place, LETTERS.index(ref), ref, ha="center", va="center", fontsize=5)
    return image
