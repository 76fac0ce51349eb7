"""Tables 5 and 9 as the paper's text describes them, with enough masks to distinguish the difference from noise.

For each seed and model the design is drawn once. R²MAE draws a ratio for each row from its range and keeps the row
with that probability; a fixed ratio keeps each row with the fixed probability. All use the same uniform numbers for a
mask, so that differences are paired.

Why do Tables 5 and 9 find R²MAE better? Several readings of their text, measured and by the general formula. A reading
is either a rule for which rows are kept, and with which ratio, or a covariance and an eigenvector. The rule decides the
sign of the difference, the covariance and eigenvector its level. Only one rule gives the published differences: the
uniform number from which a row's ratio is drawn also decides whether the row is kept.

When is a range of ratios better than a fixed ratio? Answered by the formula over many random settings. A setting is a
spectrum, a number of rows, a noise variance and a range; its targets are five eigen-directions. Four choices are
compared: the range (each row draws its own ratio), the middle of the range as a fixed ratio, a fixed ratio picked at
random from the range, and the best of all fixed ratios.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from r2mae.compare.style import BLUE, VERMILION
from r2mae.masking.ratios import Uniform
from r2mae.theory import Covariance, Rotated, beta_spectrum, direction_risk, latent, risk, simulate
from r2mae.theory.rows import Keep
from r2mae_paper.drawing import BLACK, GREY, Figures, panels
from r2mae_paper.published import Model, Table, published
from r2mae_paper.rows import TableRow, Tables, column, joined, select
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study

_PAPER_MASKS = 50


def covariance(model: Model, d: int, seed: int) -> Covariance:
    """Return the table's covariance, drawn again for each seed."""
    return beta_spectrum(d, seed) if model == "beta" else latent(d, seed)


def measure(table: Table, model: Model, seed: int, size: Size, *, jobs: int = 1) -> dict[str, float]:
    """Measure one seed and model of a table; risks are over the null risk βᵀΣβ.

    Returns
    -------
    dict
        `best_ratio_50`, `best_50`, `middle_50`, `r2mae_50`: with 50 masks, as in the paper. `best_ratio`, `best`,
        `middle`, `r2mae`, `r2mae_error`: with all masks; the error is a standard error over masks, for the one design.
        `gain`, `gain_error`: R²MAE minus the middle of its range (negative: R²MAE is better), paired. `over_best`,
        `over_best_error`: R²MAE minus the best fixed ratio, which is chosen on one half of the masks and measured on
        the other. `formula_best_ratio`, `formula_best`, `formula_middle`, `formula_r2mae`: by the general formula, for
        the mean over designs; the best ratio is found in steps of 0.05.
    """
    cov = covariance(model, size.d, seed)
    beta = cov.eigenvectors(np.array([cov.at_quantile(table.quantile)]))[:, 0]
    drawn = Uniform(table.low, table.high)
    grid = np.round(np.arange(0.0, 0.995, size.step), 10)
    grid = grid[(grid == 0) | (grid * size.n >= 1)]
    over_grid = simulate(cov, beta, size.n, [*grid, drawn], noise=NOISE, repetitions=size.masks, seed=seed, jobs=jobs)
    pair = simulate(cov, beta, size.n, [table.middle, drawn], noise=NOISE, repetitions=size.pairs, seed=seed, jobs=jobs)
    null = float(over_grid.null)
    risks = over_grid.risks / null
    few, many = risks[:_PAPER_MASKS].mean(axis=0), risks.mean(axis=0)
    chosen = int(np.argmin(risks[::2, :-1].mean(axis=0)))
    against = risks[1::2, -1] - risks[1::2, chosen]
    gain, gain_error = (float(value) / null for value in pair.difference(1, 0))
    coarse = np.round(np.arange(0.05, 0.96, 0.05), 10)
    formula = risk(cov, beta, size.n, [*coarse, table.middle, drawn], NOISE).normalised
    middle = int(np.argmin(np.abs(grid - table.middle)))
    found = {
        "best_ratio_50": grid[few[:-1].argmin()],
        "best_50": few[:-1].min(),
        "middle_50": few[middle],
        "r2mae_50": few[-1],
        "best_ratio": grid[many[:-1].argmin()],
        "best": many[:-1].min(),
        "middle": pair.normalised[0],
        "r2mae": pair.normalised[1],
        "r2mae_error": pair.error[1] / null,
        "gain": gain,
        "gain_error": gain_error,
        "over_best": against.mean(),
        "over_best_error": against.std(ddof=1) / np.sqrt(len(against)),
        "formula_best_ratio": coarse[formula[:-2].argmin()],
        "formula_best": formula[:-2].min(),
        "formula_middle": formula[-2],
        "formula_r2mae": formula[-1],
    }
    return {name: float(value) for name, value in found.items()}


def parts_of_tables(size: Size, *, name: str) -> Parts:
    """Return a part for each model and seed. It computes a row of the table and adds the paper's values."""
    table = published(name)
    return {
        f"{model}-{seed}": partial(_row, table, model, seed, size) for model in table.entries for seed in size.seeds
    }


def _row(table: Table, model: Model, seed: int, size: Size, jobs: int) -> list[TableRow]:
    row: TableRow = {"model": model, "seed": seed, **measure(table, model, seed, size, jobs=jobs)}
    printed = table.entries[model].reindex([seed]).dropna().to_dict("records")
    return [{**row, **{f"paper_{key}": value for one in printed for key, value in one.items()}}]


def plot_table(tables: Tables, size: Size, *, name: str) -> Figures:
    """Draw R²MAE minus the middle ratio: measured, by the formula, and printed."""
    table, rows = published(name), tables[name]
    figure, (axes,) = panels(1, width=6.4, height=3.6)
    positions = np.arange(len(rows))
    errors, formula = 2 * column(rows, "gain_error"), column(rows, "formula_r2mae") - column(rows, "formula_middle")
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.errorbar(
        positions, column(rows, "gain"), errors, fmt="o", color=BLUE, capsize=3, label="measured, ± 2 standard errors"
    )
    axes.plot(positions, formula, "_", color=BLACK, markersize=14, label="formula")
    axes.plot(positions, column(rows, "paper_gain"), "D", color=VERMILION, markersize=5, label="printed in the paper")
    axes.set_xticks(positions, [f"{row['model']}\n{row['seed']}" for row in rows])
    axes.set_ylabel("R²MAE minus the middle ratio\n(normalised risk)")
    axes.set_title(f"Table {name.removeprefix('table')}: U({table.low:g}, {table.high:g}) against {table.middle:g}")
    axes.annotate(
        "R²MAE better ↓", (0.0, 0), (4, -4), textcoords="offset points", va="top",
        xycoords=("axes fraction", "data"), color="#606060",
    )  # fmt: skip
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=3)
    return {name: figure}


Array = Float[np.ndarray, "*n"]


@dataclass(frozen=True)
class KeepRule:
    """Decides which rows are kept, from each row's ratio and two uniform numbers."""

    kept: Callable[[Array, Array, Array], Bool[np.ndarray, "*n"]]


@dataclass(frozen=True)
class OncePerRun(Uniform):
    """One ratio for all rows of a repetition."""

    def quantile(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Give every row the first row's draw."""
        return np.full_like(u, self.low + (self.high - self.low) * u[0])


@dataclass(frozen=True)
class Reading:
    """How R²MAE and the fixed ratio it is compared with choose their rows."""

    name: str
    meaning: str
    """`name`, `meaning`: a short name, and a description."""
    r2mae: Callable[[Table], Keep]
    fixed: Callable[[Table], Keep] = lambda table: "ratio"
    """`r2mae`, `fixed`: return a :data:`~r2mae.theory.rows.Keep` for a table."""
    once: bool = False
    """Whether all rows of a run have the same ratio."""


READINGS = (
    Reading("as written", "each row kept with its own ratio as probability", lambda t: "ratio"),
    Reading(
        "same number twice",
        "the number that gives a row its ratio also decides whether it is kept",
        lambda t: KeepRule(lambda p, r, k: r < p),
    ),
    Reading("middle", "rows kept with the middle ratio, whatever their own", lambda t: t.middle),
    Reading("high end", "rows kept with the range's high end as probability", lambda t: t.high),
    Reading("all rows", "no row removed, in either scheme", lambda t: 1.0, lambda t: 1.0),
    Reading(
        "removed with p",
        "rows removed, not kept, with their ratio as probability, in either scheme",
        lambda t: KeepRule(lambda p, r, k: k >= p),
        lambda t: KeepRule(lambda p, r, k: k >= p),
    ),
    Reading("one ratio a run", "one ratio for all rows of a run, again for each run", lambda t: "ratio", once=True),
)

SPECTRA: dict[str, Callable[[int, int], Covariance]] = {
    "Beta, linear (the text)": beta_spectrum,
    "Beta, logarithmic": lambda d, seed: beta_spectrum(d, seed, spacing="log"),
    "Beta, largest 10, not shifted": lambda d, seed: Rotated(10 * _beta(d, seed) / _beta(d, seed).max(), seed),
    "Beta, linear, X = ZΣ": lambda d, seed: Rotated(beta_spectrum(d, seed).eigenvalues ** 2, seed),
    "latent (the text)": latent,
}
PLACES: dict[str, Callable[[int, Table], int]] = {
    "as captioned": lambda d, table: min(int(table.quantile * d), d - 1),
    "tenth eigenvector": lambda d, table: 9,
    "counted from the smallest": lambda d, table: d - 1 - int(table.quantile * d),
}


_TABLES = ("table5", "table9")


def parts_of_readings(size: Size) -> Parts:
    """Return a part for each table, model and seed (for the sign), and one for the level."""
    signs = {
        f"{name}-{model}-{seed}": partial(_sign, published(name), model, seed, size)
        for name in _TABLES
        for model in published(name).entries
        for seed in size.seeds
    }
    return {**signs, "levels": lambda jobs: {"levels": list(level_rows(size))}}


def _sign(table: Table, model: Model, seed: int, size: Size, jobs: int) -> Tables:
    paper = table.entries[model]["gain"].to_dict().get(seed, "")
    return {"rules": [{**row, "paper": paper} for row in measure_readings(table, model, seed, size, jobs)]}


def measure_readings(table: Table, model: Model, seed: int, size: Size, jobs: int = 1) -> list[TableRow]:
    """Measure R²MAE minus the middle ratio for one design under every reading, paired mask by mask."""
    cov = covariance(model, size.d, seed)
    beta = cov.eigenvectors(np.array([cov.at_quantile(table.quantile)]))[:, 0]
    null = float(cov.quadratic(beta))
    drawn, formulas = {}, {}

    def risks(key: object, ratio: float | Uniform, keep: Keep) -> Float[np.ndarray, " r"]:
        if key not in drawn:
            result = simulate(
                cov, beta, size.n, [ratio], noise=NOISE, repetitions=size.masks, keep=keep, seed=seed, jobs=jobs
            )
            drawn[key] = result.risks[:, 0] / null
            formulas[key] = _formula(cov, beta, size.n, ratio, keep)
        return drawn[key]

    rows = []
    for reading in READINGS:
        kind = OncePerRun if reading.once else Uniform
        keys = (reading.name, f"fixed, {reading.fixed(table)}" if reading.fixed(table) in ("ratio", 1.0) else "removed")
        ours = risks(keys[0], kind(table.low, table.high), reading.r2mae(table))
        other = risks(keys[1], table.middle, reading.fixed(table))
        gap = ours - other
        found = {
            "middle": other.mean(),
            "r2mae": ours.mean(),
            "difference": gap.mean(),
            "error": gap.std(ddof=1) / np.sqrt(len(gap)),
            "formula": formulas[keys[0]] - formulas[keys[1]],
        }
        row: TableRow = {"table": table.name, "model": model, "seed": seed, "reading": reading.name}
        rows.append(row | {name: round(float(value), 5) for name, value in found.items()})
    return rows


def _formula(cov: Covariance, beta: Float[np.ndarray, " d"], n: int, ratio: float | Uniform, keep: Keep) -> float:
    if isinstance(ratio, OncePerRun):
        p, weight = ratio.nodes()
        return float(weight @ risk(cov, beta, n, list(p), NOISE, keep=keep).normalised)
    return float(risk(cov, beta, n, ratio, NOISE, keep=keep).normalised)


def level_rows(size: Size) -> Iterator[TableRow]:
    """Yield the middle ratio's risk by the formula, with its range over seeds, for each covariance and eigenvector."""
    for table in map(published, _TABLES):
        for spectrum, make in SPECTRA.items():
            model: Model = "latent" if spectrum.startswith("latent") else "beta"
            printed = table.entries[model]["middle"].to_numpy()
            covs = [make(size.d, seed) for seed in size.seeds]
            for name, index_of in PLACES.items():
                if name == "tenth eigenvector" and table.quantile == 0:
                    continue
                which = np.array([index_of(size.d, table)])
                curves = [direction_risk(cov, size.n, table.middle, NOISE, which=which) for cov in covs]
                levels = np.array([float(one.normalised[0]) for one in curves])
                yield {
                    "table": table.name,
                    "covariance": spectrum,
                    "eigenvector": name,
                    "over_null": round(float(levels.mean()), 4),
                    "smallest": round(float(levels.min()), 4),
                    "largest": round(float(levels.max()), 4),
                    "over_r2": round(float(np.mean([float(one.by_length[0]) for one in curves])), 4),
                    "paper": round(float(printed.mean()), 4),
                    "paper_smallest": float(printed.min()),
                    "paper_largest": float(printed.max()),
                }


def _beta(d: int, seed: int) -> Float[np.ndarray, " d"]:
    return np.random.default_rng([seed, 0]).beta(2.0, 6.0, d)


def plot_readings(tables: Tables, size: Size) -> Figures:
    """Draw the differences under every rule, a panel for each table and model."""
    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    names = [reading.name for reading in READINGS]
    for axes, (table, model) in zip(panels.flat, product(_TABLES, ("beta", "latent")), strict=True):
        own = select(tables["rules"], table=table, model=model)
        printed = [row["paper"] for row in select(own, reading=names[0]) if row["paper"] != ""]
        if printed:
            axes.axvspan(min(printed), max(printed), color=VERMILION, alpha=0.2, linewidth=0)
            axes.axvline(float(np.mean(printed)), color=VERMILION, linewidth=1.2)
        axes.axvline(0, color=GREY, linewidth=0.8)
        for position, name in enumerate(names):
            some = select(own, reading=name)
            axes.plot(column(some, "difference"), [position] * len(some), "o", color=BLUE, markersize=4)
            axes.plot(np.mean(column(some, "formula")), position, "|", color=BLACK, markersize=13)
        axes.set_yticks(range(len(names)), names)
        axes.set_title(f"Table {table.removeprefix('table')}, {model}")
        axes.grid(axis="x")
    panels[0, 0].invert_yaxis()
    figure.supxlabel("R²MAE minus the middle ratio (normalised risk); left of zero R²MAE is better", fontsize=10)
    figure.suptitle("dots: designs · black bar: formula · orange: printed in the paper (mean and range)", fontsize=10)
    return {"rules": figure}


_GRID = np.round(np.arange(0.02, 0.981, 0.02), 10)
_QUANTILES = (0.0, 0.02, 0.05, 0.1, 0.25)
_BLOCK = 100  # settings in one part of the computation
_WIDTHS = "widths"
_USEFUL = 0.95  # a direction counts as learnable if its lowest normalised risk is below this


@dataclass(frozen=True)
class Setting:
    """A random setting: eigenvalues, rows, noise variance, ridge, and the ends of a range."""

    kind: str
    eigenvalues: Float[np.ndarray, " d"]
    n: int
    noise: float
    ridge: float
    low: float
    high: float


def parts_of_ranges(size: Size) -> Parts:
    """Return parts of a hundred settings each, and one for the costs of widths."""
    blocks = {
        f"settings-{first}": partial(_compare_all, size, first, min(first + _BLOCK, size.settings))
        for first in range(0, size.settings, _BLOCK)
    }
    return {**blocks, _WIDTHS: lambda jobs: width_costs()}


def table_of_ranges(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the counts over all settings, the means over directions, and the costs of widths."""
    rows = joined({name: part for name, part in results.items() if name != _WIDTHS})
    return {"summary": summary(rows), "ranges": select(rows, target="mean"), "width": results[_WIDTHS]}


def _compare_all(size: Size, first: int, last: int, jobs: int) -> list[TableRow]:
    return [row for setting in islice(settings(size), first, last) for row in compare(setting)]


def settings(size: Size) -> Iterator[Setting]:
    """Draw settings: four kinds of spectra, d/n from 0.2 to 4, with and without noise and ridge."""
    rng = np.random.default_rng(0)
    for number in range(size.settings):
        kind = ("log-normal", "power law", "spikes", "Beta")[number % 4]
        values = _spectrum(kind, size.d, rng)
        low = float(rng.uniform(0.02, 0.85))
        yield Setting(
            kind,
            values,
            max(100, round(size.d * float(np.exp(rng.uniform(np.log(0.05), np.log(5)))))),
            float(rng.choice([0.0, 0.01, 0.1])) * float(values.mean()),
            float(rng.choice([0.0, 0.0, 1.0, 30.0])) * float(values.mean()),
            low,
            float(rng.uniform(low + 0.02, 0.98)),
        )


def _spectrum(kind: str, d: int, rng: np.random.Generator) -> Float[np.ndarray, " d"]:
    if kind == "log-normal":
        return np.asarray(np.exp(rng.normal(size=d) * rng.uniform(0.2, 2.0)))
    if kind == "power law":
        return np.asarray(np.arange(1, d + 1) ** -rng.uniform(0.2, 1.5))
    if kind == "spikes":
        values = np.ones(d)
        values[: rng.integers(10, d // 4)] = np.exp(rng.uniform(1, 4))
        return values
    return np.asarray(1 + 9 * rng.beta(2, 6, d))


def compare(setting: Setting) -> list[TableRow]:
    """Return a row for each learnable direction, a row for their mean, and a row for their worst excess."""
    cov = Rotated(setting.eigenvalues)
    d = cov.d
    usable = _GRID[(np.abs(_GRID * setting.n / d - 1) > 0.05) | (setting.ridge > 0)]
    which = np.array([cov.at_quantile(q) for q in _QUANTILES])

    def risks(ratio: Any) -> Float[np.ndarray, "..."]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of rows near d or a dominant direction, which occur here
            return direction_risk(cov, setting.n, ratio, setting.noise, which=which, ridge=setting.ridge).normalised

    fixed = risks(usable)
    learnable = fixed.min(axis=0) < _USEFUL
    inside = (usable >= setting.low - 0.01) & (usable <= setting.high + 0.01)
    middle = (setting.low + setting.high) / 2
    if not learnable.any() or inside.sum() < 2 or (setting.ridge == 0 and abs(middle * setting.n / d - 1) < 0.05):
        return []
    fixed = fixed[:, learnable]
    drawn, centre = risks(Uniform(setting.low, setting.high))[learnable], risks(middle)[learnable]
    best = fixed.min(axis=0)
    common = {
        "kind": setting.kind,
        "rows_per_feature": round(setting.n / d, 4),
        "noise": round(setting.noise / float(setting.eigenvalues.mean()), 4),
        "ridge": round(setting.ridge / float(setting.eigenvalues.mean()), 4),
        "low": round(setting.low, 4),
        "high": round(setting.high, 4),
    }
    rows = []
    targets = [(f"direction {q:g}", [place]) for place, q in enumerate(np.array(_QUANTILES)[learnable])]
    every = list(range(len(targets)))
    for target, places in [*targets, ("mean", every), ("worst excess", every)]:
        over, own, at_middle = (
            (risk - best).max(axis=-1) if target == "worst excess" else risk[..., places].mean(axis=-1)
            for risk in (fixed, drawn, centre)
        )
        blind = over[inside]
        rows.append(
            {
                **common,
                "target": target,
                "best_fixed": min(over.min(), at_middle),  # the middle of the range may be better than the grid's best
                "best_ratio": usable[over.argmin()],
                "range": own,
                "middle": at_middle,
                "blind": blind.mean(),
                "blind_worst": blind.max(),
            }
        )
    return [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def summary(rows: list[TableRow]) -> dict[str, Any]:
    """Count how often a range is better than each alternative, over all settings and where the middle ratio learns."""
    table = pd.DataFrame(rows)

    def better(some: pd.DataFrame) -> dict[str, Any]:
        shares = {key: (some["range"] < some[key] - 1e-6).mean() if len(some) else 0.0 for key in ("middle", "blind")}
        return {f"better_than_{key}": round(float(shares[key.split("_")[0]]), 4) for key in ("middle", "blind_pick")}

    counts: dict[str, Any] = {}
    for target, limit in (("direction", 1.0), ("mean", 1.0), ("worst excess", 0.5)):
        some = table[table["target"].str.startswith(target)]
        sane = some[some["middle"] < limit]
        saving = (sane["blind"] - sane["range"]) / (sane["blind"] - sane["best_fixed"]).clip(lower=1e-9)
        counts[target] = {
            "cells": len(some),
            "better_than_best_fixed": int((some["range"] < some["best_fixed"] - 1e-4).sum()),
            **better(some),
            "where_the_middle_learns": {
                "cells": len(sane),
                **better(sane),
                "median_saving_against_blind": round(float(saving.median()), 4),
                "median_cost_against_middle": round(float((sane["range"] - sane["middle"]).median()), 4),
            },
        }
    return counts


def width_costs() -> list[TableRow]:
    """Return the cost of a range against its middle ratio, for common widths (Beta and latent-like spectra)."""
    rows = []
    quantiles, which = (0.0, 0.1), np.array([0, 100])
    for name, values in (
        ("Beta", 1 + 9 * np.random.default_rng(0).beta(2, 6, 1000)),
        ("latent", np.concatenate([np.linspace(9.8, 1.2, 500), np.ones(500)])),
    ):
        cov = Rotated(np.asarray(values))
        for n in (100, 200, 500):
            curve = direction_risk(cov, n, _GRID, NOISE, which=which).normalised
            for index, ratio in enumerate(map(float, _GRID[curve.argmin(axis=0)])):
                for width in (0.05, 0.1, 0.2, 0.3, 0.4):
                    low, high = ratio - width / 2, ratio + width / 2
                    if low <= 0 or high >= 1:
                        continue
                    risks = direction_risk(cov, n, [ratio, Uniform(low, high)], NOISE, which=which).normalised[:, index]
                    cost = risks[1] - risks[0]
                    row: TableRow = {"covariance": name, "rows_per_feature": n / 1000, "quantile": quantiles[index]}
                    row |= {"best_ratio": ratio, "width": width, "best": float(f"{risks[0]:.5g}")}
                    per_square = float(f"{cost / width**2:.4g}")
                    rows.append({**row, "cost": float(f"{cost:.4g}"), "cost_per_width_squared": per_square})
    return rows


def plot_ranges(tables: Tables, size: Size) -> Figures:
    """Draw the risk of ranges against that of each alternative."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    shown = [row for row in tables["ranges"] if row["middle"] < 1.0]
    ours = column(shown, "range")
    titles = {
        "blind": "a ratio picked blindly from it",
        "middle": "its middle ratio",
        "best_fixed": "the best fixed ratio",
    }
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        other = column(shown, key)
        axes.plot(other, ours, ".", markersize=2.5, color=BLUE, alpha=0.4, rasterized=True)
        axes.plot([0, 1.5], [0, 1.5], color=BLACK, linewidth=0.8)
        axes.set(xlim=(0, 1.5), ylim=(0, 1.5), xlabel=f"risk of {title}")
        better = float((ours < other - 1e-6).mean())
        axes.set_title(f"range better in {better:.0%}")
    panels[0].set_ylabel("risk of the range\n(mean over directions)")
    return {"ranges": figure}


STUDIES = (
    *(
        Study(ENTRIES[name], partial(plot_table, name=name), parts=partial(parts_of_tables, name=name))
        for name in ("table5", "table9")
    ),
    Study(ENTRIES["r2mae-vs-fixed"], plot_readings, parts=parts_of_readings),
    Study(ENTRIES["ranges"], plot_ranges, table_of_ranges, parts_of_ranges),
)
