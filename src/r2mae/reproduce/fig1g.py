"""Fig. 1G: the latent space model in which the paper shows the two plateaus of a mask-pretraining curve."""

from collections.abc import Mapping

import numpy as np

from r2mae.report.style import SKY
from r2mae.reproduce.artefact import Part, Row, Tables, joined
from r2mae.reproduce.drawing import BLACK, COLOURS, Figures, panels, predicted
from r2mae.reproduce.plateau import NOISES, READINGS, PlateauSize, describe, finish, noisy, samples

TITLE = "Fig. 1G: latent space model (d = 5000, q = 50, n = 100) and its plateaus"
DATA = "simulated"
COST = {"small": "seconds", "full": "minutes on a core, not measured"}
PAPER = "Two plateaus: the risk is stable before it improves, and near-optimal over a range of ratios."
SIZE = PlateauSize

_NOISE = "noise"


def parts(size: PlateauSize) -> list[Part]:
    """Return a part for each sample, and one for the formula with more noise."""
    return [*samples(size), Part(_NOISE, 0, lambda jobs, tally: noisy(size))]


def table(results: Mapping[str, list[Row]]) -> Tables:
    """Return the samples, their plateaus, and the formula with more noise."""
    rows = joined({name: part for name, part in results.items() if name != _NOISE})
    return {"fig1g": rows, "fig1g-plateaus": describe(rows), "fig1g-noise": results[_NOISE]}


def draw(tables: Tables, size: PlateauSize) -> Figures:
    """Draw a panel for each reading of the model, and one for the noise."""
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
        first = [row for row in own if row["sample"] == 0]
        predicted(panel, *_curve(first), BLACK, "formula (mean over designs)")
        finish(panel, title)
    for colour, share in zip(COLOURS, NOISES, strict=False):
        own = [row for row in noise if row["reading"] == "D" and abs(row["noise_over_null"] - share) < 0.01]
        predicted(
            axes[2], *_curve(own), colour, "σ² = 0.04 (paper)" if share == 0 else f"σ² = {share:g} of the null risk"
        )
    finish(axes[2], "Formula with more noise (D = 100)")
    return {"fig1g": figure}


def _curve(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row["ratio"] for row in rows]), np.array([row["formula"] for row in rows])
