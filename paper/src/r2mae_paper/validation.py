"""The general formula against simulation: a grid over covariance models, and its error as d grows."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

import numpy as np
from jaxtyping import Float

from r2mae.masking import Uniform
from r2mae.theory import (
    Covariance,
    RatioLike,
    beta_spectrum,
    identity,
    latent,
    plateau,
    risk,
    spiked,
    uniform_direction,
    uniform_spectrum,
)
from r2mae.theory.simulate import Simulation, simulate
from r2mae_paper.drawing import BLACK, COLOURS, GREY, Axes, Figures, panels, plain_log
from r2mae_paper.rows import TableRow, Tables, column, joined, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study, compared, eigen_signals, random_signals

Ratio = float | RatioLike

_THIN = 50  # latent dimensions of the models with few of them; d/4 if that is smaller


MODELS: dict[str, Callable[[int, int], Covariance]] = {
    "identity": lambda d, seed: identity(d),
    "spiked, δ = 10": lambda d, seed: spiked(10.0, uniform_direction(d, seed)),
    "uniform": uniform_spectrum,
    "Beta": beta_spectrum,
    "latent, q = d/2": latent,
    "latent, q = 50": lambda d, seed: latent(d, seed, q=min(_THIN, d // 4)),
    "plateau, WWᵀ = 100": lambda d, seed: plateau(d, min(_THIN, d // 4), seed, of="WW")[0],
}
WIDE: dict[str, Ratio] = {
    "0.2": 0.2,
    "0.5": 0.5,
    "0.8": 0.8,
    "U(0.4, 0.6)": Uniform(0.4, 0.6),
    "U(0.1, 0.9)": Uniform(0.1, 0.9),
}
TALL: dict[str, Ratio] = {"0.5": 0.5, "0.7": 0.7, "0.9": 0.9, "U(0.4, 0.8)": Uniform(0.4, 0.8)}

# Model, rows per feature, ratio.
GROWTH: dict[str, tuple[str, float, Ratio]] = {
    "identity, ñ = 0.4 d": ("identity", 0.8, 0.5),
    "Beta, ñ = 0.4 d": ("Beta", 0.8, 0.5),
    "Beta, U(0.2, 0.8), ñ = 0.4 d": ("Beta", 0.8, Uniform(0.2, 0.8)),
    "Beta, ñ = 1.5 d": ("Beta", 3.0, 0.5),
    "Beta, U(0.4, 0.8), ñ = 1.8 d": ("Beta", 3.0, Uniform(0.4, 0.8)),
}


def parts(size: Size) -> Parts:
    """Return a part for each model of the grid, and one for each case of the study of the error."""
    cells = {f"grid-{number}": partial(grid, size, name) for number, name in enumerate(MODELS)}
    return {**cells, **{f"growth-{number}": partial(growth, size, name) for number, name in enumerate(GROWTH)}}


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the grid, the errors as d grows, and the slopes of their fits."""
    cells, errors = (
        joined({name: rows for name, rows in results.items() if name.startswith(kind)}) for kind in ("grid", "growth")
    )
    slopes = [fit(name, select(errors, case=name)) for name in GROWTH]
    return {"validation": cells, "validation-growth": errors, "validation-slopes": slopes}


def grid(size: Size, model: str, jobs: int) -> list[TableRow]:
    """Compare formula and simulation for a model at every ratio and signal."""
    rows: list[TableRow] = []
    cov = MODELS[model](size.d, 0)
    signals = _signals(model, cov)
    beta = np.stack(list(signals.values()), axis=1)
    for n, ratios in ((size.wide, WIDE), (size.tall, TALL)):
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
        formula, measured = _both(MODELS[model](d, 0), beta, n, [ratio], max(2, size.work // d), jobs)
        each = measured.risks[:, 0].mean(axis=1)
        mean, expected = float(each.mean()), float(formula.mean())
        row: TableRow = {"case": case, "d": d, "n": n, "repetitions": len(each), "simulated": mean}
        row |= {"formula": expected, "relative": mean / expected - 1}
        rows.append({**row, "relative_error": float(each.std(ddof=1) / math.sqrt(len(each))) / expected})
    return rows


def _both(
    cov: Covariance,
    beta: Float[np.ndarray, "d m"],
    n: int,
    ratios: list[Ratio],
    repetitions: int,
    jobs: int,
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
    design = np.stack([np.ones(known.sum()), np.log(d[known])], axis=1)
    covariance = np.linalg.inv((design * weight[:, None] ** 2).T @ design)
    slope = covariance @ (design * weight[:, None] ** 2).T @ np.log(np.abs(value[known]))
    return {
        "case": name,
        "sizes": int(known.sum()),
        "slope": float(slope[1]),
        "slope_error": float(np.sqrt(covariance[1, 1])),
        "intercept": float(slope[0]),
    }


def _signals(name: str, cov: Covariance) -> dict[str, Float[np.ndarray, " d"]]:
    signals = {"random": random_signals(cov.d, 1)[:, 0]}
    if name != "identity":  # in the identity model all directions are equivalent
        pair = eigen_signals(cov, [0, cov.at_quantile(0.1)])
        signals |= {"top": pair[:, 0], "10 %": pair[:, 1]}
    if name.startswith("plateau"):
        signals["its own"] = plateau(cov.d, min(_THIN, cov.d // 4), 0, of="WW")[1]
    return signals


def plot(tables: Tables, size: Size) -> Figures:
    """Draw the cells' differences in standard errors, and the error against d."""
    figure, (left, right) = panels(2, width=4.6, height=4.2)
    _plot_grid(left, tables["validation"])
    _plot_growth(right, tables["validation-growth"], tables["validation-slopes"])
    return {"validation": figure}


def _plot_grid(axes: Axes, cells: list[TableRow]) -> None:
    names = list(MODELS)
    for side, (n, marker) in enumerate(zip((cells[0]["n"], cells[-1]["n"]), "oD", strict=True)):
        chosen = select(cells, n=n)
        within = [_place(names, row, chosen) + 0.2 * (2 * side - 1) for row in chosen]
        label = f"n = {n} ({'ñ < d' if n < chosen[0]['d'] else 'ñ > d'})"
        axes.plot(
            column(chosen, "standard_errors"), within, marker, color=COLOURS[side], markersize=3, alpha=0.8, label=label
        )
    axes.axvline(0, color=GREY, linewidth=0.8)
    for edge in (-3, 3):
        axes.axvline(edge, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("(simulation − formula) / standard error")  # noqa: RUF001
    share = sum(row["agrees"] for row in cells) / len(cells)
    axes.set_title(f"d = {cells[0]['d']}: {share:.1%} of {len(cells)} cells agree")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _plot_growth(axes: Axes, errors: list[TableRow], slopes: list[TableRow]) -> None:
    for colour, slope in zip(COLOURS, slopes, strict=False):
        rows = select(errors, case=slope["case"])
        d, value, error = (column(rows, key) for key in ("d", "relative", "relative_error"))
        fitted = f": slope {slope['slope']:.2f} ± {slope['slope_error']:.2f}" if "slope" in slope else ""
        low = np.minimum(error, 0.9 * np.abs(value))
        axes.errorbar(
            d, np.abs(value), [low, error], fmt="o-", color=colour, markersize=4, linewidth=1,
            label=f"{slope['case']}{fitted}",
        )  # fmt: skip
    reach = np.array([min(column(errors, "d")), max(column(errors, "d"))])
    axes.plot(reach, 3 / reach, color=BLACK, linewidth=1, linestyle=(0, (4, 3)), label="3/d")
    plain_log(axes)
    plain_log(axes, "x")
    axes.set_xticks(unique(errors, "d"))
    axes.set_xlabel("features d")
    axes.set_ylabel("|relative error of the formula|")
    axes.set_title("Finite sizes")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _place(names: list[str], row: TableRow, chosen: list[TableRow]) -> float:
    """Return the height at which a row is drawn: that of its model, shifted so that cells do not overlap."""
    same = select(chosen, model=row["model"])
    return names.index(row["model"]) + 0.28 * (same.index(row) / max(1, len(same) - 1) - 0.5)


STUDIES = (Study(ENTRIES["validation"], plot, table, parts),)
