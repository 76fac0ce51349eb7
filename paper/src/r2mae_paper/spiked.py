"""Figs. 1A to 1D and 3: the isotropic model, and the spiked model Σ = I + δvvᵀ with β at an angle to v.

Simulations keep each row with probability p, so that ñ is binomial, as Sec. 3.1 defines it. The paper's figures at
fixed ratios keep ñ = np rows.
"""

from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from r2mae.report.style import BLUE, GREEN, ORANGE, VERMILION
from r2mae.theory import identity, isotropic_risk, risk, signal_at, spiked, spiked_risk, uniform_direction
from r2mae.theory.simulate import simulate
from r2mae_paper.drawing import (  # fmt: skip
    BLACK,
    COLOURS,
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
from r2mae_paper.rows import TableRow, Tables, column, joined, records, rows_of, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study, compared, paper_ratios

_RIDGE = 1e-6  # the appendix's λ for this figure


def parts_of_isotropic(size: Size) -> Parts:
    """Return a part for each panel."""
    return {f"n-{n}-d-{d}": partial(measure_isotropic, n, d, size.repetitions) for n, d in size.settings}


def measure_isotropic(n: int, d: int, repetitions: int, jobs: int) -> list[TableRow]:
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


def plot_isotropic(tables: Tables, size: Size) -> Figures:
    """Draw a panel for each n and d."""
    figure, axes = panels(len(size.settings), width=4.2, height=3.4)
    for panel, (n, d) in zip(axes, size.settings, strict=True):
        rows = select(tables["fig1a"], n=n, d=d)
        gamma = d / n
        ratio, mean, deviation = (column(rows, key) for key in ("ratio", "risk", "deviation"))
        fine = np.linspace(0.002, 0.975, 974)
        fine = fine[np.abs(fine - gamma) > 1e-3]
        curve = isotropic_risk(fine, gamma, NOISE).risk
        for side in (fine < gamma, fine > gamma):
            predicted(panel, fine[side], curve[side], BLACK, "Theorem 1" if side[0] else None)
        deviation[np.isclose(ratio, gamma)] = np.nan  # at p = γ the mean over masks does not exist
        simulated(panel, ratio, mean, deviation, BLUE, "simulation ± sd")
        null_line(panel)
        ratio_axis(panel, "test risk / r²")
        panel.set_title(f"γ = {gamma:g}  (n = {n}, d = {d})")  # noqa: RUF001
        plain_log(panel)
        if gamma < 1:
            panel.set_ylim(0.4, 400)
            panel.axvline(gamma, color=GREY, linewidth=1, linestyle=":")
            chance = f"{mean[np.argmin(np.abs(ratio - gamma))]:.3g}"
            panel.annotate(
                "p = γ: as many kept\nrows as features (ñ = d).\nTheorem 1 diverges;\n"  # noqa: RUF001
                f"the mean over masks,\n{chance}, is chance",
                (gamma, 330), (4, 0), textcoords="offset points", va="top", fontsize=8, color="#404040",
            )  # fmt: skip
        else:
            panel.set_ylim(0.85, 8)
        panel.legend(loc="upper left", fontsize=9 if gamma > 1 else 8)
    return {"fig1a": figure}


Kind = Literal["uniform", "ones"]


_DELTA = 10.0  # of Fig. 1B
_COSINES = (0.0, 0.5, 1.0)  # the paper's text does not give its values; these cover the range that it describes


def parts_of(size: Size, kind: Kind) -> Parts:
    """Return a part for each strength of the spike, as :func:`measure` computes it across and along the spike."""
    return {f"delta-{delta:g}": partial(measure, size, kind, delta, (0.0, 1.0)) for delta in size.deltas}


def parts_of_angles(size: Size) -> Parts:
    """Return one part, all angles of Fig. 1B at one strength of the spike, with Corollary 1."""
    return {"angles": lambda jobs: with_corollary(size, _DELTA, measure(size, "uniform", _DELTA, _COSINES, jobs))}


def measure(size: Size, kind: Kind, delta: float, cosines: tuple[float, ...], jobs: int) -> list[TableRow]:
    """Simulate every angle at one strength, with one design (the paper) and with fresh ones.

    Risks and magnitudes are for ‖β‖ = r = 1; the magnitude is E‖x b̂‖² on unmasked rows. Simulations are at fewer ratios
    than the formula; at others they are NaN.
    """
    v = uniform_direction(size.d) if kind == "uniform" else np.ones(size.d)
    betas = np.stack([signal_at(v, cosine) for cosine in cosines], axis=1)
    ratios, fine = paper_ratios(), paper_ratios(size.step)
    fine = fine[fine * size.n >= 1]
    cov = spiked(delta, v)
    with compared():
        formula = risk(cov, betas, size.n, fine, NOISE)
    same = partial(simulate, cov, betas, size.n, ratios, noise=NOISE, jobs=jobs)
    fixed = same(repetitions=size.repetitions)
    fresh = same(repetitions=size.fresh, design="fresh", seed=1)

    def at_fine(values: Float[np.ndarray, "p m"], j: int) -> Float[np.ndarray, " fine"]:
        found = np.full(len(fine), np.nan)
        found[np.isin(fine, ratios)] = values[np.isin(ratios, fine), j]
        return found

    return [
        row
        for j, cosine in enumerate(cosines)
        for row in rows_of(
            v=kind,
            delta=delta,
            cosine=cosine,
            ratio=fine,
            null=fixed.null[j],
            formula=formula.risk[:, j],
            formula_magnitude=formula.magnitude[:, j],
            risk=at_fine(fixed.risk, j),
            deviation=at_fine(fixed.deviation, j),
            error=at_fine(fixed.error, j),
            fresh_risk=at_fine(fresh.risk, j),
            fresh_error=at_fine(fresh.error, j),
            magnitude=at_fine(fixed.magnitude, j),
            fresh_magnitude=at_fine(fresh.magnitude, j),
        )
    ]


def with_corollary(size: Size, delta: float, rows: list[TableRow]) -> list[TableRow]:
    """Return the rows of one strength (v uniform) with the value of Corollary 1."""
    v = uniform_direction(size.d)
    # ridge is λ_reg of the paper's appendix
    values = {
        cosine: spiked_risk(
            v, delta, signal_at(v, cosine), size.n, column(select(rows, cosine=cosine), "ratio"), NOISE, ridge=1e-8
        ).risk
        for cosine in unique(rows, "cosine")
    }
    return [
        {**row, "corollary1": float(one)} for row, one in zip(rows, np.concatenate([*values.values()]), strict=True)
    ]


def magnitude_ratios(rows: list[TableRow]) -> list[TableRow]:
    """Return E‖Xb̂₀‖²/E‖Xb̂₁‖²: cos(β₀, v) = 0 over cos(β₁, v) = 1, as in the captions."""
    across, along = (pd.DataFrame(select(rows, cosine=cosine)) for cosine in (0.0, 1.0))
    ratios = across[["v", "delta", "ratio"]].assign(truth=across["null"] / along["null"])
    for kind in ("formula_magnitude", "magnitude", "fresh_magnitude"):
        ratios[f"{kind}_ratio"] = across[kind] / along[kind]
    return records(ratios)


def plot_angles(tables: Tables, size: Size) -> Figures:
    """Draw Fig. 1B: a panel for each angle."""
    rows = tables["fig1b"]
    cosines = unique(rows, "cosine")
    figure, axes = panels(len(cosines), width=3.3, height=3.6)
    for panel, cosine in zip(axes, cosines, strict=True):
        own = select(rows, cosine=cosine)
        ratio = column(own, "ratio")
        simulated(panel, ratio, column(own, "risk"), column(own, "deviation"), BLUE, "simulation, one design ± sd")
        panel.plot(
            ratio, column(own, "fresh_risk"), "o", color=GREEN, markersize=6, markerfacecolor="none",
            label=f"simulation, mean of {size.fresh} designs",
        )  # fmt: skip
        predicted(panel, ratio, column(own, "corollary1"), BLACK, "Corollary 1")
        predicted(panel, ratio, column(own, "formula"), ORANGE, "general formula", ":")
        null_line(panel, own[0]["null"])
        ratio_axis(panel, title=f"cos(β, v) = {cosine:g}")
        low = float(np.nanmin(column(own, "formula")))
        panel.set_ylim(0, max(1.6 * own[0]["null"], 2.4 * low))
    axes[0].set_ylabel("test risk / r²")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    return {"fig1b": figure}


def plot_strengths(
    tables: Tables, size: Size, *, name: str, risks: str = "", magnitudes: str = "", width: float
) -> Figures:
    """Draw Figs. 1C, 1D and 3: risks across and along the spike, and the ratio of magnitudes, of the tables named."""
    count = 2 * bool(risks) + bool(magnitudes)
    figure, axes = panels(count, width=width, height=3.6 if count == 1 else 3.4)
    for panel, cosine in zip(axes, (0.0, 1.0) if risks else (), strict=False):
        draw_risks(panel, tables[risks], cosine)
    if magnitudes:
        draw_ratio(axes[-1], tables[magnitudes])
    return {name: figure}


def name_marks(panel: Axes) -> None:
    """Say in the legend what dots and lines are, whatever their colour."""
    panel.plot([], [], "o", color=GREY, markersize=3.5, label="simulation, one design")
    panel.plot([], [], color=GREY, linewidth=1.4, label="formula")


def draw_risks(panel: Axes, rows: list[TableRow], cosine: float) -> None:
    """Draw mean risks for every δ (points, one design) with the formula (lines)."""
    for colour, delta in zip(COLOURS, unique(rows, "delta"), strict=False):
        own = select(rows, delta=delta, cosine=cosine)
        simulated(panel, column(own, "ratio"), column(own, "risk"), None, colour, f"δ = {delta:g}")
        predicted(panel, column(own, "ratio"), column(own, "formula"), colour, None)
        if cosine:
            null_line(panel, own[0]["null"], None, colour)
    if not cosine:
        null_line(panel, 1.0)
    else:
        panel.plot([], [], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="null risk 1 + δ")
    name_marks(panel)
    plain_log(panel)
    ratio_axis(panel, "mean test risk / r²", f"cos(β, v) = {cosine:g}")
    panel.legend(fontsize=8)


def draw_ratio(panel: Axes, ratios: list[TableRow]) -> None:
    """Draw the magnitude ratio for every δ (points, one design) with the formula (lines)."""
    for colour, delta in zip((BLUE, VERMILION, GREEN), unique(ratios, "delta"), strict=False):
        own = select(ratios, delta=delta)
        simulated(panel, column(own, "ratio"), column(own, "magnitude_ratio"), None, colour, f"δ = {delta:g}")
        predicted(panel, column(own, "ratio"), column(own, "formula_magnitude_ratio"), colour, None)
        null_line(panel, own[0]["truth"], None, colour)
    name_marks(panel)
    panel.plot([], [], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="of the truth, 1/(1 + δ)")
    plain_log(panel)
    ratio_axis(panel, "E‖Xb̂₀‖² / E‖Xb̂₁‖²", "magnitude: cos = 0 over cos = 1")
    # Between the curves: there is no room beneath one another.
    panel.legend(fontsize=7, ncols=2, columnspacing=1, loc="lower right", bbox_to_anchor=(1.0, 0.17), borderpad=0.1)


STUDIES = (
    Study(ENTRIES["fig1a"], plot_isotropic, parts=parts_of_isotropic),
    Study(ENTRIES["fig1b"], plot_angles, parts=parts_of_angles),
    Study(
        ENTRIES["fig1c"],
        partial(plot_strengths, name="fig1c", risks="fig1c", width=3.8),
        parts=partial(parts_of, kind="uniform"),
    ),
    Study(
        ENTRIES["fig1d"],
        partial(plot_strengths, name="fig1d", magnitudes="fig1d", width=4.4),
        table=lambda results: {"fig1d": magnitude_ratios(joined(results))},
        parts=partial(parts_of, kind="uniform"),
    ),
    Study(
        ENTRIES["fig3"],
        partial(plot_strengths, name="fig3", risks="fig3", magnitudes="fig3-magnitude", width=3.5),
        table=lambda results: {"fig3": joined(results), "fig3-magnitude": magnitude_ratios(joined(results))},
        parts=partial(parts_of, kind="ones"),
    ),
)
