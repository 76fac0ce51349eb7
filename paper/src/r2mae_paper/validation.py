"""The general formula against simulation: a grid over covariance models, and its error as d grows; Sec. 3.5; App. C.

Sec. 3.5: bias and variance of the masked regression, with more features than rows, and with fewer. They are those of
Lemma 1, given the masked data: the mean of exact values over drawn designs, and the general formula. A higher ratio
also keeps more rows. So the table also has the formula's bias and variance of as many whole rows. Wide data have five
times as many features as rows (the paper's γ = 5). Tall data have so many rows that more of them are kept than there
are features, ñ = np > d, at every ratio that is drawn.

App. C: a range of ratios without width, and a tiny ridge in place of the pseudo-inverse, give what they replace.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from r2mae.compare.style import BLUE, VERMILION
from r2mae.masking.ratios import Uniform
from r2mae.theory import (
    Covariance,
    RatioLike,
    beta_spectrum,
    conditional_risk,
    identity,
    latent,
    plateau,
    risk,
    spiked,
    uniform_direction,
    uniform_spectrum,
)
from r2mae.theory.simulate import Simulation, simulate
from r2mae_paper import drawing as draw
from r2mae_paper.rows import TableRow, Tables, column, joined, rows_of, select, unique
from r2mae_paper.simulated import MODELS as SPECTRA
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study, compared, eigen_signals, random_signals

Ratio = float | RatioLike

_THIN = 50  # latent dimensions of the models with few of them; d/4 if that is smaller


MODELS_OF_GRID: dict[str, Callable[[int, int], Covariance]] = {
    "identity": lambda d, seed: identity(d),
    "spiked, δ = 10": lambda d, seed: spiked(10.0, uniform_direction(d, seed)),
    "uniform": uniform_spectrum,
    "Beta": beta_spectrum,
    "latent, q = d/2": latent,
    "latent, q = 50": lambda d, seed: latent(d, seed, q=min(_THIN, d // 4)),
    "plateau, WWᵀ = 100": lambda d, seed: plateau(d, min(_THIN, d // 4), seed, of="WW")[0],
}
WIDE_RATIOS: dict[str, Ratio] = {
    "0.2": 0.2,
    "0.5": 0.5,
    "0.8": 0.8,
    "U(0.4, 0.6)": Uniform(0.4, 0.6),
    "U(0.1, 0.9)": Uniform(0.1, 0.9),
}
TALL_RATIOS: dict[str, Ratio] = {"0.5": 0.5, "0.7": 0.7, "0.9": 0.9, "U(0.4, 0.8)": Uniform(0.4, 0.8)}

# Model, rows per feature, ratio.
GROWTH: dict[str, tuple[str, float, Ratio]] = {
    "identity, ñ = 0.4 d": ("identity", 0.8, 0.5),
    "Beta, ñ = 0.4 d": ("Beta", 0.8, 0.5),
    "Beta, U(0.2, 0.8), ñ = 0.4 d": ("Beta", 0.8, Uniform(0.2, 0.8)),
    "Beta, ñ = 1.5 d": ("Beta", 3.0, 0.5),
    "Beta, U(0.4, 0.8), ñ = 1.8 d": ("Beta", 3.0, Uniform(0.4, 0.8)),
}


def parts_of_validation(size: Size) -> Parts:
    """Return a part for each model of the grid, and one for each case of the study of the error."""
    cells = {f"grid-{number}": partial(grid, size, name) for number, name in enumerate(MODELS_OF_GRID)}
    return {**cells, **{f"growth-{number}": partial(growth, size, name) for number, name in enumerate(GROWTH)}}


def table_of_validation(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the grid, the errors as d grows, and the slopes of their fits."""
    cells, errors = (
        joined({name: rows for name, rows in results.items() if name.startswith(kind)}) for kind in ("grid", "growth")
    )
    slopes = [fit(name, select(errors, case=name)) for name in GROWTH]
    return {"validation": cells, "validation-growth": errors, "validation-slopes": slopes}


def grid(size: Size, model: str, jobs: int) -> list[TableRow]:
    """Compare formula and simulation for a model at every ratio and signal."""
    rows: list[TableRow] = []
    cov = MODELS_OF_GRID[model](size.d, 0)
    signals = _signals(model, cov)
    beta = np.stack(list(signals.values()), axis=1)
    for n, ratios in ((size.wide, WIDE_RATIOS), (size.tall, TALL_RATIOS)):
        formula, measured = _both(cov, beta, n, list(ratios.values()), size.repetitions, jobs)
        for (i, ratio), (j, signal) in product(enumerate(ratios), enumerate(signals)):
            mean, error, expected = (float(a[i, j]) for a in (measured.risk, measured.error, formula))
            row: TableRow = {"model": model, "n": n, "d": size.d, "ratio": ratio, "signal": signal}
            row |= {"null": float(measured.null[j]), "simulated": mean, "error": error, "formula": expected}
            row |= {"relative": mean / expected - 1, "standard_errors": (mean - expected) / error}
            rows.append({**row, "agrees": int(abs(mean - expected) <= max(3 * error, 0.01 * mean))})
    return rows


def growth(size: Size, case: str, jobs: int) -> list[TableRow]:
    """Measure the formula's relative error, for the mean over random signals, as d grows."""
    rows: list[TableRow] = []
    model, per_feature, ratio = GROWTH[case]
    for d in size.growth:
        n, beta = round(per_feature * d), random_signals(d, size.signals)
        formula, measured = _both(MODELS_OF_GRID[model](d, 0), beta, n, [ratio], max(2, size.work // d), jobs)
        each = measured.risks[:, 0].mean(axis=1)
        mean, expected = float(each.mean()), float(formula.mean())
        row: TableRow = {"case": case, "d": d, "n": n, "repetitions": len(each), "simulated": mean}
        row |= {"formula": expected, "relative": mean / expected - 1}
        rows.append({**row, "relative_error": float(each.std(ddof=1) / math.sqrt(len(each))) / expected})
    return rows


def _both(
    cov: Covariance, beta: Float[np.ndarray, "d m"], n: int, ratios: list[Ratio], repetitions: int, jobs: int
) -> tuple[Float[np.ndarray, "p m"], Simulation]:
    """Return the risks by the formula, and those of repetitions with fresh designs."""
    with compared():
        formula = risk(cov, beta, n, ratios, NOISE).risk
    measured = simulate(cov, beta, n, ratios, noise=NOISE, repetitions=repetitions, design="fresh", jobs=jobs)
    return formula, measured


def fit(name: str, rows: list[TableRow]) -> TableRow:
    """Fit log |relative error| = a + slope·log d by weighted least squares.

    Sizes whose error is below two standard errors are left out. If fewer than two sizes remain, no slope is returned.
    """
    d, value, error = (column(rows, key) for key in ("d", "relative", "relative_error"))
    known = np.abs(value) > 2 * error
    if known.sum() < 2:
        return {"case": name, "sizes": int(known.sum())}
    weight = np.abs(value[known]) / error[known]  # inverse of the standard error of log |value|
    (slope, intercept), covariance = np.polyfit(
        np.log(d[known]), np.log(np.abs(value[known])), 1, w=weight, cov="unscaled"
    )
    found = {"slope": float(slope), "slope_error": float(np.sqrt(covariance[0, 0])), "intercept": float(intercept)}
    return {"case": name, "sizes": int(known.sum()), **found}


def _signals(name: str, cov: Covariance) -> dict[str, Float[np.ndarray, " d"]]:
    signals = {"random": random_signals(cov.d, 1)[:, 0]}
    if name != "identity":  # in the identity model all directions are equivalent
        pair = eigen_signals(cov, [0, cov.at_quantile(0.1)])
        signals |= {"top": pair[:, 0], "10 %": pair[:, 1]}
    if name.startswith("plateau"):
        signals["its own"] = plateau(cov.d, min(_THIN, cov.d // 4), 0, of="WW")[1]
    return signals


def plot_validation(tables: Tables, size: Size) -> draw.Figures:
    """Draw the cells' differences in standard errors, and the error against d."""
    figure, (left, right) = draw.panels(2, width=4.6, height=4.2)
    _plot_grid(left, tables["validation"])
    _plot_growth(right, tables["validation-growth"], tables["validation-slopes"])
    return {"validation": figure}


def _plot_grid(axes: draw.Axes, cells: list[TableRow]) -> None:
    for marker, (colour, n, chosen) in zip("oD", draw.coloured(cells, "n"), strict=True):
        places = []
        for number, name in enumerate(MODELS_OF_GRID):
            same = len(select(chosen, model=name))
            places += [*number + (0.2 if marker == "D" else -0.2) + np.linspace(-0.14, 0.14, same)]
        label = f"n = {n} ({'ñ < d' if n < chosen[0]['d'] else 'ñ > d'})"
        look = {"color": colour, "markersize": 3, "alpha": 0.8, "label": label}
        axes.plot(column(chosen, "standard_errors"), places, marker, **look)
    axes.axvline(0, color=draw.GREY, linewidth=0.8)
    for edge in (-3, 3):
        axes.axvline(edge, color=draw.GREY, linewidth=1, linestyle=(0, (4, 3)))
    draw.name_rows(axes, list(MODELS_OF_GRID))
    axes.set_xlabel("(simulation − formula) / standard error")  # noqa: RUF001
    share = sum(row["agrees"] for row in cells) / len(cells)
    axes.set_title(f"d = {cells[0]['d']}: {share:.1%} of {len(cells)} cells agree")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _plot_growth(axes: draw.Axes, errors: list[TableRow], slopes: list[TableRow]) -> None:
    for (colour, case, rows), slope in zip(draw.coloured(errors, "case"), slopes, strict=True):
        d, value, error = (column(rows, key) for key in ("d", "relative", "relative_error"))
        fitted = f": slope {slope['slope']:.2f} ± {slope['slope_error']:.2f}" if "slope" in slope else ""
        ends = [np.minimum(error, 0.9 * np.abs(value)), error]
        look = {"color": colour, "markersize": 4, "linewidth": 1, "label": f"{case}{fitted}"}
        axes.errorbar(d, np.abs(value), ends, fmt="o-", **look)
    reach = np.array([min(column(errors, "d")), max(column(errors, "d"))])
    axes.plot(reach, 3 / reach, color=draw.BLACK, linewidth=1, linestyle=(0, (4, 3)), label="3/d")
    draw.plain_log(axes)
    draw.plain_log(axes, "x")
    axes.set_xticks(unique(errors, "d"))
    axes.set(xlabel="features d", ylabel="|relative error of the formula|", title="Finite sizes")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


_DELTA = 10.0


MODELS: dict[str, Callable[[int], Covariance]] = {
    "identity": identity,
    "spiked": lambda d: spiked(_DELTA, uniform_direction(d)),
    **SPECTRA,
}
"""Covariances of Figs. 1A, 1B and 1E; the signal is the first eigenvector, and any direction for the identity."""

WIDE, TALL = "d > n", "d < n"


def parts_of_bias(size: Size) -> Parts:
    """Return a part for each covariance and side."""
    return {
        f"{name.lower()}-{key}": partial(_measure, name, side, shape[0], shape[1], size)
        for name in MODELS
        for key, side, shape in (("wide", WIDE, size.wide), ("tall", TALL, size.tall))
    }


def plot_bias(tables: Tables, size: Size) -> draw.Figures:
    """Draw a column for each covariance: wide data above, tall data below."""
    figure, axes = draw.panels(len(MODELS), 2, width=2.7, height=2.7)
    for panel, (side, name) in zip(axes, product((WIDE, TALL), MODELS), strict=True):
        rows = select(tables["bias-variance"], side=side, model=name)
        _curves(panel, rows)
        panel.set_title(f"{name}, d = {rows[0]['d']}, n = {rows[0]['n']}", fontsize=9)
    for row in (0, len(MODELS)):
        axes[row].set_ylabel("over the null risk")
    draw.legend_below(figure, axes[0], 5)
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


def _curves(axes: draw.Axes, rows: list[TableRow]) -> None:
    x = column(rows, "ratio")
    for part, colour in (("bias", BLUE), ("variance", VERMILION)):
        draw.simulated(axes, x, column(rows, part), column(rows, f"{part}_error"), colour, f"{part}, drawn designs")
        draw.predicted(axes, x, column(rows, f"{part}_formula"), colour, None)
    total = column(rows, "bias_formula") + column(rows, "variance_formula")
    draw.predicted(axes, x, total, draw.BLACK, "risk, formula", "--")
    draw.predicted(axes, x, column(rows, "bias_whole"), BLUE, "bias of as many whole rows, formula", ":")
    draw.null_line(axes)
    draw.ratio_axis(axes)
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


def plot_estimators(tables: Tables, size: Size) -> draw.Figures:
    """Draw how far the ridge's risk is from the pseudo-inverse's, in per cent: the median mask, and the worst."""
    figure, (axes,) = draw.panels(1, width=5.2, height=3.4)
    for colour, name, rows in draw.coloured(tables["estimators"], "model"):
        for key, style, label in (("ridge_changes_percent", "o-", name), ("ridge_changes_at_most", ":", None)):
            axes.plot(
                column(rows, "ratio"), column(rows, key), style, color=colour, markersize=3, linewidth=1, label=label
            )
    axes.set_yscale("log")  # over ten decades
    draw.ratio_axis(axes, "a ridge of 1e-6: change of the risk in %\n(median mask; dotted: worst mask)")
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
    Study(ENTRIES["validation"], plot_validation, table_of_validation, parts_of_validation),
    Study(ENTRIES["bias-variance"], plot_bias, parts=parts_of_bias),
    Study(ENTRIES["estimators"], plot_estimators, parts=parts_of_estimators),
)
