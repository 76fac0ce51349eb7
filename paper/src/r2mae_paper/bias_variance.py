"""Sec. 3.5: bias and variance of the masked regression, with more features than rows, and with fewer.

Bias and variance are those of Lemma 1, given the masked data: the mean of exact values over drawn designs, and the
general formula. A higher ratio also keeps more rows. So the table also has the formula's bias and variance of
as many whole rows. Wide data have five times as many features as rows (the paper's γ = 5). Tall data have so many rows
that more of them are kept than there are features, ñ = np > d, at every ratio that is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from r2mae.report.style import BLUE, VERMILION
from r2mae.theory import Covariance, conditional_risk, identity, risk, spiked, uniform_direction
from r2mae_paper.drawing import BLACK, Figures, null_line, panels, predicted, ratio_axis, simulated
from r2mae_paper.fig1e import MODELS as SPECTRA
from r2mae_paper.rows import TableRow, Tables, column, select
from r2mae_paper.signals import eigen_signals
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import NOISE, Part, Size, Study, Tally, compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DELTA = 10.0


MODELS: dict[str, Callable[[int], Covariance]] = {
    "identity": identity,
    "spiked": lambda d: spiked(_DELTA, uniform_direction(d)),
    **SPECTRA,
}
"""Covariances of Figs. 1A, 1B and 1E; the signal is the first eigenvector, and any direction for the identity."""

WIDE, TALL = "d > n", "d < n"


@dataclass(frozen=True)
class BiasSize(Size):
    """How much is computed.

    Attributes
    ----------
    wide, tall : pair of int
        Rows n and features d.
    ratios : tuple of float
        At which designs are drawn; at the lowest one tall data must keep more rows than there are features.
    draws : int
        Designs for each covariance and ratio.
    """

    wide: tuple[int, int] = (200, 1000)
    tall: tuple[int, int] = (2000, 100)
    ratios: tuple[float, ...] = tuple(round(0.1 * k, 1) for k in range(1, 10))
    draws: int = 5

    small: ClassVar = {"wide": (100, 500), "tall": (1000, 50), "draws": 3}


def parts(size: BiasSize) -> list[Part]:
    """Return a part for each covariance and side."""
    return [
        Part(f"{name.lower()}-{key}", len(size.ratios) * size.draws, partial(_measure, name, side, *shape, size))
        for name in MODELS
        for key, side, shape in (("wide", WIDE, size.wide), ("tall", TALL, size.tall))
    ]


def plot(tables: Tables, size: BiasSize) -> Figures:
    """Draw a column for each covariance: wide data above, tall data below."""
    figure, axes = panels(len(MODELS), 2, width=2.7, height=2.7)
    for place, (side, name) in enumerate((side, name) for side in (WIDE, TALL) for name in MODELS):
        rows = select(tables["bias-variance"], side=side, model=name)
        _curves(axes[place], rows)
        axes[place].set_title(f"{name}, d = {rows[0]['d']}, n = {rows[0]['n']}", fontsize=9)
    for row in (0, len(MODELS)):
        axes[row].set_ylabel("over the null risk")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9)
    return {"bias-variance": figure}


def _measure(name: str, side: str, n: int, d: int, size: BiasSize, jobs: int, tally: Tally) -> list[TableRow]:
    """Return bias and variance over the null risk, of masked rows and of as many whole ones."""
    cov = MODELS[name](d)
    beta = eigen_signals(cov, [0])[:, 0]
    with compared():
        formula = risk(cov, beta, n, size.ratios, NOISE)
        whole = [risk(cov, beta, n, 0.0, NOISE, keep=p) for p in size.ratios]
    null = float(formula.null)
    rows: list[TableRow] = []
    for place, p in enumerate(size.ratios):
        found = []
        for number in range(size.draws):
            drawn = conditional_risk(cov, beta, *_design(cov, n, p, number), NOISE)
            found.append((drawn.bias, drawn.variance))
            tally.step()
        mean = np.mean(found, axis=0) / null
        error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found)) / null
        row: TableRow = {"side": side, "model": name, "n": n, "d": d, "ratio": p, "draws": size.draws}
        row |= {"bias": mean[0], "bias_error": error[0], "variance": mean[1], "variance_error": error[1]}
        row["bias_formula"] = float(formula.bias[place]) / null
        row["variance_formula"] = float(formula.variance[place]) / null
        row["bias_whole"] = float(whole[place].bias) / null
        row["variance_whole"] = float(whole[place].variance) / null
        rows.append(row)
    return rows


def _design(
    cov: Covariance, n: int, p: float, number: int
) -> tuple[Float[np.ndarray, "rows d"], Bool[np.ndarray, "rows d"]]:
    """Draw a masked design: rows are kept with probability p, and their entries with probability 1 − p."""
    rng = np.random.default_rng([number, round(1000 * p), n])
    x = cov.sample(n, rng)[rng.random(n) < p]
    kept = rng.random(x.shape) >= p
    return x * kept, kept


def _curves(axes: "Axes", rows: list[TableRow]) -> None:
    x = column(rows, "ratio")
    for part, colour in (("bias", BLUE), ("variance", VERMILION)):
        simulated(axes, x, column(rows, part), column(rows, f"{part}_error"), colour, f"{part}, drawn designs")
        predicted(axes, x, column(rows, f"{part}_formula"), colour, None)
    total = column(rows, "bias_formula") + column(rows, "variance_formula")
    predicted(axes, x, total, BLACK, "risk, formula", "--")
    predicted(axes, x, column(rows, "bias_whole"), BLUE, "bias of as many whole rows, formula", ":")
    null_line(axes)
    ratio_axis(axes)
    if rows[0]["side"] == WIDE:
        axes.set_ylim(0, 2)


STUDIES = (Study(ENTRIES["bias-variance"], BiasSize, plot, parts=parts),)
