"""Figs. 1E, 1G and 4: spectra, with signals along eigenvectors, and the plateaus of the latent space model.

Fig. 1E has three spectra, and the eigenvalue above which masking helps. Figs. 1G and 4 have the latent space model with
q equal strong dimensions. The "eigenvalue 100" of the paper's text is either that of D (then that of WWᵀ is 10,000) or
that of WWᵀ; both are computed. The paper compares its curves with ImageNet accuracies of He et al. (2022), which a
table of yours can hold.

Simulations keep each row with probability p; the paper's figures at fixed ratios keep ñ = np rows.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from r2mae.report.style import BLUE, SKY, VERMILION
from r2mae.theory import Covariance, Rotated, beta_spectrum, direction_risk, latent, plateau, risk, uniform_spectrum
from r2mae.theory.simulate import simulate
from r2mae_paper.curves import draw_over, likeness, read_curves
from r2mae_paper.drawing import BLACK, COLOURS, GREY, Axes, Figures, null_line, panels, predicted, ratio_axis, simulated
from r2mae_paper.rows import TableRow, Tables, column, joined, joined_tables, rows_of, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, PUBLISHED, Parts, Study, compared, eigen_signals, paper_ratios

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


def plot_spectra(tables: Tables, size: Size) -> Figures:
    """Draw the curves of each model above its spectrum and threshold."""
    rows, histograms = tables["fig1e"], tables["fig1e-spectra"]
    thresholds = {row["model"]: row for row in tables["fig1e-thresholds"][: len(MODELS)]}
    figure, axes = panels(len(MODELS), 2, width=3.7, height=2.8, heights=[2.2, 1])
    upper, lower = axes[: len(MODELS)], axes[len(MODELS) :]
    for panel, below, name in zip(upper, lower, MODELS, strict=True):
        own = select(rows, model=name)
        _draw_curves(panel, own, name)
        _spectrum(below, own, thresholds[name], select(histograms, model=name))
    upper[0].set_ylabel("normalised test risk")
    lower[0].set_ylabel("density")
    handles, labels = upper[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
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


def _draw_curves(panel: Axes, rows: list[TableRow], name: str) -> None:
    for colour, quantile in zip(COLOURS, QUANTILES, strict=False):
        own = select(rows, quantile=quantile)
        ratio, mean, deviation, formula = (
            column(own, key) for key in ("ratio", "normalised_risk", "deviation", "formula")
        )
        simulated(panel, ratio, mean, deviation, colour, f"top {quantile:.0%}" if quantile else "largest eigenvalue")
        predicted(panel, ratio, formula, colour, None)
    panel.plot([], [], color=GREY, linewidth=1.4, label="formula")
    null_line(panel)
    ratio_axis(panel)
    panel.set_ylim(0.45, 1.8)
    panel.set_title(name)


def _spectrum(panel: Axes, rows: list[TableRow], limit: TableRow, histogram: list[TableRow]) -> None:
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
    for colour, quantile in zip(COLOURS, QUANTILES, strict=False):
        value = next(row["eigenvalue"] for row in rows if row["quantile"] == quantile)
        panel.plot(value, 0.03 * top, "v", color=colour, markersize=6, clip_on=False, zorder=4)
    panel.axvline(limit["threshold"], color=BLUE, linewidth=1.4, linestyle="--")
    panel.annotate(
        f"λ = {limit['threshold']:.2f}\n= {limit['threshold_over_mean']:.2f} of the mean",
        (limit["threshold"], 0.98 * top),
        (4, -2), textcoords="offset points", color=BLUE, fontsize=8, va="top",
    )  # fmt: skip
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


def _measure_sample(size: Size, reading: Reading, seed: int, jobs: int) -> list[TableRow]:
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
    Study(ENTRIES["fig1e"], plot_spectra, table_of_spectra, parts_of_spectra),
    Study(ENTRIES["fig1g"], plot_fig1g, table_of_fig1g, parts_with_noise, curves=read_curves),
    Study(ENTRIES["fig4"], plot_fig4, table_of_fig4, parts_of_samples, curves=read_curves),
)
