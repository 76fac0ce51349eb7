"""Tables 5 and 9 as the paper's text describes them, with enough masks to distinguish the difference from noise.

For each seed and model the design is drawn once. R²MAE draws a ratio for each row from its range and keeps the row
with that probability; a fixed ratio keeps each row with the fixed probability. All use the same uniform numbers for a
mask, so that differences are paired.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import numpy as np

from r2mae.masking.ratios import Uniform
from r2mae.report.style import BLUE, VERMILION
from r2mae.theory import Covariance, beta_spectrum, latent, risk, simulate
from r2mae_paper.drawing import BLACK, GREY, Figures, panels
from r2mae_paper.published import Model, Table, published
from r2mae_paper.rows import TableRow, Tables, column
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Part, Study

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


def parts(size: Size, *, name: str) -> list[Part]:
    """Return a part for each model and seed. It computes a row of the table and adds the paper's values."""
    table = published(name)
    return [
        Part(f"{model}-{seed}", partial(_row, table, model, seed, size))
        for model in table.entries
        for seed in size.seeds
    ]


def _row(table: Table, model: Model, seed: int, size: Size, jobs: int) -> TableRow:
    row: TableRow = {"model": model, "seed": seed, **measure(table, model, seed, size, jobs=jobs)}
    printed = table.entries[model].get(seed)
    if printed is None:
        return row
    paper = {f"paper_{key}": value for key, value in asdict(printed).items()}
    return {**row, **paper, "paper_gain": printed.gain}


def _table_of(results: Mapping[str, TableRow], *, name: str) -> Tables:
    return {name: list(results.values())}


def plot(tables: Tables, size: Size, *, name: str) -> Figures:
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


STUDIES = tuple(
    Study(
        ENTRIES[name],
        partial(plot, name=name),
        partial(_table_of, name=name),
        partial(parts, name=name),
    )
    for name in ("table5", "table9")
)
