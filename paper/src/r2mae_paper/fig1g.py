"""Fig. 1G: the latent space model in which the paper shows the two plateaus of a mask-pretraining curve."""

from collections.abc import Mapping

import numpy as np

from r2mae.report.style import SKY
from r2mae_paper.artefact import Part, TableRow, Tables
from r2mae_paper.curves import draw_over, likeness
from r2mae_paper.drawing import BLACK, COLOURS, Figures, panels, predicted
from r2mae_paper.plateau import (
    NOISES,
    READINGS,
    PlateauSize,
    apart,
    describe,
    finish,
    noisy,
    published,
    samples,
    with_curves,
)

__all__ = ["COST", "DATA", "PAPER", "SIZE", "TITLE", "draw", "parts", "table", "with_curves"]

TITLE = "Fig. 1G: latent space model and its plateaus"
DATA = "simulated; beside it a table of accuracies, if you have one (--curve FILE.csv)"
COST = {"small": "seconds", "full": "minutes on a core, not measured"}
PAPER = "Two plateaus: the risk is stable before it improves, and near-optimal over a range of ratios."
SIZE = PlateauSize

_NOISE = "noise"


def parts(size: PlateauSize) -> list[Part]:
    """Return a part for each sample, one for the formula with more noise, and one for published accuracies."""
    return [*samples(size), *published(size), Part(_NOISE, 0, lambda jobs, tally: noisy(size))]


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the samples, their plateaus, and the formula with more noise; how alike published curves are, if any."""
    rows, others = apart({name: part for name, part in results.items() if name != _NOISE})
    tables = {"fig1g": rows, "fig1g-plateaus": describe(rows), "fig1g-noise": results[_NOISE]}
    if not others:
        return tables
    formulas = {f"formula, {READINGS[reading]}": _curve(_first(rows, reading)) for reading in READINGS}
    return {**tables, "fig1g-published": others, "fig1g-likeness": likeness(others, formulas)}


def draw(tables: Tables, size: PlateauSize) -> Figures:
    """Draw a panel for each reading of the model, with published error rates over it, and one for the noise."""
    rows, noise = tables["fig1g"], tables["fig1g-noise"]
    figure, axes = panels(3, width=3.7, height=4.0)
    for panel, (reading, title) in zip(axes, READINGS.items(), strict=False):
        own = [row for row in rows if row["reading"] == reading]
        for sample in dict.fromkeys(row["sample"] for row in own):
            curve = [row for row in own if row["sample"] == sample]
            panel.plot(
                [row["ratio"] for row in curve],
                [row["normalised_risk"] for row in curve],
                color=SKY,
                linewidth=0.9,
                label="simulation: samples, each of one design" if sample == 0 else None,
            )
        predicted(panel, *_curve(_first(rows, reading)), BLACK, "formula (mean over designs)")
        finish(panel, title)
        draw_over(panel, tables.get("fig1g-published", []))
    for colour, share in zip(COLOURS, NOISES, strict=False):
        own = [row for row in noise if row["reading"] == "D" and abs(row["noise_over_null"] - share) < 0.01]
        predicted(
            axes[2], *_curve(own), colour, "σ² = 0.04 (paper)" if share == 0 else f"σ² = {share:g} of the null risk"
        )
    finish(axes[2], "Formula with more noise (D = 100)")
    return {"fig1g": figure}


def _first(rows: list[TableRow], reading: str) -> list[TableRow]:
    """Return the rows of the first sample."""
    return [row for row in rows if (row["reading"], row["sample"]) == (reading, 0)]


def _curve(rows: list[TableRow]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row["ratio"] for row in rows]), np.array([row["formula"] for row in rows])
