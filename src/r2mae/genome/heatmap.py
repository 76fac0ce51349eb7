"""The picture of a region's scores: position × base."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.files import Scored

MOST = 5000
"""Positions of a picture."""

_LINE = 100  # positions of a line of the picture
_SUFFIXES = (".png", ".svg", ".pdf")
Site = tuple[tuple[str, int], tuple[str, Any]]
"""Contig and position; reference base, and scores of A, C, G and T."""


def check_figure(path: Path, positions: int) -> None:
    """Refuse an unknown format of a picture, or too many positions.

    Raises
    ------
    UserError
    """
    if path.suffix not in _SUFFIXES:
        raise UserError(f"--figure {path}: pictures end in {', '.join(_SUFFIXES)}")
    if positions > MOST:
        raise UserError(
            f"--figure draws at most {MOST:,} positions, and the region has {positions:,}: name a part, or omit it"
        )


def draw_scores(path: Path, scored: Iterable[Scored]) -> None:
    """Draw the scores of all substitutions of a region, 100 positions on a line; reference bases are letters.

    Parameters
    ----------
    path : Path
        .png, .svg or .pdf.
    scored : iterable
        Blocks with scores and reasons.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns: dict[tuple[str, int], tuple[str, Any]] = {}
    for block, scores, _ in scored:
        for contig, position, ref, alt, score in zip(*block.alleles, scores.tolist(), strict=True):
            columns.setdefault((contig, position), (ref, np.full(GAP, np.nan)))[1][LETTERS.index(alt)] = score
    sites = list(columns.items())
    lines = [sites[first : first + _LINE] for first in range(0, len(sites), _LINE)]
    top = float(np.nanmax(np.abs([values for _, (_, values) in sites] or [[1.0]])))
    width = max(3.0, 0.12 * max(map(len, lines), default=1) + 1.5)
    figure = Figure(figsize=(width, 0.95 * max(len(lines), 1) + 0.4), layout="constrained")
    axes = figure.subplots(max(len(lines), 1), 1, squeeze=False)[:, 0]
    images = [_draw_line(axis, line, top) for axis, line in zip(axes, lines, strict=False)]
    if images:
        figure.colorbar(images[0], ax=list(axes), label="log p(alt) - log p(ref)", fraction=0.05, pad=0.01)
    plain = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "r2mae"}), atomic_write(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=160, metadata=plain)


def _draw_line(axis: Any, line: list[Site], top: float) -> Any:
    axis.set_facecolor("0.85")
    values = np.array([column for _, (_, column) in line]).T
    image = axis.imshow(values, cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    axis.set_yticks(range(GAP), list(LETTERS[:GAP]), fontsize=6)
    (contig, first), _ = line[0]
    ticks = {place: f"{position:,}" for place, ((_, position), _) in enumerate(line) if position % 20 == 0}
    ticks[0] = f"{contig}:{first:,}"
    axis.set_xticks(list(ticks), list(ticks.values()), fontsize=6)
    axis.set_xlim(-0.5, max(len(line), 10) - 0.5)
    for place, (_, (ref, _)) in enumerate(line):
        axis.text(place, LETTERS.index(ref), ref, ha="center", va="center", fontsize=5)
    return image
