"""Tables 5 and 9 as the paper's text describes them, with enough masks to distinguish the difference from noise.

For each seed and model the design is drawn once. R²MAE draws a ratio for each row from its range and keeps the row
with that probability; a fixed ratio keeps each row with the fixed probability. All use the same uniform numbers for a
mask, so that differences are paired.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from r2mae.masking.ratios import Uniform
from r2mae.report.style import BLUE, VERMILION
from r2mae.theory import Covariance, beta_spectrum, latent, risk, simulate
from r2mae_paper.artefact import NOISE, Part, Size, TableRow, Tally
from r2mae_paper.published import Model, Printed, Table

SEEDS = (2, 12, 22, 32, 42)


@dataclass(frozen=True)
class TableSize(Size):
    """How much is computed.

    Attributes
    ----------
    n, d : int
        Rows and features; the paper: 200 and 1000.
    seeds : tuple of int
        The paper's five.
    masks : int
        Masks for each fixed ratio; the columns for the paper's number use the first 50.
    pairs : int
        Masks for the difference between R²MAE and the middle of its range.
    step : float
        Distance between the fixed ratios of the grid; the paper: 0.01.
    """

    n: int = 200
    d: int = 1000
    seeds: tuple[int, ...] = SEEDS
    masks: int = 200
    pairs: int = 4000
    step: float = 0.01

    small: ClassVar = {"seeds": SEEDS[:2], "masks": 50, "pairs": 400, "step": 0.05}
    digits: ClassVar = 5


_PAPER_MASKS = 50


@dataclass(frozen=True)
class TableEntry:
    """One seed and model of a table; risks are over the null risk βᵀΣβ.

    Attributes
    ----------
    best_ratio_50, best_50, middle_50, r2mae_50 : float
        With 50 masks, as in the paper.
    best_ratio, best, middle, r2mae, r2mae_error : float
        With all masks; the error is a standard error over masks, for the one design.
    gain, gain_error : float
        R²MAE minus the middle of its range (negative: R²MAE is better), paired.
    over_best, over_best_error : float
        R²MAE minus the best fixed ratio, which is chosen on one half of the masks and measured on the other.
    formula_best_ratio, formula_best, formula_middle, formula_r2mae : float
        By the general formula, for the mean over designs; the best ratio is found in steps of 0.05.
    """

    best_ratio_50: float
    best_50: float
    middle_50: float
    r2mae_50: float
    best_ratio: float
    best: float
    middle: float
    r2mae: float
    r2mae_error: float
    gain: float
    gain_error: float
    over_best: float
    over_best_error: float
    formula_best_ratio: float
    formula_best: float
    formula_middle: float
    formula_r2mae: float


def covariance(model: Model, d: int, seed: int) -> Covariance:
    """Return the table's covariance, drawn again for each seed."""
    return beta_spectrum(d, seed) if model == "beta" else latent(d, seed)


def measure(table: Table, model: Model, seed: int, size: TableSize, *, jobs: int = 1) -> TableEntry:
    """Measure one cell."""
    cov = covariance(model, size.d, seed)
    index = cov.at_quantile(table.quantile)
    beta = cov.eigenvectors(np.array([index]))[:, 0]
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
    return TableEntry(
        best_ratio_50=float(grid[few[:-1].argmin()]),
        best_50=float(few[:-1].min()),
        middle_50=float(few[middle]),
        r2mae_50=float(few[-1]),
        best_ratio=float(grid[many[:-1].argmin()]),
        best=float(many[:-1].min()),
        middle=float(pair.normalised[0]),
        r2mae=float(pair.normalised[1]),
        r2mae_error=float(pair.error[1]) / null,
        gain=gain,
        gain_error=gain_error,
        over_best=float(against.mean()),
        over_best_error=float(against.std(ddof=1) / np.sqrt(len(against))),
        formula_best_ratio=float(coarse[formula[:-2].argmin()]),
        formula_best=float(formula[:-2].min()),
        formula_middle=float(formula[-2]),
        formula_r2mae=float(formula[-1]),
    )


def parts_of(published: Table, size: TableSize) -> list[Part]:
    """Return a part for each model and seed. It computes a row of the table and adds the paper's values."""
    return [
        Part(f"{model}-{seed}", 1, partial(_row, published, model, seed, size))
        for model in published.entries
        for seed in size.seeds
    ]


def _row(published: Table, model: Model, seed: int, size: TableSize, jobs: int, tally: Tally) -> TableRow:
    cell = measure(published, model, seed, size, jobs=jobs)
    return {"model": model, "seed": seed, **asdict(cell), **_beside(published.entries[model].get(seed))}


def _beside(printed: Printed | None) -> dict[str, float]:
    if printed is None:
        return {}
    return {f"paper_{name}": value for name, value in asdict(printed).items()} | {
        "paper_gain": round(printed.r2mae - printed.middle, 3)
    }


def draw_gains(table: Table, rows: list[TableRow]) -> Figure:
    """Draw R²MAE minus the middle ratio: measured, by the formula, and printed."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    positions = np.arange(len(rows))
    gains: Float[np.ndarray, " c"] = np.array([row["gain"] for row in rows])
    errors = np.array([row["gain_error"] for row in rows])
    formula = np.array([row["formula_r2mae"] - row["formula_middle"] for row in rows])
    paper = np.array([row.get("paper_gain", np.nan) for row in rows])
    axes.axhline(0, color="#808080", linewidth=0.8)
    axes.errorbar(positions, gains, 2 * errors, fmt="o", color=BLUE, capsize=3, label="measured, ± 2 standard errors")
    axes.plot(positions, formula, "_", color="#000000", markersize=14, label="formula")
    axes.plot(positions, paper, "D", color=VERMILION, markersize=5, label="printed in the paper")
    axes.set_xticks(positions, [f"{row['model']}\n{row['seed']}" for row in rows])
    axes.set_ylabel("R²MAE minus the middle ratio\n(normalised risk)")
    axes.set_title(
        f"Table {table.name.removeprefix('table')}: U({table.low:g}, {table.high:g}) against {table.middle:g}"
    )
    axes.annotate(
        "R²MAE better ↓",
        (0.0, 0),
        (4, -4),
        textcoords="offset points",
        va="top",
        xycoords=("axes fraction", "data"),
        color="#606060",
    )
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=3)
    return figure
