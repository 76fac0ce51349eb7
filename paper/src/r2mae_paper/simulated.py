"""Figs. 1A to 1E, 1G, 3 and 4: simulations of the linear model, against its theorems and the general formula.

Figs. 1A to 1D and 3 have the isotropic model, and the spiked model Σ = I + δvvᵀ with β at an angle to v. Fig. 1E has
three spectra, with signals along eigenvectors, and the eigenvalue above which masking helps. Figs. 1G and 4 have the
latent space model with q equal strong dimensions, and its plateaus. The "eigenvalue 100" of the paper's text is either
that of D (then that of WWᵀ is 10,000) or that of WWᵀ; both are computed. The paper compares its curves with ImageNet
accuracies of He et al. (2022), which a table of yours can hold.

Simulations keep each row with probability p, so that ñ is binomial, as Sec. 3.1 defines it. The paper's figures at
fixed ratios keep ñ = np rows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from r2mae.compare.style import BLUE, GREEN, ORANGE, SKY, VERMILION
from r2mae.theory import (
    Covariance,
    Rotated,
    beta_spectrum,
    direction_risk,
    identity,
    isotropic_risk,
    latent,
    plateau,
    risk,
    signal_at,
    spiked,
    spiked_risk,
    uniform_direction,
    uniform_spectrum,
)
from r2mae.theory.simulate import simulate
from r2mae_paper import drawing as draw
from r2mae_paper.curves import draw_over, likeness, read_curves
from r2mae_paper.rows import TableRow, Tables, column, joined, joined_tables, records, rows_of, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, PUBLISHED, Parts, Study, compared, eigen_signals, paper_ratios

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


def plot_isotropic(tables: Tables, size: Size) -> draw.Figures:
    """Draw a panel for each n and d."""
    figure, axes = draw.panels(len(size.settings), width=4.2, height=3.4)
    for panel, (n, d) in zip(axes, size.settings, strict=True):
        rows = select(tables["fig1a"], n=n, d=d)
        gamma = d / n
        ratio, mean, deviation = (column(rows, key) for key in ("ratio", "risk", "deviation"))
        fine = np.linspace(0.002, 0.975, 974)
        fine = fine[np.abs(fine - gamma) > 1e-3]
        curve = isotropic_risk(fine, gamma, NOISE).risk
        for side in (fine < gamma, fine > gamma):
            draw.predicted(panel, fine[side], curve[side], draw.BLACK, "Theorem 1" if side[0] else None)
        deviation[np.isclose(ratio, gamma)] = np.nan  # at p = γ the mean over masks does not exist
        draw.simulated(panel, ratio, mean, deviation, BLUE, "simulation ± sd")
        draw.null_line(panel)
        draw.ratio_axis(panel, "test risk / r²")
        panel.set_title(f"γ = {gamma:g}  (n = {n}, d = {d})")  # noqa: RUF001
        draw.plain_log(panel)
        if gamma < 1:
            panel.set_ylim(0.4, 400)
            panel.axvline(gamma, color=draw.GREY, linewidth=1, linestyle=":")
            note = "p = γ: as many kept\nrows as features (ñ = d).\nTheorem 1 diverges;\nthe mean is chance"  # noqa: RUF001
            panel.annotate(note, (gamma, 330), (4, 0), textcoords="offset points", va="top", fontsize=8)
        else:
            panel.set_ylim(0.85, 8)
        panel.legend(loc="upper left", fontsize=9 if gamma > 1 else 8)
    return {"fig1a": figure}


Kind = Literal["uniform", "ones"]


_DELTA_OF_FIG1B = 10.0  # of Fig. 1B
_COSINES = (0.0, 0.5, 1.0)  # the paper's text does not give its values; these cover the range that it describes


def parts_of(size: Size, kind: Kind) -> Parts:
    """Return a part for each strength of the spike, as :func:`measure` computes it across and along the spike."""
    return {f"delta-{delta:g}": partial(measure, size, kind, delta, (0.0, 1.0)) for delta in size.deltas}


def parts_of_angles(size: Size) -> Parts:
    """Return one part, all angles of Fig. 1B at one strength of the spike, with Corollary 1."""
    return {
        "angles": lambda jobs: with_corollary(
            size, _DELTA_OF_FIG1B, measure(size, "uniform", _DELTA_OF_FIG1B, _COSINES, jobs)
        )
    }


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


def plot_angles(tables: Tables, size: Size) -> draw.Figures:
    """Draw Fig. 1B: a panel for each angle."""
    rows = tables["fig1b"]
    cosines = unique(rows, "cosine")
    figure, axes = draw.panels(len(cosines), width=3.3, height=3.6)
    for panel, cosine in zip(axes, cosines, strict=True):
        own = select(rows, cosine=cosine)
        ratio = column(own, "ratio")
        draw.simulated(panel, ratio, column(own, "risk"), column(own, "deviation"), BLUE, "simulation, one design ± sd")
        panel.plot(
            ratio, column(own, "fresh_risk"), "o", color=GREEN, markersize=6, markerfacecolor="none",
            label=f"simulation, mean of {size.fresh} designs",
        )  # fmt: skip
        draw.predicted(panel, ratio, column(own, "corollary1"), draw.BLACK, "Corollary 1")
        draw.predicted(panel, ratio, column(own, "formula"), ORANGE, "general formula", ":")
        draw.null_line(panel, own[0]["null"])
        draw.ratio_axis(panel, title=f"cos(β, v) = {cosine:g}")
        low = float(np.nanmin(column(own, "formula")))
        panel.set_ylim(0, max(1.6 * own[0]["null"], 2.4 * low))
    axes[0].set_ylabel("test risk / r²")
    draw.legend_below(figure, axes[0], 3)
    return {"fig1b": figure}


def plot_strengths(
    tables: Tables, size: Size, *, name: str, risks: str = "", magnitudes: str = "", width: float
) -> draw.Figures:
    """Draw Figs. 1C, 1D and 3: risks across and along the spike, and the ratio of magnitudes, of the tables named."""
    count = 2 * bool(risks) + bool(magnitudes)
    figure, axes = draw.panels(count, width=width, height=3.6 if count == 1 else 3.4)
    for panel, cosine in zip(axes, (0.0, 1.0) if risks else (), strict=False):
        null = "null risk 1 + δ" if cosine else "null risk 1"
        _draw_strengths(panel, select(tables[risks], cosine=cosine), ("risk", "formula", "null"), null)
        draw.ratio_axis(panel, "mean test risk / r²", f"cos(β, v) = {cosine:g}")
        panel.legend(fontsize=8)
    if magnitudes:
        columns = ("magnitude_ratio", "formula_magnitude_ratio", "truth")
        _draw_strengths(axes[-1], tables[magnitudes], columns, "of the truth, 1/(1 + δ)")
        draw.ratio_axis(axes[-1], "E‖Xb̂₀‖² / E‖Xb̂₁‖²", "magnitude: cos = 0 over cos = 1")
        # Between the curves: there is no room beneath one another.
        look: dict[str, Any] = {"fontsize": 7, "ncols": 2, "columnspacing": 1, "borderpad": 0.1}
        axes[-1].legend(loc="lower right", bbox_to_anchor=(1.0, 0.17), **look)
    return {name: figure}


def _draw_strengths(panel: draw.Axes, rows: list[TableRow], columns: tuple[str, str, str], dashed: str) -> None:
    """Draw means for every δ (points, one design) with the formula (lines) and a value of its own (dashed)."""
    for colour, delta, own in draw.coloured(rows, "delta"):
        mean, formula, _ = (column(own, key) for key in columns)
        draw.simulated(panel, column(own, "ratio"), mean, None, colour, f"δ = {delta:g}")
        draw.predicted(panel, column(own, "ratio"), formula, colour, None)
        draw.null_line(panel, own[0][columns[2]], None, colour)
    panel.plot([], [], "o", color=draw.GREY, markersize=3.5, label="simulation, one design")
    panel.plot([], [], color=draw.GREY, linewidth=1.4, label="formula")
    panel.plot([], [], color=draw.GREY, linewidth=1, linestyle=(0, (4, 3)), label=dashed)
    draw.plain_log(panel)


MODELS: dict[str, Callable[[int], Covariance]] = {"uniform": uniform_spectrum, "Beta": beta_spectrum, "latent": latent}
# Quantiles counted from the largest eigenvalue; the paper does not print its own.
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75)
_GAMMAS = (0.5, 2.0, 5.0, 10.0)


def parts_of_spectra(size: Size) -> Parts:
    """Return a part for each model."""
    return {name.lower(): partial(_model, name, size) for name in MODELS}


def _model(name: str, size: Size, jobs: int) -> dict[str, list[TableRow]]:
    """Compute a model's curves, its threshold at this size and at others, and its spectrum."""
    make = MODELS[name]
    cov = make(size.d)
    here = {"model": name, "gamma": size.d / size.n, "n": size.n, **threshold(cov.eigenvalues, size.n)}
    others = [
        {"model": name, "gamma": gamma, "n": size.threshold_n, **threshold(values, size.threshold_n)}
        for gamma in _GAMMAS
        for values in [make(round(gamma * size.threshold_n)).eigenvalues]
    ]
    curves = measure_spectrum(name, cov, size, jobs)
    return {"fig1e": curves, "here": [here], "others": others, "fig1e-spectra": _histogram(name, cov.eigenvalues)}


def table_of_spectra(results: Mapping[str, dict[str, list[TableRow]]]) -> Tables:
    """Return the curves, the thresholds (first those that are drawn), and the spectra."""
    tables = joined_tables(results)
    thresholds = [*tables.pop("here"), *tables.pop("others")]
    return {"fig1e": tables["fig1e"], "fig1e-thresholds": thresholds, "fig1e-spectra": tables["fig1e-spectra"]}


def plot_spectra(tables: Tables, size: Size) -> draw.Figures:
    """Draw the curves of each model above its spectrum and threshold."""
    rows, histograms = tables["fig1e"], tables["fig1e-spectra"]
    thresholds = {row["model"]: row for row in tables["fig1e-thresholds"][: len(MODELS)]}
    figure, axes = draw.panels(len(MODELS), 2, width=3.7, height=2.8, heights=[2.2, 1])
    upper, lower = axes[: len(MODELS)], axes[len(MODELS) :]
    for panel, below, name in zip(upper, lower, MODELS, strict=True):
        own = select(rows, model=name)
        for colour, quantile, curve in draw.coloured(own, "quantile"):
            keys = ("ratio", "normalised_risk", "deviation", "formula")
            ratio, mean, deviation, formula = (column(curve, key) for key in keys)
            label = f"top {quantile:.0%}" if quantile else "largest eigenvalue"
            draw.simulated(panel, ratio, mean, deviation, colour, label)
            draw.predicted(panel, ratio, formula, colour, None)
        panel.plot([], [], color=draw.GREY, linewidth=1.4, label="formula")
        draw.null_line(panel)
        draw.ratio_axis(panel, title=name)
        panel.set_ylim(0.45, 1.8)
        _spectrum(below, own, thresholds[name], select(histograms, model=name))
    upper[0].set_ylabel("normalised test risk")
    lower[0].set_ylabel("density")
    draw.legend_below(figure, upper[0], 4)
    return {"fig1e": figure}


def measure_spectrum(name: str, cov: Covariance, size: Size, jobs: int) -> list[TableRow]:
    """Simulate one model; risks are over βᵀΣβ.

    The formula uses the model's eigenvalues. The eigenvectors are Haar in all three models (in the latent one because
    its Gaussian W is rotation invariant), so only eigenvalues are needed.
    """
    ratios = paper_ratios()
    indices = [cov.at_quantile(quantile) for quantile in QUANTILES]
    with compared():
        formula = direction_risk(Rotated(cov.eigenvalues), size.n, ratios, NOISE, which=np.array(indices)).normalised
    simulation = simulate(
        cov, eigen_signals(cov, indices), size.n, ratios, noise=NOISE, repetitions=size.repetitions, jobs=jobs
    )
    return [
        row
        for j, quantile in enumerate(QUANTILES)
        for row in rows_of(
            model=name,
            quantile=quantile,
            eigenvalue=simulation.null[j],
            ratio=ratios,
            normalised_risk=simulation.normalised[:, j],
            deviation=simulation.deviation[:, j] / simulation.null[j],
            error=simulation.error[:, j] / simulation.null[j],
            formula=formula[:, j],
        )
    ]


def threshold(eigenvalues: Float[np.ndarray, " d"], n: int, noise: float = NOISE) -> dict[str, float]:
    """Find the eigenvalue above which some mask ratio has a lower risk than predicting zero.

    Returned are, by the formula: the threshold with ratios from 0.05 on, as in the paper's figure, and with all ratios
    (from 1/n, one kept row); the latter over the mean eigenvalue; the fraction of eigenvalues above it; and the law

        λ = (1 + σ²/λ)·mean(λ²)/(2·mean(λ)),

    which is where the slope of the risk at p = 0 changes sign. That slope does not depend on γ: with few kept rows,
    risk/λ = 1 − (2λ − (1 + σ²/λ)·tr Σ²/tr Σ)·np/tr Σ, and masking itself comes in at order p² only. The law bounds the
    threshold from above: a curve that rises at first may still fall below 1 later. This happens with γ < 1, where the
    threshold can lie well below the law. A threshold is NaN if all eigenvalues are on one side of it.

    Eigenvalues of Σ are given with the largest first, for Haar eigenvectors; `n` are rows, and `noise` is σ².
    """
    cov = Rotated(eigenvalues)
    ratios = np.union1d([1 / n, 2 / n], np.arange(1, 100) / 100)
    ratios = ratios[ratios * n >= 1]
    with compared():
        values = direction_risk(cov, n, ratios, noise).normalised
    mean, square = float(eigenvalues.mean()), float((eigenvalues**2).mean())
    from_5 = _crossing(cov.eigenvalues, values[ratios >= 0.05].min(axis=0))
    every = _crossing(cov.eigenvalues, values.min(axis=0))
    half = square / (2 * mean)
    law = half / 2 * (1 + np.sqrt(1 + 4 * noise / half))
    return {
        "mean_eigenvalue": mean,
        "threshold_from_0.05": from_5,
        "threshold": every,
        "threshold_over_mean": every / mean,
        "share_above": float((cov.eigenvalues > every).mean()),
        "law": float(law),
        "law_over_mean": float(law) / mean,
    }


def _crossing(eigenvalues: Float[np.ndarray, " d"], lowest: Float[np.ndarray, " d"]) -> float:
    """Return the eigenvalue at which the lowest normalised risk reaches 1, by interpolation."""
    better = lowest < 1
    if better.all() or not better.any():
        return float("nan")
    last = int(np.argmin(better)) - 1  # the last eigenvalue with a risk below 1; eigenvalues decrease
    share = (1 - lowest[last]) / (lowest[last + 1] - lowest[last])
    return float(eigenvalues[last] + share * (eigenvalues[last + 1] - eigenvalues[last]))


def _histogram(name: str, eigenvalues: Float[np.ndarray, " d"]) -> list[TableRow]:
    edges = np.linspace(0.5, 11, 43)
    counts, _ = np.histogram(eigenvalues, edges)
    density = counts / counts.sum() / np.diff(edges)
    return rows_of(model=name, low=edges[:-1], high=edges[1:], density=density)


def _spectrum(panel: draw.Axes, rows: list[TableRow], limit: TableRow, histogram: list[TableRow]) -> None:
    low, density = column(histogram, "low"), column(histogram, "density")
    width = histogram[0]["high"] - histogram[0]["low"]
    # Half of the latent model's eigenvalues are 1: this bar is cut off by the axis.
    top = 1.25 * float(np.sort(density)[-2]) if density.max() > 4 * np.sort(density)[-2] else 1.25 * density.max()
    panel.bar(low, density, width, align="edge", color="#d0d0d0")
    panel.set_ylim(0, top)
    if density.max() > top:
        tallest = int(density.argmax())
        note = f"the bar at {low[tallest]:.3g} leaves the axis:\n{density[tallest] * width:.0%} of the eigenvalues"
        panel.annotate(note, (0.98, 0.45), xycoords="axes fraction", ha="right", fontsize=8, color="#606060")
    for colour, _, own in draw.coloured(rows, "quantile"):
        panel.plot(own[0]["eigenvalue"], 0.03 * top, "v", color=colour, markersize=6, clip_on=False, zorder=4)
    panel.axvline(limit["threshold"], color=BLUE, linewidth=1.4, linestyle="--")
    note = f"λ = {limit['threshold']:.2f}\n= {limit['threshold_over_mean']:.2f} of the mean"
    place = (limit["threshold"], 0.98 * top)
    panel.annotate(note, place, (4, -2), textcoords="offset points", color=BLUE, fontsize=8, va="top")
    panel.set_xlabel("eigenvalue λ")


Reading = Literal["D", "WW"]
READINGS: dict[Reading, str] = {"D": "D's entries are 100", "WW": "WWᵀ's eigenvalues are 100"}
# Noise variance over the null risk. The paper's variance of 0.04 is 0.002 of the null risk.
NOISES = (0.0, 0.5, 1.0, 1.5)
_NOISE = "noise"


def parts_of_samples(size: Size) -> Parts:
    """Return a part for each sample of the model under both readings."""
    return {
        f"{reading}-{seed}": partial(_measure_sample, size, reading, seed)
        for reading in READINGS
        for seed in range(size.samples)
    }


def parts_with_noise(size: Size) -> Parts:
    """Return the same for Fig. 1G, and a part for the formula with more noise."""
    return {**parts_of_samples(size), _NOISE: lambda jobs: noisy(size)}


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


def plot_fig1g(tables: Tables, size: Size) -> draw.Figures:
    """Draw a panel for each reading of the model, with published error rates over it, and one for the noise."""
    figure, axes = draw.panels(3, width=3.7, height=4.0)
    for panel, (reading, title) in zip(axes, READINGS.items(), strict=False):
        rows = select(tables["fig1g"], reading=reading)
        for sample in unique(rows, "sample"):
            label = "simulation: samples, each of one design" if sample == 0 else None
            curve = _curve(select(rows, sample=sample), "normalised_risk")
            panel.plot(*curve, color=SKY, linewidth=0.9, label=label)
        draw.predicted(panel, *_curve(select(rows, sample=0)), draw.BLACK, "formula (mean over designs)")
        _finish(panel, title, tables.get("fig1g-published", []))
    for colour, share in zip(draw.COLOURS, NOISES, strict=False):
        own = [row for row in select(tables["fig1g-noise"], reading="D") if abs(row["noise_over_null"] - share) < 0.01]
        label = "σ² = 0.04 (paper)" if share == 0 else f"σ² = {share:g} of the null risk"
        draw.predicted(axes[2], *_curve(own), colour, label)
    _finish(axes[2], "Formula with more noise (D = 100)")
    return {"fig1g": figure}


def plot_fig4(tables: Tables, size: Size) -> draw.Figures:
    """Draw a panel for each reading of the model, with published error rates over it."""
    figure, axes = draw.panels(2, width=4.0, height=4.0)
    for panel, (reading, title) in zip(axes, READINGS.items(), strict=True):
        rows = select(tables["fig4"], reading=reading)
        for colour, sample in zip((BLUE, VERMILION), unique(rows, "sample"), strict=False):
            own = select(rows, sample=sample)
            shown = [row for row in own if round(row["ratio"] * 100) % 5 == 0]  # more points would hide one another
            ratio, mean, deviation = (column(shown, key) for key in ("ratio", "normalised_risk", "deviation"))
            draw.simulated(panel, ratio, mean, deviation, colour, f"sample {sample} ± sd over masks")
        draw.predicted(panel, *_curve(own), draw.BLACK, "formula (mean over designs)")
        _finish(panel, title, tables.get("fig4-published", []))
    return {"fig4": figure}


def _extremes(plateaus: list[TableRow], reading: str) -> tuple[int, int]:
    """Return the two samples whose near-optimal ranges have the lowest and the highest centre."""
    own = [row for row in select(plateaus, reading=reading) if row["sample"] != "formula"]
    own.sort(key=lambda row: (row["near_best_from"] + row["near_best_until"], row["best_risk"]))
    return own[0]["sample"], own[-1]["sample"]


def _curve(rows: list[TableRow], key: str = "formula") -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    return column(rows, "ratio"), column(rows, key)


def _finish(axes: draw.Axes, title: str, published: Sequence[TableRow] = ()) -> None:
    """Label a panel of normalised risk, and draw published error rates over it."""
    draw.null_line(axes)
    draw.ratio_axis(axes)
    axes.set_ylim(0, 1.5)
    axes.set_ylabel("normalised test risk")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    draw_over(axes, published)


def _measure_sample(size: Size, reading: Reading, seed: int, jobs: int) -> list[TableRow]:
    """Simulate one sample; risks are over βᵀΣβ."""
    ratios = paper_ratios(size.step)
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
        "first_ratio": float(ratios[0]),
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
    Study(ENTRIES["fig1e"], plot_spectra, table_of_spectra, parts_of_spectra),
    Study(ENTRIES["fig1g"], plot_fig1g, table_of_fig1g, parts_with_noise, curves=read_curves),
    Study(ENTRIES["fig4"], plot_fig4, table_of_fig4, parts_of_samples, curves=read_curves),
)
