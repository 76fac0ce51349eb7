"""The style of all figures, and saving them."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, LogFormatterMathtext, LogFormatterSciNotation

from r2mae.errors import UserError
from r2mae.files import atomic_write

# Okabe and Ito's colours, which colour-blind readers can distinguish.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
_DPI = 160
FIGURE_FILES = (".svg", ".png", ".pdf")
_METADATA: dict[str, dict[str, Any]] = {  # without the date
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_FORMULAS = (LogFormatterMathtext, LogFormatterSciNotation)
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#808080",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.08,
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # "$x" in a title is text
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "r2mae",
}


class PlainLogFormatter(LogFormatter):
    """Formats ticks of a logarithmic axis as plain numbers; matplotlib's formatters need formulas, which are off."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the number if matplotlib labels the tick, else an empty string."""
        return f"{x:g}" if super().__call__(x, pos) else ""


def _use_plain_log_ticks(figure: Figure) -> None:
    """Replace the formatters of logarithmic axes that write formulas; keep others."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() != "log":
                continue
            if type(axis.get_major_formatter()) in _FORMULAS:
                axis.set_major_formatter(PlainLogFormatter())
            if type(axis.get_minor_formatter()) in _FORMULAS:
                axis.set_minor_formatter(PlainLogFormatter(minor_thresholds=(1.0, 0.4)))


@contextmanager
def figure_style() -> Iterator[None]:
    """Within the block, use the project's matplotlib settings instead of the user's."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)  # type: ignore[arg-type]
        yield


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a figure as a file of this suffix (PNG: 160 dots per inch), the same for equal figures."""
    buffer = BytesIO()
    with figure_style():
        _use_plain_log_ticks(figure)
        dpi = _DPI if suffix == ".png" else "figure"
        figure.savefig(buffer, format=suffix.removeprefix("."), metadata=_METADATA[suffix], dpi=dpi)
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """Return a figure as SVG with its text as text, the same for equal figures."""
    return figure_bytes(figure, ".svg").decode()


def save_figure(figure: Figure, folder: str | Path, name: str, *, drawn: str | None = None) -> list[Path]:
    """Write a figure as PNG and SVG, each atomically, and return the two paths. Equal figures give equal files.

    `drawn` is its SVG, if there is one already.
    """
    paths = []
    for suffix, content in ((".png", figure_bytes(figure, ".png")), (".svg", (drawn or svg(figure)).encode())):
        path = Path(folder) / f"{name}{suffix}"
        with atomic_write(path, "wb") as file:
            file.write(content)
        paths.append(path)
    return paths


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure atomically, in the format of its suffix. Equal figures give equal files.

    Raises a :class:`UserError` for a suffix that is not in :data:`FIGURE_FILES`.
    """
    suffix = check_suffix(path)
    with atomic_write(path, "wb") as file:
        file.write(figure_bytes(figure, suffix))


def check_suffix(path: str | Path) -> str:
    """Return the suffix of a figure's file, in lower case; refuse one that is not in :data:`FIGURE_FILES`."""
    path = Path(path)
    if path.suffix.lower() not in FIGURE_FILES:
        raise UserError(
            f"figures are written as {', '.join(FIGURE_FILES[:-1])} or {FIGURE_FILES[-1]}, not "
            f"{path.suffix or 'without a suffix'!r}: -o {path.stem or 'figure'}{FIGURE_FILES[0]}"
        )
    return path.suffix.lower()
