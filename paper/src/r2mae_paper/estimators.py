"""App. C: a range of ratios without width, and a tiny ridge in place of the pseudo-inverse, give what they replace."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from r2mae.masking.ratios import Uniform
from r2mae.theory import Covariance, identity
from r2mae.theory.simulate import simulate
from r2mae_paper.bias_variance import MODELS
from r2mae_paper.drawing import COLOURS, Figures, panels, ratio_axis
from r2mae_paper.rows import TableRow, Tables, column, rows_of, select
from r2mae_paper.signals import eigen_signals
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import NOISE, Part, Size, Study, Tally

RIDGE = 1e-6


@dataclass(frozen=True)
class EstimatorsSize(Size):
    """How much is computed.

    Attributes
    ----------
    n, d : int
        Rows and features of wide data; tall data (of the identity alone, as in Fig. 1A) have half as many features
        as rows, and 2n rows.
    ratios : tuple of float
        Mask ratios.
    repetitions : int
        Number of masks, all of one design.
    """

    n: int = 200
    d: int = 1000
    ratios: tuple[float, ...] = tuple(round(0.05 * k, 2) for k in range(1, 20))
    repetitions: int = 50
    digits: ClassVar[int] = 12

    small: ClassVar = {"n": 100, "d": 500, "repetitions": 10}


def _settings(size: EstimatorsSize) -> dict[str, tuple[Callable[[int], Covariance], int, int]]:
    """Return covariance, rows and features by name."""
    wide = {name: (make, size.n, size.d) for name, make in MODELS.items()}
    return {**wide, "identity, tall": (identity, 2 * size.n, size.n)}


def parts(size: EstimatorsSize) -> list[Part]:
    """Return a part for each covariance."""
    steps = 2 * size.repetitions
    return [Part(_file(name), steps, partial(_measure, name, *how, size)) for name, how in _settings(size).items()]


def plot(tables: Tables, size: EstimatorsSize) -> Figures:
    """Draw how far the ridge's risk is from the pseudo-inverse's, in per cent: the median mask, and the worst."""
    figure, (axes,) = panels(1, width=5.2, height=3.4)
    for colour, name in zip(COLOURS, _settings(size), strict=False):
        rows = select(tables["estimators"], model=name)
        for key, style, label in (("ridge_changes_percent", "o-", name), ("ridge_changes_at_most", ":", None)):
            axes.plot(
                column(rows, "ratio"), column(rows, key), style, color=colour, markersize=3, linewidth=1, label=label
            )
    axes.set_yscale("log")  # over ten decades
    ratio_axis(axes)
    axes.set_ylabel("a ridge of 1e-6: change of the risk in %\n(median mask; dotted: worst mask)")
    axes.legend(fontsize=8)
    return {"estimators": figure}


def _file(name: str) -> str:
    return name.lower().replace(", ", "-")


def _measure(
    name: str, make: Callable[[int], Covariance], n: int, d: int, size: EstimatorsSize, jobs: int, tally: Tally
) -> list[TableRow]:
    """Return the risks of three ways to the same estimate, at every ratio."""
    cov = make(d)
    beta = eigen_signals(cov, [0])[:, 0]
    ranges = [Uniform(p, p) for p in size.ratios]
    same = partial(simulate, cov, beta, n, noise=NOISE, repetitions=size.repetitions, jobs=jobs)
    inverse = same(ratios=[*size.ratios, *ranges], progress=tally.every())
    ridge = same(ratios=size.ratios, ridge=RIDGE, progress=tally.every())
    count = len(size.ratios)
    change = 100 * np.abs(ridge.risks / inverse.risks[:, :count] - 1)
    return rows_of(
        model=name,
        n=n,
        d=d,
        ratio=size.ratios,
        pseudo_inverse=inverse.risk[:count],
        range_minus_ratio=np.abs(inverse.risks[:, count:] - inverse.risks[:, :count]).max(axis=0),
        ridge_changes_percent=np.median(change, axis=0),
        ridge_changes_at_most=change.max(axis=0),
    )


STUDIES = (Study(ENTRIES["estimators"], EstimatorsSize, plot, parts=parts),)
