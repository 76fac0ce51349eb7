"""Fig. 1A: the isotropic model, Theorem 1 against simulation, on both sides of γ = 1.

Simulations keep each row with probability p, so that ñ is binomial, as Sec. 3.1 defines it. The paper's figures at
fixed ratios keep ñ = np rows.
"""

from functools import partial

import numpy as np

from r2mae.report.style import BLUE
from r2mae.theory import identity, isotropic_risk, uniform_direction
from r2mae.theory.simulate import simulate
from r2mae_paper.drawing import (
    BLACK,
    GREY,
    Axes,
    Figures,
    null_line,
    panels,
    plain_log,
    predicted,
    ratio_axis,
    simulated,
)
from r2mae_paper.rows import TableRow, Tables, column, rows_of, select
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study, paper_ratios

_RIDGE = 1e-6  # the appendix's λ for this figure


def parts(size: Size) -> Parts:
    """Return a part for each panel."""
    return {f"n-{n}-d-{d}": partial(measure, n, d, size.repetitions) for n, d in size.settings}


def plot(tables: Tables, size: Size) -> Figures:
    """Draw a panel for each n and d."""
    figure, axes = panels(len(size.settings), width=4.2, height=3.4)
    for panel, (n, d) in zip(axes, size.settings, strict=True):
        _panel(panel, n, d, select(tables["fig1a"], n=n, d=d))
    return {"fig1a": figure}


def measure(n: int, d: int, repetitions: int, jobs: int) -> list[TableRow]:
    """Simulate one panel; risks are over r² = 1."""
    ratios = paper_ratios()
    theorem = isotropic_risk(ratios, d / n, NOISE)
    simulation = simulate(
        identity(d), uniform_direction(d), n, ratios, noise=NOISE, repetitions=repetitions, ridge=_RIDGE, jobs=jobs
    )
    return rows_of(
        gamma=d / n,
        n=n,
        d=d,
        ratio=ratios,
        risk=simulation.risk,
        deviation=simulation.deviation,
        error=simulation.error,
        median=np.median(simulation.risks, axis=0),
        theorem1=theorem.risk,
        theorem1_bias=theorem.bias,
        theorem1_variance=theorem.variance,
    )


def _panel(axes: Axes, n: int, d: int, rows: list[TableRow]) -> None:
    gamma = d / n
    ratio, mean, deviation = (column(rows, key) for key in ("ratio", "risk", "deviation"))
    fine = np.linspace(0.002, 0.975, 974)
    fine = fine[np.abs(fine - gamma) > 1e-3]
    curve = isotropic_risk(fine, gamma, NOISE).risk
    for side in (fine < gamma, fine > gamma):
        predicted(axes, fine[side], curve[side], BLACK, "Theorem 1" if side[0] else None)
    deviation[np.isclose(ratio, gamma)] = np.nan  # at p = γ the mean over masks does not exist
    simulated(axes, ratio, mean, deviation, BLUE, "simulation ± sd")
    null_line(axes)
    ratio_axis(axes)
    axes.set_ylabel("test risk / r²")
    axes.set_title(f"γ = {gamma:g}  (n = {n}, d = {d})")  # noqa: RUF001
    plain_log(axes)
    if gamma < 1:
        axes.set_ylim(0.4, 400)
        axes.axvline(gamma, color=GREY, linewidth=1, linestyle=":")
        chance = f"{mean[np.argmin(np.abs(ratio - gamma))]:.3g}"
        axes.annotate(
            "p = γ: as many kept\nrows as features (ñ = d).\nTheorem 1 diverges;\n"  # noqa: RUF001
            f"the mean over masks,\n{chance}, is chance",
            (gamma, 330), (4, 0), textcoords="offset points", va="top", fontsize=8, color="#404040",
        )  # fmt: skip
    else:
        axes.set_ylim(0.85, 8)
    axes.legend(loc="upper left", fontsize=9 if gamma > 1 else 8)


STUDIES = (Study(ENTRIES["fig1a"], plot, parts=parts),)
