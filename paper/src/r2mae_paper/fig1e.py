"""Fig. 1E: three spectra, signals along eigenvectors, and the eigenvalue above which masking helps.

Simulations keep each row with probability p; the paper's figures at fixed ratios keep ñ = np rows.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from jaxtyping import Float

from r2mae.report.style import BLUE
from r2mae.theory import Covariance, Rotated, beta_spectrum, direction_risk, latent, uniform_spectrum
from r2mae.theory.simulate import simulate
from r2mae_paper.drawing import COLOURS, GREY, Axes, Figures, null_line, panels, predicted, ratio_axis, simulated
from r2mae_paper.rows import TableRow, Tables, column, joined_tables, rows_of, select
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study, compared, eigen_signals, paper_ratios

MODELS: dict[str, Callable[[int], Covariance]] = {"uniform": uniform_spectrum, "Beta": beta_spectrum, "latent": latent}
# Quantiles counted from the largest eigenvalue; the paper does not print its own.
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75)
_GAMMAS = (0.5, 2.0, 5.0, 10.0)


def parts(size: Size) -> Parts:
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
    curves = measure(name, cov, size, jobs)
    return {"fig1e": curves, "here": [here], "others": others, "fig1e-spectra": _histogram(name, cov.eigenvalues)}


def table(results: Mapping[str, dict[str, list[TableRow]]]) -> Tables:
    """Return the curves, the thresholds (first those that are drawn), and the spectra."""
    tables = joined_tables(results)
    thresholds = [*tables.pop("here"), *tables.pop("others")]
    return {"fig1e": tables["fig1e"], "fig1e-thresholds": thresholds, "fig1e-spectra": tables["fig1e-spectra"]}


def plot(tables: Tables, size: Size) -> Figures:
    """Draw the curves of each model above its spectrum and threshold."""
    rows, histograms = tables["fig1e"], tables["fig1e-spectra"]
    thresholds = {row["model"]: row for row in tables["fig1e-thresholds"][: len(MODELS)]}
    figure, axes = panels(len(MODELS), 2, width=3.7, height=2.8, heights=[2.2, 1])
    upper, lower = axes[: len(MODELS)], axes[len(MODELS) :]
    for panel, below, name in zip(upper, lower, MODELS, strict=True):
        own = select(rows, model=name)
        _curves(panel, own, name)
        _spectrum(below, own, thresholds[name], select(histograms, model=name))
    upper[0].set_ylabel("normalised test risk")
    lower[0].set_ylabel("density")
    handles, labels = upper[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return {"fig1e": figure}


def measure(name: str, cov: Covariance, size: Size, jobs: int) -> list[TableRow]:
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

    Parameters
    ----------
    eigenvalues : array (d,)
        Eigenvalues of Σ, largest first; the eigenvectors are Haar.
    n : int
        Rows.
    noise : float
        σ².
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


def _curves(panel: Axes, rows: list[TableRow], name: str) -> None:
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


STUDIES = (Study(ENTRIES["fig1e"], plot, table, parts),)
