"""Fig. 1G: the latent space model said to show the two plateaus of a mask-pretraining curve."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from r2mae.report.style import SKY, figure_style, save_figure
from r2mae.reproduce.artefact import Progress, Scale, Tally, write_table
from r2mae.reproduce.drawing import BLACK, COLOURS, panels, predicted
from r2mae.reproduce.plateau import (
    NOISES,
    READINGS,
    SIZES,
    Row,
    Size,
    describe,
    finish,
    measure,
    noisy,
    steps,
)

TITLE = "Fig. 1G: latent space model (d = 5000, q = 50, n = 100) and its plateaus"
PAPER = "Two plateaus: the risk is stable before it improves, and near-optimal over a range of ratios."


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write fig1g.csv, fig1g-plateaus.csv, fig1g-noise.csv and the figure."""
    size = SIZES[scale] if size is None else size
    rows = measure(size, jobs, Tally(progress, steps(size)))
    noise = noisy(size)
    tables = {"fig1g": rows, "fig1g-plateaus": describe(rows), "fig1g-noise": noise}
    return [
        *(write_table(out, name, table) for name, table in tables.items()),
        *save_figure(_draw(rows, noise), out, "fig1g"),
    ]


def _draw(rows: list[Row], noise: list[Row]) -> Figure:
    with figure_style():
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
    return figure


def _curve(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row["ratio"] for row in rows]), np.array([row["formula"] for row in rows])
