"""Figs. 1G and 4: the latent space model with q equal strong dimensions, and its plateaus.

The "eigenvalue 100" of the paper's text is either that of D (then that of WWᵀ is 10,000) or that of WWᵀ; both are
computed. The paper compares its curves with ImageNet accuracies of He et al. (2022), which a table of yours can hold.

Simulations keep each row with probability p; the paper's figures at fixed ratios keep ñ = np rows.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from r2mae.report.style import BLUE, SKY, VERMILION
from r2mae.theory import plateau, risk
from r2mae.theory.simulate import simulate
from r2mae_paper.curves import draw_over, likeness, read_curves
from r2mae_paper.drawing import BLACK, COLOURS, Axes, Figures, null_line, panels, predicted, ratio_axis, simulated
from r2mae_paper.rows import TableRow, Tables, column, joined, rows_of, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, PUBLISHED, Parts, Study, compared, paper_ratios

Reading = Literal["D", "WW"]
READINGS: dict[Reading, str] = {"D": "D's entries are 100", "WW": "WWᵀ's eigenvalues are 100"}
# Noise variance over the null risk. The paper's variance of 0.04 is 0.002 of the null risk.
NOISES = (0.0, 0.5, 1.0, 1.5)
_NOISE = "noise"


def parts(size: Size) -> Parts:
    """Return a part for each sample of the model under both readings."""
    return {
        f"{reading}-{seed}": partial(_measure, size, reading, seed)
        for reading in READINGS
        for seed in range(size.samples)
    }


def parts_with_noise(size: Size) -> Parts:
    """Return the same for Fig. 1G, and a part for the formula with more noise."""
    return {**parts(size), _NOISE: lambda jobs: noisy(size)}


def table_of_fig1g(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the samples, their plateaus, and the formula with more noise; how alike published curves are, if any."""
    rows = _samples(results)
    tables = {"fig1g": rows, "fig1g-plateaus": describe(rows), "fig1g-noise": results[_NOISE]}
    curves = {f"formula, {title}": _curve(select(rows, reading=one, sample=0)) for one, title in READINGS.items()}
    return {**tables, **_with_published("fig1g", results, curves)}


def table_of_fig4(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the two samples that differ most, the plateaus of all, and how alike published curves are, if any."""
    rows = _samples(results)
    plateaus = describe(rows)
    extremes = [(reading, sample) for reading in READINGS for sample in _extremes(plateaus, reading)]
    chosen = [row for row in rows if (row["reading"], row["sample"]) in extremes]
    curves = {
        f"sample {sample}, {READINGS[reading]}": _curve(
            select(chosen, reading=reading, sample=sample), "normalised_risk"
        )
        for reading, sample in dict.fromkeys((row["reading"], row["sample"]) for row in chosen)
    }
    return {"fig4": chosen, "fig4-plateaus": plateaus, **_with_published("fig4", results, curves)}


def _samples(results: Mapping[str, list[TableRow]]) -> list[TableRow]:
    return joined({name: rows for name, rows in results.items() if name not in (PUBLISHED, _NOISE)})


def _with_published(
    name: str,
    results: Mapping[str, list[TableRow]],
    curves: Mapping[str, tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]],
) -> Tables:
    """Return published accuracies and how alike they are, if there are any."""
    published = results[PUBLISHED]
    return {f"{name}-published": published, f"{name}-likeness": likeness(published, curves)} if published else {}


def plot_fig1g(tables: Tables, size: Size) -> Figures:
    """Draw a panel for each reading of the model, with published error rates over it, and one for the noise."""
    rows, noise = tables["fig1g"], tables["fig1g-noise"]
    figure, axes = panels(3, width=3.7, height=4.0)
    for panel, (reading, title) in zip(axes, READINGS.items(), strict=False):
        for sample in unique(select(rows, reading=reading), "sample"):
            label = "simulation: samples, each of one design" if sample == 0 else None
            curve = _curve(select(rows, reading=reading, sample=sample), "normalised_risk")
            panel.plot(*curve, color=SKY, linewidth=0.9, label=label)
        predicted(panel, *_curve(select(rows, reading=reading, sample=0)), BLACK, "formula (mean over designs)")
        _finish(panel, title)
        draw_over(panel, tables.get("fig1g-published", []))
    for colour, share in zip(COLOURS, NOISES, strict=False):
        own = [row for row in noise if row["reading"] == "D" and abs(row["noise_over_null"] - share) < 0.01]
        label = "σ² = 0.04 (paper)" if share == 0 else f"σ² = {share:g} of the null risk"
        predicted(axes[2], *_curve(own), colour, label)
    _finish(axes[2], "Formula with more noise (D = 100)")
    return {"fig1g": figure}


def plot_fig4(tables: Tables, size: Size) -> Figures:
    """Draw a panel for each reading of the model, with published error rates over it."""
    rows, plateaus = tables["fig4"], tables["fig4-plateaus"]
    figure, axes = panels(2, width=4.0, height=4.0)
    for panel, (reading, title) in zip(axes, READINGS.items(), strict=True):
        for colour, sample in zip((BLUE, VERMILION), _extremes(plateaus, reading), strict=True):
            own = select(rows, reading=reading, sample=sample)
            ratio, mean, deviation = (column(own, key) for key in ("ratio", "normalised_risk", "deviation"))
            simulated(panel, ratio, mean, deviation, colour, f"sample {sample} ± sd over masks")
        predicted(panel, *_curve(own), BLACK, "formula (mean over designs)")
        _finish(panel, title)
        draw_over(panel, tables.get("fig4-published", []))
    return {"fig4": figure}


def _extremes(plateaus: list[TableRow], reading: str) -> tuple[int, int]:
    """Return the two samples whose near-optimal ranges have the lowest and the highest centre."""
    own = [row for row in select(plateaus, reading=reading) if row["sample"] != "formula"]
    own.sort(key=lambda row: (row["near_best_from"] + row["near_best_until"], row["best_risk"]))
    return own[0]["sample"], own[-1]["sample"]


def _curve(rows: list[TableRow], key: str = "formula") -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    return column(rows, "ratio"), column(rows, key)


def _finish(axes: Axes, title: str) -> None:
    """Label a panel of normalised risk."""
    null_line(axes)
    ratio_axis(axes)
    axes.set_ylim(0, 1.5)
    axes.set_ylabel("normalised test risk")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _measure(size: Size, reading: Reading, seed: int, jobs: int) -> list[TableRow]:
    """Simulate one sample; risks are over βᵀΣβ."""
    ratios = paper_ratios()
    cov, beta = plateau(size.d, size.q, seed, of=reading)
    with compared():
        formula = risk(cov, beta, size.n, ratios, NOISE).normalised
    simulation = simulate(cov, beta, size.n, ratios, noise=NOISE, repetitions=size.repetitions, seed=seed, jobs=jobs)
    null = float(simulation.null)
    return rows_of(
        reading=reading,
        sample=seed,
        ratio=ratios,
        null=null,
        normalised_risk=simulation.normalised,
        deviation=simulation.deviation / null,
        error=simulation.error / null,
        formula=formula,
    )


def describe(rows: list[TableRow]) -> list[TableRow]:
    """Return, for every sample and for the formula, the ends of the curve's plateaus, and its lowest point.

    The descent is the difference between the first and the lowest point. The first plateau reaches as far as the curve
    stays within a tenth of the descent of its first point. The second plateau is the range of ratios around the lowest
    point in which the curve is within a tenth of the descent of that point.
    """
    described = []
    for reading, sample in dict.fromkeys((row["reading"], row["sample"]) for row in rows):
        own = select(rows, reading=reading, sample=sample)
        curves = {sample: "normalised_risk"} | ({"formula": "formula"} if sample == 0 else {})
        for name, key in curves.items():
            described.append({"reading": reading, "sample": name, **plateaus(*_curve(own, key))})
    return described


def plateaus(ratios: Float[np.ndarray, " p"], curve: Float[np.ndarray, " p"]) -> dict[str, float]:
    """Return the plateaus of one curve (see :func:`describe`)."""
    lowest = int(np.argmin(curve))
    slack = 0.1 * (curve[0] - curve[lowest])
    left = np.flatnonzero(curve[: lowest + 1] < curve[0] - slack)
    end = int(left[0]) - 1 if len(left) else lowest
    far = np.flatnonzero(curve > curve[lowest] + slack)
    low = max(far[far < lowest], default=-1) + 1
    high = min(far[far > lowest], default=len(curve)) - 1
    return {
        "first_risk": float(curve[0]),
        "first_until": float(ratios[end]),
        "best_ratio": float(ratios[lowest]),
        "best_risk": float(curve[lowest]),
        "near_best_from": float(ratios[low]),
        "near_best_until": float(ratios[high]),
    }


def noisy(size: Size) -> list[TableRow]:
    """Return the formula's curves for several noise variances, given as fractions of the null risk.

    The risk is affine in the noise variance, so one evaluation is enough for all of them.
    """
    fine = paper_ratios(0.01)
    fine = fine[fine * size.n >= 1]
    rows = []
    for reading in READINGS:
        cov, beta = plateau(size.d, size.q, 0, of=reading)
        with compared():
            formula = risk(cov, beta, size.n, fine, NOISE)
        null = float(formula.null)
        for noise in (max(NOISE, share * null) for share in NOISES):
            curve = (formula.risk + (noise - NOISE) * formula.noise_gain) / null
            rows += rows_of(reading=reading, noise=noise, noise_over_null=noise / null, ratio=fine, formula=curve)
    return rows


STUDIES = (
    Study(ENTRIES["fig1g"], plot_fig1g, table_of_fig1g, parts_with_noise, curves=read_curves),
    Study(ENTRIES["fig4"], plot_fig4, table_of_fig4, parts, curves=read_curves),
)
