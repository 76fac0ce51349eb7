"""Sec. 3.5: bias and variance of the masked regression, with more features than rows, and with fewer; App. C.

Bias and variance are those of Lemma 1, given the masked data: the mean of exact values over drawn designs, and the
general formula. A higher ratio also keeps more rows. So the table also has the formula's bias and variance of
as many whole rows. Wide data have five times as many features as rows (the paper's γ = 5). Tall data have so many rows
that more of them are kept than there are features, ñ = np > d, at every ratio that is drawn.

App. C: a range of ratios without width, and a tiny ridge in place of the pseudo-inverse, give what they replace.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from r2mae.masking.ratios import Uniform
from r2mae.report.style import BLUE, VERMILION
from r2mae.theory import Covariance, conditional_risk, identity, risk, spiked, uniform_direction
from r2mae.theory.simulate import simulate
from r2mae_paper.drawing import BLACK, COLOURS, Axes, Figures, null_line, panels, predicted, ratio_axis, simulated
from r2mae_paper.fig1e import MODELS as SPECTRA
from r2mae_paper.rows import TableRow, Tables, column, rows_of, select
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study, compared, eigen_signals

_DELTA = 10.0


MODELS: dict[str, Callable[[int], Covariance]] = {
    "identity": identity,
    "spiked": lambda d: spiked(_DELTA, uniform_direction(d)),
    **SPECTRA,
}
"""Covariances of Figs. 1A, 1B and 1E; the signal is the first eigenvector, and any direction for the identity."""

WIDE, TALL = "d > n", "d < n"


def parts(size: Size) -> Parts:
    """Return a part for each covariance and side."""
    return {
        f"{name.lower()}-{key}": partial(_measure, name, side, *shape, size)
        for name in MODELS
        for key, side, shape in (("wide", WIDE, size.wide), ("tall", TALL, size.tall))
    }


def plot(tables: Tables, size: Size) -> Figures:
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


def _measure(name: str, side: str, n: int, d: int, size: Size, jobs: int) -> list[TableRow]:
    """Return bias and variance over the null risk, of masked rows and of as many whole ones."""
    cov = MODELS[name](d)
    beta = eigen_signals(cov, [0])[:, 0]
    with compared():
        formula = risk(cov, beta, n, size.ratios, NOISE)
        whole = [risk(cov, beta, n, 0.0, NOISE, keep=p) for p in size.ratios]
    null = float(formula.null)
    designs = [[_design(cov, n, p, number) for number in range(size.draws)] for p in size.ratios]
    drawn = [[conditional_risk(cov, beta, *one, NOISE) for one in of_ratio] for of_ratio in designs]
    found = np.array([[(one.bias, one.variance) for one in of_ratio] for of_ratio in drawn])
    bias, variance = found.mean(axis=1).T / null
    bias_error, variance_error = found.std(axis=1, ddof=1).T / np.sqrt(size.draws) / null
    return rows_of(
        side=side,
        model=name,
        n=n,
        d=d,
        ratio=size.ratios,
        draws=size.draws,
        bias=bias,
        bias_error=bias_error,
        variance=variance,
        variance_error=variance_error,
        bias_formula=formula.bias / null,
        variance_formula=formula.variance / null,
        bias_whole=[float(one.bias) / null for one in whole],
        variance_whole=[float(one.variance) / null for one in whole],
    )


def _design(
    cov: Covariance, n: int, p: float, number: int
) -> tuple[Float[np.ndarray, "rows d"], Bool[np.ndarray, "rows d"]]:
    """Draw a masked design: rows are kept with probability p, and their entries with probability 1 − p."""
    rng = np.random.default_rng([number, round(1000 * p), n])
    x = cov.sample(n, rng)[rng.random(n) < p]
    kept = rng.random(x.shape) >= p
    return x * kept, kept


def _curves(axes: Axes, rows: list[TableRow]) -> None:
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


RIDGE = 1e-6


def _settings(size: Size) -> dict[str, tuple[Callable[[int], Covariance], int, int]]:
    """Return covariance, rows and features by name."""
    wide = {name: (make, size.n, size.d) for name, make in MODELS.items()}
    return {**wide, "identity, tall": (identity, 2 * size.n, size.n)}


def parts_of_estimators(size: Size) -> Parts:
    """Return a part for each covariance."""
    return {
        name.lower().replace(", ", "-"): partial(_estimate, name, *how, size) for name, how in _settings(size).items()
    }


def plot_estimators(tables: Tables, size: Size) -> Figures:
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


def _estimate(name: str, make: Callable[[int], Covariance], n: int, d: int, size: Size, jobs: int) -> list[TableRow]:
    """Return the risks of three ways to the same estimate, at every ratio."""
    cov = make(d)
    beta = eigen_signals(cov, [0])[:, 0]
    ranges = [Uniform(p, p) for p in size.ratios]
    same = partial(simulate, cov, beta, n, noise=NOISE, repetitions=size.repetitions, jobs=jobs)
    inverse = same(ratios=[*size.ratios, *ranges])
    ridge = same(ratios=size.ratios, ridge=RIDGE)
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


STUDIES = (
    Study(ENTRIES["bias-variance"], plot, parts=parts),
    Study(ENTRIES["estimators"], plot_estimators, parts=parts_of_estimators),
)
